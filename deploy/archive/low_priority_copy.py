"""Copies files next to a running broker: small reads, limited dirty memory, the lowest priority.

With the idle I/O class, a disk whose scheduler supports classes serves the copy only when no other
process uses it. Written data is flushed in small pieces, so that a broker's flush doesn't wait for
gigabytes of the copy, and is dropped from the page cache, which the broker needs.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
from typing import TYPE_CHECKING

from deploy.archive.manifest import BackupError
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES = 1 << 20
DIRTY_BYTES_MAX = 32 << 20
NICENESS = 19
"""Not SCHED_IDLE: a backup that holds the lake's lock must make progress on a busy machine."""
IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
IOPRIO_WHO_PROCESS = 1
IOPRIO_CLASS_IDLE = 3 << 13
OPENED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def lower_priority() -> None:
    """Lower the processor and disk priority, if permitted."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    call = IOPRIO_SET.get(platform.machine())
    if call is not None:
        ctypes.CDLL(None).syscall(call, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE)


class Source:
    """The first bytes of an open file, read once in order, with digest and progress."""

    def __init__(
        self,
        descriptor: int,
        length: int,
        path: str,
        on_read: Callable[[int], None],
        *,
        leaves_cache: bool = False,
    ) -> None:
        """`on_read` is called with each number of bytes; `leaves_cache` drops them from the page
        cache.
        """
        self._descriptor = descriptor
        self._length = length
        self._path = path
        self._on_read = on_read
        self._leaves_cache = leaves_cache
        self._position = 0
        self._digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, empty at the end.

        Raises:
            BackupError: the file has become shorter.
        """
        left = self._length - self._position
        wanted = min(left, PIECE_BYTES if size < 0 else size)
        if wanted <= 0:
            return b""
        data = os.pread(self._descriptor, wanted, self._position)
        if len(data) < wanted:
            raise BackupError(
                translated("{path} became shorter while it was being copied.", path=self._path)
            )
        if self._leaves_cache:
            os.posix_fadvise(self._descriptor, self._position, len(data), os.POSIX_FADV_DONTNEED)
        self._position += len(data)
        self._digest.update(data)
        self._on_read(len(data))
        return data

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


class Sink:
    """A new private file that is written in order."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._synced_to = 0
        self._written = 0

    def write(self, data: bytes) -> int:
        """Write all of data, flushing to disk every DIRTY_BYTES_MAX."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._written += len(data)
        if self._written - self._synced_to >= DIRTY_BYTES_MAX:
            self.sync()
        return len(data)

    def sync(self) -> None:
        """Make the written data durable, and drop it from the page cache."""
        os.fdatasync(self._descriptor)
        os.posix_fadvise(self._descriptor, 0, self._written, os.POSIX_FADV_DONTNEED)
        self._synced_to = self._written

    def close(self) -> None:
        os.close(self._descriptor)


def length_without_zeros(descriptor: int, size: int) -> int:
    """Return the length of a file without trailing zeros; holes aren't read."""
    end = size
    while end > 0:
        start = (end - 1) // PIECE_BYTES * PIECE_BYTES
        try:
            following = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError:
            # Only a hole from there on.
            following = size
        if following < end:
            data = os.pread(descriptor, end - start, start).rstrip(b"\0")
            if data:
                return start + len(data)
        end = start
    return 0
