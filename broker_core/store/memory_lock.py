"""Memory that the kernel may not swap out: buffers of the pool, and warmed-up files.

A refusal is no failure: the operator sets how much may be locked, and the store works without. It
is logged once.

Source: store/MappedFile.java mlock, store/TransientStorePool.java init (4.9.8).
"""

from __future__ import annotations

import logging
import resource
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap

    from broker_core.storage import Storage

logger = logging.getLogger(__name__)


class MemoryLock:
    """One for each store. Once the store is loaded, for the allocating thread only."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._is_refused = False

    def lock(self, buffer: mmap.mmap | bytearray) -> bool:
        """Lock a buffer in memory; return whether the kernel allows it."""
        try:
            self._storage.lock_memory(buffer)
        except OSError as error:
            if not self._is_refused:
                self._is_refused = True
                limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
                allowed = "any" if limit == resource.RLIM_INFINITY else str(limit)
                logger.warning(
                    "memory of the store is not locked and may be swapped out: "
                    "RLIMIT_MEMLOCK allows %s bytes, a buffer has %d: %s",
                    allowed,
                    len(buffer),
                    error,
                )
            return False
        return True

    def unlock(self, buffer: mmap.mmap | bytearray) -> None:
        """Unlock a buffer."""
        try:
            self._storage.unlock_memory(buffer)
        except OSError as error:
            logger.warning("memory of the store stays locked: %s", error)
