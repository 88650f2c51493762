"""`python -m analytics` as users and workers run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.quick_java import QUICK_SPARK

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent.parent
RUN_SECONDS_MAX = 240


def start(
    *arguments: object, environment: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "analytics", *map(str, arguments)],
        cwd=cwd,
        env={
            "PYTHONPATH": str(ROOT),
            **QUICK_SPARK,
            **(os.environ if environment is None else environment),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(
    *arguments: object, environment: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> tuple[int, list[dict[str, Any]], str]:
    """Return the exit code, the events on standard output, and standard error."""
    process = start(*arguments, environment=environment, cwd=cwd)
    output, errors = process.communicate(timeout=RUN_SECONDS_MAX)
    return process.returncode, [json.loads(line) for line in output.splitlines()], errors
