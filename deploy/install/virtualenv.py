"""The virtual environment at the checkout's root.

Standard library only: it runs before anything is installed. A requirements file lists direct
dependencies for people; its lock, which deploy/lock writes, lists all packages with the hashes of
their files, and uv installs only from the lock. Stamps in the environment hold the hashes of the
installed locks, so that a start with nothing to install costs one file read.
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
from deploy.install import requirements
from deploy.install.installer import Installer
from deploy.terminal.output import say
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT = requirements.ROOT
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
OLDEST_PYTHON = (3, 11)


class SetupError(Exception):
    """The machine lacks a requirement; the text says how to add it."""


def ensure(*files: Path) -> Path:
    """Create the environment if needed, install the files' locks, and return its Python.

    Raises:
        SetupError: the environment couldn't be created, or a package couldn't be installed.
    """
    with made():
        install(*files)
    return PYTHON


@contextlib.contextmanager
def made() -> Iterator[Path]:
    """Create the environment if needed, with build requirements; hold the installation lock.

    Raises:
        SetupError: the environment couldn't be created.
    """
    with _locked():
        if not _is_usable():
            say(translated("Creating the virtual environment {where}", where=VENV))
            command = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV)]
            environment = without_secrets(os.environ)
            if subprocess.run(command, env=environment, cwd=ROOT).returncode != 0:
                raise SetupError(
                    translated("Couldn't create the virtual environment; see the lines above.")
                )
        install(requirements.UV, requirements.BUILD)
        yield PYTHON


def install(*files: Path) -> None:
    """Install the files' locks unless they are installed; only within `made`.

    Raises:
        SetupError: a package couldn't be installed.
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
            translated(
                "Installing {file} into .venv (the first time takes a minute or more)", file=shown
            )
        )
        code = installer.install_itself() if file == requirements.UV else installer.install(file)
        if code != 0:
            raise SetupError(
                translated("Couldn't install {file}; see the lines above.", file=shown)
            )
        stamp.write_text(f"{digest}\n")


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Admit one process: deploy/up and deploy/test may run at the same time on a new checkout."""
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
