"""Copying beside a broker that serves: small reads, bounded dirty memory, the lowest priority.

A disk serves what is asked with the idle class when nobody else asks, as far as its scheduler knows
classes. What was written goes to the disk piece by piece, so that a flush of the broker's does not
wait for gigabytes of ours, and leaves the page cache, which the broker needs.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
from typing import TYPE_CHECKING

from deploy.backup_manifest import BackupError
from deploy.words import told

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES = 1 << 20
DIRTY_BYTES_MAX = 32 << 20
NICENESS = 19
"""Not SCHED_IDLE: on a busy machine a backup that holds the lake's lock has to go on."""
IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
IOPRIO_WHO_PROCESS = 1
IOPRIO_CLASS_IDLE = 3 << 13
OPENED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def step_back() -> None:
    """Take processor and disk only when nobody else wants them much; where that may be asked."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    call = IOPRIO_SET.get(platform.machine())
    if call is not None:
        ctypes.CDLL(None).syscall(call, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE)


class Source:
    """The first bytes of an open file, read once, in order; digest and progress go along."""

    def __init__(
        self,
        descriptor: int,
        length: int,
        path: str,
        told_of: Callable[[int], None],
        *,
        leaves_cache: bool = False,
    ) -> None:
        """`told_of` is called with each number of bytes; `leaves_cache`: nobody needs them soon."""
        self._descriptor = descriptor
        self._length = length
        self._path = path
        self._told_of = told_of
        self._leaves_cache = leaves_cache
        self._position = 0
        self._digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, none behind the last.

        Raises:
            BackupError: the file has become shorter.
        """
        left = self._length - self._position
        wanted = min(left, PIECE_BYTES if size < 0 else size)
        if wanted <= 0:
            return b""
        data = os.pread(self._descriptor, wanted, self._position)
        if len(data) < wanted:
            raise BackupError(told("{path} became shorter while it was copied.", path=self._path))
        if self._leaves_cache:
            os.posix_fadvise(self._descriptor, self._position, len(data), os.POSIX_FADV_DONTNEED)
        self._position += len(data)
        self._digest.update(data)
        self._told_of(len(data))
        return data

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


class Sink:
    """A new file, private to its owner, that is written in order."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._synced_to = 0
        self._written = 0

    def write(self, data: bytes) -> int:
        """Write all of data; every DIRTY_BYTES_MAX it goes to the disk."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._written += len(data)
        if self._written - self._synced_to >= DIRTY_BYTES_MAX:
            self.sync()
        return len(data)

    def sync(self) -> None:
        """Make durable what was written, and leave the page cache."""
        os.fdatasync(self._descriptor)
        os.posix_fadvise(self._descriptor, 0, self._written, os.POSIX_FADV_DONTNEED)
        self._synced_to = self._written

    def close(self) -> None:
        os.close(self._descriptor)


def length_without_zeros(descriptor: int, size: int) -> int:
    """Return how long a file is without the zeros at its end; blocks without data are not read."""
    end = size
    while end > 0:
        start = (end - 1) // PIECE_BYTES * PIECE_BYTES
        try:
            following = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError:
            # Nothing but a hole from there on.
            following = size
        if following < end:
            data = os.pread(descriptor, end - start, start).rstrip(b"\0")
            if data:
                return start + len(data)
        end = start
    return 0
