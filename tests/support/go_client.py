"""Our programs over Apache RocketMQ's Go client."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "interop" / "go"
BUILD_SECONDS = 600


def missing() -> str:
    """Return what this machine lacks for them, nothing if it has all."""
    return "" if shutil.which("go") else "go (1.21 or later; https://go.dev/dl)"


def build(directory: Path) -> Path:
    """Build the programs; return the one file that they are."""
    built = directory / "interop"
    subprocess.run(
        ["go", "build", "-o", str(built), "."], cwd=SOURCES, timeout=BUILD_SECONDS, check=True
    )
    return built
