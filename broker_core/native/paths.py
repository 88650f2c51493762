"""Paths of the compiled modules, which depend on the sources, the Python version and the machine.

Standard library only: the build runs while the packages are being installed.
"""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
BUILT = SOURCES / "built"
TURN, RECORDS, GRPC = "turn", "records", "grpc"
MODULES = (RECORDS, GRPC, TURN)
CYTHON = "3.1.6"
FLAGS: tuple[str, ...] = ("-O2", "-g0", "-fPIC", "-shared", "-fno-strict-aliasing", "-fwrapv")
"""The flags that Python itself is built with: integer overflow wraps around."""


def module_path(module: str = TURN) -> Path:
    """Return a module's path, which changes with every source, so it's never stale."""
    digest = hashlib.sha256()
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    for part in (CYTHON, *FLAGS, suffix, str(sysconfig.get_config_var("py_version"))):
        digest.update(part.encode() + b"\0")
    for source in sources():
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return BUILT / digest.hexdigest()[:16] / f"{module}{suffix}"


def flags() -> tuple[str, ...]:
    """Return the compiler flags."""
    return FLAGS


def sources() -> list[Path]:
    """Return the source files of all modules."""
    return sorted(
        each for kind in ("*.pyx", "*.pxd", "*.pxi", "*.h") for each in SOURCES.glob(kind)
    )
