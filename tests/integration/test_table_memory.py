"""Filling every table of a broker to its default limit takes less than 100 MB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BYTES_MAX = 100_000_000
ROOT = Path(__file__).resolve().parents[2]


def test_all_tables_together_use_less_than_100_mb(tmp_path: Path) -> None:
    """In a separate process with otherwise unused memory."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.full_tables", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    grown_by, steps = json.loads(done.stdout)
    assert grown_by < BYTES_MAX, steps
    # Every table was filled, and none rejected entries early.
    assert all(grown > 0 for step, grown in steps.items() if step != "written"), steps
