"""Each process of the console writes lines that can't be forged."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

LOG = """
import logging
for name in ("console.celery", "django.server", "celery.task", "celery.beat", "uvicorn.error"):
    logging.getLogger(name).error("group=%s", "a\\nforged\\x1b[2J")
    try:
        raise ValueError("b\\nforged\\x1b[2J")
    except ValueError:
        logging.getLogger(name).exception("failed")
"""
WEB = """
from console.serving.__main__ import configuration
configuration("127.0.0.1", 0, []).load()
"""
WORKER = """
from console.celery import app
app.loader.import_default_modules()
app.log.setup("INFO", redirect_stdouts=True)
"""
COMMAND = """
import django
django.setup()
"""


@pytest.mark.parametrize("set_up", [WEB, WORKER, COMMAND], ids=["web", "worker", "command"])
@pytest.mark.parametrize("debug", ["0", "1"])
def test_no_value_forges_a_line(set_up: str, debug: str, tmp_path: Path) -> None:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "TREBUCHET_DATA": str(tmp_path),
        "TREBUCHET_DEBUG": debug,
    }

    done = subprocess.run(
        [sys.executable, "-c", set_up + LOG],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    lines = done.stderr.split("\n")
    report = [line for line in lines if r"group=a\nforged\x1b[2J" in line]
    assert len(report) == 5, done.stderr
    assert sum("    ValueError: b" in line for line in lines) == 5, done.stderr
    assert not any(line.startswith("forged") for line in lines), done.stderr
    assert "\x1b" not in done.stderr + done.stdout
