"""Where what is compiled is: files for their sources, this Python and this machine.

Standard library only: the build comes before everything else.
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
"""As Python itself is built: what overflows wraps around."""


def place(module: str = TURN) -> Path:
    """Return a module's file; it is elsewhere after any change, so that it is never stale."""
    digest = hashlib.sha256()
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    for part in (CYTHON, *FLAGS, suffix, str(sysconfig.get_config_var("py_version"))):
        digest.update(part.encode() + b"\0")
    for source in sources():
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return BUILT / digest.hexdigest()[:16] / f"{module}{suffix}"


def flags() -> tuple[str, ...]:
    """Return what the compiler is told."""
    return FLAGS


def sources() -> list[Path]:
    """Return the files that all modules are made of."""
    return sorted(
        each for kind in ("*.pyx", "*.pxd", "*.pxi", "*.h") for each in SOURCES.glob(kind)
    )
