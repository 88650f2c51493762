"""The data directory of an appliance: its lock, and the directory of its sockets."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Iterator

SOCKET_PATH_BYTES_MAX = 80
"""Linux allows 107 bytes; supervisord appends to our path while it opens the socket."""
LOCK = "appliance.lock"
RESTORING = ".restoring"
"""Where deploy/restore puts files that it hasn't checked yet."""


class NotStartedError(Exception):
    """Nothing was started; the text gives the reason."""


@contextlib.contextmanager
def lock(data: Path) -> Iterator[None]:
    """Hold the data directory for this process.

    Raises:
        NotStartedError: another appliance uses it, or it isn't writable.
    """
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("logs", "run", "redis"):
            (data / name).mkdir(mode=0o700, exist_ok=True)
        lock = (data / LOCK).open("a+")
    except OSError as error:
        raise NotStartedError(
            translated(
                "Can't write to the data directory {data}: {why}.", data=data, why=error.strerror
            )
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            raise NotStartedError(
                translated(
                    "The data directory {data} is in use by a running appliance (process "
                    "{holder}); stop it, or choose another directory with --data.",
                    data=data,
                    holder=lock.read().strip() or "unknown",
                )
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        if (data / RESTORING).exists():
            raise NotStartedError(
                translated(
                    "A restore into the data directory {data} didn't finish. Delete its "
                    "contents and restore again.",
                    data=data,
                )
            )
        yield


@contextlib.contextmanager
def run_directory(data: Path) -> Iterator[Path]:
    """Yield the directory of the sockets: inside `data`, unless that path is too long."""
    inside = data / "run"
    if len(os.fsencode(inside)) <= SOCKET_PATH_BYTES_MAX:
        yield inside
        return
    outside = Path(tempfile.mkdtemp(prefix="trebuchet-"))
    try:
        yield outside
    finally:
        shutil.rmtree(outside, ignore_errors=True)
