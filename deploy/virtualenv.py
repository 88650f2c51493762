"""The virtual environment at the checkout's root.

Standard library only: it runs before anything is installed. A requirements file tells people what
is wanted; its lock beside it, which deploy/lock writes, has all that comes with that and the hashes
of every file: pip installs from the lock alone. Stamps in the environment hold the hashes of the
installed locks, so that a start with nothing to install costs a file read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from broker_core.environment import without_secrets
from deploy import requirements
from deploy.terminal import say
from deploy.words import told

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT = requirements.ROOT
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
OLDEST_PYTHON = (3, 11)


class SetupError(Exception):
    """The machine lacks something; the text tells a person how to add it."""


def ensure(*files: Path) -> Path:
    """Make the environment if needed, install what the files' locks pin, return its Python.

    Raises:
        SetupError: the environment could not be made, or a package not installed.
    """
    with _locked():
        if not _is_usable():
            say(told("Making the virtual environment {where}", where=VENV))
            _run(
                [sys.executable, "-m", "venv", "--clear", str(VENV)], "make the virtual environment"
            )
        for file in (requirements.BUILD, *files):
            _install(file)
    return PYTHON


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Let one process in: deploy/up and deploy/test may start side by side on a fresh checkout."""
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


def _install(file: Path) -> None:
    lock = requirements.lock_of(file)
    stamp = VENV / f".{str(lock.relative_to(ROOT)).replace(os.sep, '-')}.sha256"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text().strip() == digest:
        return
    say(
        told(
            "Installing {file} into .venv (the first time takes a few minutes)",
            file=file.relative_to(ROOT),
        )
    )
    command: list[str | Path] = [PYTHON, "-m", "pip", "install", "--quiet", "--no-input"]
    # The lock is complete, so nothing that it does not name is wanted.
    command += ["--require-hashes", "--no-deps", "--disable-pip-version-check"]
    # pyspark has no wheel; what builds it is installed by now, hashed like the rest.
    command += ["--use-pep517", "--no-build-isolation"]
    if os.geteuid() == 0:
        command.append("--root-user-action=ignore")
    _run([*command, "-r", lock], f"install {file.relative_to(ROOT)}")
    stamp.write_text(f"{digest}\n")


def _run(command: list[str | Path], what: str) -> None:
    environment = without_secrets(os.environ)
    environment.pop("PYTHONPATH", None)
    code = subprocess.run(command, env=environment, cwd=ROOT).returncode
    if code != 0:
        raise SetupError(f"Could not {what}: the command above ended with exit code {code}.")
