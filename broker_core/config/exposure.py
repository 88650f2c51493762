"""Exposure: whether other users may read or change a file that contains secrets."""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


def exposure(path: Path, owner: int, mode: int) -> str | None:
    """Return the warning about a file with this owner (uid) and mode; None for a private one."""
    if not mode & OTHERS:
        return None
    name = shlex.quote(str(path))
    # Another user's file may be readable only through its group: a private file must belong to this
    # user.
    user = os.geteuid()
    chown = "" if user in (owner, 0) else f"chown {user} {name} && "
    return (
        f"{path} contains secrets, and its mode {mode:04o} gives other users access; run: "
        f"{chown}chmod 600 {name}"
    )


def exposure_of(path: Path) -> str | None:
    """Return the warning about a file; None if it is private or missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return exposure(path, status.st_uid, stat.S_IMODE(status.st_mode))
