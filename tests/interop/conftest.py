"""The Go programs, built once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parent / "go"
BUILD_SECONDS = 600


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        pytest.skip("go is missing (1.21 or later; https://go.dev/dl)")
    built = tmp_path_factory.mktemp("go") / "interop"
    subprocess.run(
        ["go", "build", "-o", str(built), "."], cwd=SOURCES, timeout=BUILD_SECONDS, check=True
    )
    return built
