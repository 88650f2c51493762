"""A copy of this checkout, with an environment, that every user can read and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.install.requirements import ROOT

PACKAGES = ("analytics", "broker_core", "console", "deploy")
FILES = ("manage.py", "pyproject.toml", "requirements.txt", "requirements.lock")


def open_python(directory: Path) -> Path:
    """Return a Python that every user can run: this one, or a copy below `directory`."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    if is_open((base / "bin" / version).resolve()) and is_open(Path(os.__file__).resolve()):
        return base / "bin" / version
    copy = directory / "python"
    ignored = shutil.ignore_patterns("__pycache__", "test", "site-packages", "config-*", "idlelib")
    shutil.copytree(base / "lib" / version, copy / "lib" / version, ignore=ignored)
    for library in (base / "lib").glob("libpython*"):
        shutil.copy(library, copy / "lib" / library.name)
    (copy / "bin").mkdir()
    shutil.copy((base / "bin" / version).resolve(), copy / "bin" / version)
    open_all(copy)
    return copy / "bin" / version


def is_open(path: Path) -> bool:
    """Whether every user can reach and read a file or directory."""
    return path.stat().st_mode & 0o004 != 0 and all(
        each.stat().st_mode & 0o001 for each in path.parents
    )


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout and the environment variables that its processes need."""

    root: Path
    environment: dict[str, str]


def open_checkout(directory: Path) -> Checkout:
    """Copy the checkout below `directory`, which every user must be able to enter.

    Skips the test where that isn't possible. The environment has a separate Python with the
    packages of the running one.
    """
    packages = Path(sysconfig.get_path("purelib")).resolve()
    if not is_open(packages):
        pytest.skip(f"only this user may read the installed packages ({packages})")
    python = open_python(directory)
    # A copied Python would look for its library in the build directory.
    copied = directory / "python" / "lib"
    environment = {"LD_LIBRARY_PATH": str(copied)} if copied.exists() else {}
    root = directory / "checkout"
    root.mkdir(mode=0o755)
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, root / name)
    venv = root / ".venv"
    subprocess.run(
        [python, "-m", "venv", "--without-pip", venv],
        env=environment | {"PATH": os.defpath},
        check=True,
    )
    for library in venv.glob("lib/python*/site-packages"):
        (library / "packages.pth").write_text(f"{packages}\n")
    for stamp in (ROOT / ".venv").glob(".*.sha256"):
        shutil.copy(stamp, venv / stamp.name)
    open_all(root)
    return Checkout(root, environment)


def open_all(directory: Path) -> None:
    """Make everything below a directory readable, and programs executable, for all users."""
    for path in (directory, *directory.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o044 | (0o011 if mode & 0o100 else 0))
