"""Memory that the kernel may not swap out: buffers of the pool, files that were warmed up.

Being refused is no failure: how much may be locked is the operator's to set, and all works
without it. It is said once.

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
    """Of one store. The allocating thread only, once the store is loaded."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._is_refused = False

    def lock(self, buffer: mmap.mmap | bytearray) -> bool:
        """Keep a buffer in memory; return whether that is so now."""
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
        """Let go of a buffer that was locked."""
        try:
            self._storage.unlock_memory(buffer)
        except OSError as error:
            logger.warning("memory of the store stays locked: %s", error)
