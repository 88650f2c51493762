"""Our programs based on Apache RocketMQ's Go client."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "interop" / "go"
BUILD_SECONDS = 600


def missing() -> str:
    """Return the missing prerequisites, or an empty string if all are installed."""
    return "" if shutil.which("go") else "go (1.21 or later; https://go.dev/dl)"


def build(directory: Path) -> Path:
    """Build the programs into one executable; return its path."""
    built = directory / "interop"
    subprocess.run(
        ["go", "build", "-o", str(built), "."], cwd=SOURCES, timeout=BUILD_SECONDS, check=True
    )
    return built
