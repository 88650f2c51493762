"""`manage.py lake COMMAND`: runs the analytics program's lake command with the console's paths."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from console.data.pipeline.lake_status import environment


class Command(BaseCommand):
    """Passes its arguments on unchanged, including `--help`."""

    help = "Maintain a lake of Delta tables that is filled from the broker's log (docs/lake.md)."
    requires_system_checks: list[str] = []

    def run_from_argv(self, argv: list[str]) -> None:
        """Exit with the program's exit code."""
        sys.exit(self._run(argv[2:]))

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command for `call_command`."""
        self._run([str(each) for each in args])

    def _run(self, arguments: list[str]) -> int:
        command = [sys.executable, "-m", "analytics.lake", *arguments]
        return subprocess.run(command, env=environment(), cwd=Path.cwd()).returncode
