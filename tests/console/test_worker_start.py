"""Modules that worker and beat load before they are ready."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.sources import ROOT

LOAD = """
import sys
from console.celery import app
app.loader.import_default_modules()
assert "console.data.reports.tasks" in sys.modules
print(*sorted(name for name in sys.modules if name.endswith((".views", ".urls"))))
"""


def test_worker_and_beat_load_no_console_page() -> None:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "console.settings"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = [name for name in done.stdout.split() if name.startswith("console.")]
    assert loaded == []
