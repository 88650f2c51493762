"""The virtual environment at the checkout's root.

Standard library only: it runs before anything is installed. A requirements file tells people what
is wanted; its lock beside it, which deploy/lock writes, has all that comes with that and the hashes
of every file: uv installs from the lock alone. Stamps in the environment hold the hashes of the
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
from deploy.installer import Installer
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
    with made():
        install(*files)
    return PYTHON


@contextlib.contextmanager
def made() -> Iterator[Path]:
    """Make the environment if needed, with what builds packages; nobody else installs meanwhile.

    Raises:
        SetupError: it could not be made.
    """
    with _locked():
        if not _is_usable():
            say(told("Making the virtual environment {where}", where=VENV))
            command = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV)]
            environment = without_secrets(os.environ)
            if subprocess.run(command, env=environment, cwd=ROOT).returncode != 0:
                raise SetupError(
                    told("Could not make the virtual environment; the lines above say why.")
                )
        install(requirements.UV, requirements.BUILD)
        yield PYTHON


def install(*files: Path) -> None:
    """Install what the files' locks pin, unless that was done; only within `made`.

    Raises:
        SetupError: a package could not be installed.
    """
    installer = Installer(VENV)
    for file in files:
        lock = requirements.lock_of(file)
        stamp = VENV / f".{str(lock.relative_to(ROOT)).replace(os.sep, '-')}.sha256"
        digest = hashlib.sha256(lock.read_bytes()).hexdigest()
        if stamp.exists() and stamp.read_text().strip() == digest:
            continue
        shown = file.relative_to(ROOT)
        say(
            told("Installing {file} into .venv (the first time takes a minute or more)", file=shown)
        )
        code = installer.install_itself() if file == requirements.UV else installer.install(file)
        if code != 0:
            raise SetupError(told("Could not install {file}; the lines above say why.", file=shown))
        stamp.write_text(f"{digest}\n")


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
    program = f"import sys; sys.exit(sys.version_info < {OLDEST_PYTHON})"
    try:
        return subprocess.run([PYTHON, "-c", program], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False
