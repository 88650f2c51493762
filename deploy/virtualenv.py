"""The virtual environment at the checkout's root.

Standard library only: it runs before anything is installed. A stamp in the environment holds the
hash of each requirements file that is in it, so that a start with nothing new to install costs a
file read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.terminal import say

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
OLDEST_PYTHON = (3, 11)


class SetupError(Exception):
    """The machine lacks something, in one sentence for the person who can add it."""


def ensure(*requirements: Path, dependencies: bool = True) -> Path:
    """Make the environment if need be, install what the files pin, return its Python.

    Raises:
        SetupError: it could not be made, or a package could not be installed.
    """
    with _locked():
        if not _is_usable():
            say(f"Making the virtual environment {VENV}")
            _run(
                [sys.executable, "-m", "venv", "--clear", str(VENV)], "make the virtual environment"
            )
        for file in requirements:
            _install(file, dependencies=dependencies)
    return PYTHON


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """One at a time: deploy/up and deploy/test may be started side by side on a fresh checkout."""
    descriptor = os.open(ROOT, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_usable() -> bool:
    program = f"import sys, pip; sys.exit(sys.version_info < {OLDEST_PYTHON})"
    try:
        return subprocess.run([PYTHON, "-c", program], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def _install(file: Path, *, dependencies: bool) -> None:
    name = str(file.relative_to(ROOT)).replace(os.sep, "-")
    stamp = VENV / f".{name}.sha256"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text().strip() == digest:
        return
    say(f"Installing {file.relative_to(ROOT)} into .venv (the first time takes a few minutes)")
    command: list[str | Path] = [PYTHON, "-m", "pip", "install", "--quiet", "--no-input"]
    # Debian 12's pip would build pyspark, which has no wheel, the way that it itself warns of.
    command += ["--disable-pip-version-check", "--use-pep517"]
    if os.geteuid() == 0:
        command.append("--root-user-action=ignore")
    if not dependencies:
        command.append("--no-deps")
    _run([*command, "-r", file], f"install {file.relative_to(ROOT)}")
    stamp.write_text(f"{digest}\n")


def _run(command: list[str | Path], what: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = subprocess.run(command, env=environment, cwd=ROOT).returncode
    if code != 0:
        raise SetupError(f"Could not {what}: the command above ended with exit code {code}.")
