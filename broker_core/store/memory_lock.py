"""Memory that the kernel must not swap out: buffers of the pool, and warmed-up files.

A refusal isn't a failure: the operator limits how much may be locked, and the store works without
it. It is logged once.

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
    """One per store. After the store is loaded, only the allocating thread may use it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._is_refused = False

    def lock(self, buffer: mmap.mmap | bytearray) -> bool:
        """Lock a buffer in memory; return whether the kernel allowed it."""
        try:
            self._storage.lock_memory(buffer)
        except OSError as error:
            if not self._is_refused:
                self._is_refused = True
                limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
                allowed = "any" if limit == resource.RLIM_INFINITY else str(limit)
                logger.warning(
                    "store memory not locked limit_bytes=%s buffer_bytes=%d reason=%s",
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
            logger.warning("store memory not unlocked reason=%s", error)
