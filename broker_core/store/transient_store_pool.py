"""Off-heap buffers in which messages wait until they are committed to their file.

The committing thread writes the log's file, not the event loop: puts aren't delayed while the page
cache writes to the disk. A killed process loses the contents of its buffers.

Source: store/TransientStorePool.java (4.9.8).
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

from broker_core.errors import StoreError

if TYPE_CHECKING:
    import mmap

    from broker_core.storage import Storage
    from broker_core.store.memory_lock import MemoryLock


class TransientStorePool:
    """Event loop only, except `lock`. Buffers have the length of a file of the log.

    A returned buffer still has its old bytes: the next user must write before it reads.
    """

    def __init__(self, storage: Storage, pool_size: int, buffer_size: int) -> None:
        self._storage = storage
        self._pool_size = pool_size
        self._buffer_size = buffer_size
        self._all: list[mmap.mmap | bytearray] = []
        self._available: deque[mmap.mmap | bytearray] = deque()

    def init(self) -> None:
        """Reserve the buffers; the kernel allocates their pages on first use.

        Raises:
            StoreError: there is not enough memory.
        """
        needed = self._pool_size * self._buffer_size
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        sentence = (
            f"transientStorePoolSize={self._pool_size}: buffers of {self._buffer_size} bytes each "
            f"need {needed} bytes of memory"
        )
        if needed > memory:
            raise StoreError(f"{sentence}, this machine has {memory}")
        try:
            self._all = [self._storage.buffer(self._buffer_size) for _ in range(self._pool_size)]
        except OSError as error:
            raise StoreError(f"{sentence}: {error}") from error
        self._available.extend(self._all)

    def lock(self, memory_lock: MemoryLock) -> None:
        """Lock all buffers in memory, if the kernel allows it. Only in the allocating thread."""
        for buffer in self._all:
            if not memory_lock.lock(buffer):
                return

    @property
    def available_buffer_nums(self) -> int:
        """How many buffers are free."""
        return len(self._available)

    def borrow_buffer(self) -> mmap.mmap | bytearray | None:
        """Return a buffer, or None when all are in use."""
        return self._available.popleft() if self._available else None

    def return_buffer(self, buffer: mmap.mmap | bytearray) -> None:
        """Return the buffer of a committed file to the pool."""
        # The buffer used last is handed out first: its pages are in memory.
        self._available.appendleft(buffer)

    def destroy(self) -> None:
        """Free the memory, which unlocks it."""
        self._available.clear()
        self._all.clear()
