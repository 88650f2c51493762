"""Exposure: whether users other than ours may read or change a file that holds secrets."""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


def exposure(path: Path, owner: int, mode: int) -> str | None:
    """Return the warning about a file of this owner (uid) and mode; None for a private one."""
    if not mode & OTHERS:
        return None
    name = shlex.quote(str(path))
    # Somebody else's file is perhaps ours to read by its group alone: private, it must be ours.
    user = os.geteuid()
    chown = "" if user in (owner, 0) else f"chown {user} {name} && "
    return (
        f"{path} holds secrets, and its mode {mode:04o} lets other users at them: "
        f"{chown}chmod 600 {name}"
    )


def exposure_of(path: Path) -> str | None:
    """Return the warning about a file as it is; None for a private or a missing one."""
    try:
        status = path.stat()
    except OSError:
        return None
    return exposure(path, status.st_uid, stat.S_IMODE(status.st_mode))
