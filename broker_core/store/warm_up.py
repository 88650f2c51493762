"""Page warm-up: the pages of a file of the log are in memory before the first message comes.

A first touch costs seven times a later one. With warmMapedFileEnable the whole next file is
faulted in by the allocating thread, flushLeastPagesWhenWarmMapedFile pages at a time; with
SYNC_FLUSH each of these pieces is made durable, so that later flushes write data and no more news
of blocks. Then the file is locked in memory, until it is full and another one is written.

Source: store/MappedFile.java warmMappedFile, store/AllocateMappedFileService.java (4.9.8).
Differs: only a file's first pages keep a put waiting; the rest goes on behind it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from broker_core.config import StoreConfig
    from broker_core.storage import Storage
    from broker_core.store.mapped_file import MappedFile
    from broker_core.store.memory_lock import MemoryLock

logger = logging.getLogger(__name__)

PAGE_SIZE = 4096


class WarmUp:
    """`warm` and `release` in the event loop; what they begin, in the one allocating thread."""

    def __init__(
        self, config: StoreConfig, storage: Storage, memory_lock: MemoryLock, allocator: Executor
    ) -> None:
        self._step = max(1, config.flush_least_pages_when_warm_maped_file) * PAGE_SIZE
        self._is_sync_flush = config.flush_disk_type == "SYNC_FLUSH"
        self._storage = storage
        self._memory_lock = memory_lock
        self._allocator = allocator
        self._is_closed = False

    def warm(self, mapped: MappedFile) -> None:
        """Begin to fault a file in."""
        self._submit(mapped, 0)

    def release(self, mapped: MappedFile) -> None:
        """A file is not written any more: its pages may go, and warming it is in vain."""
        mapped.is_rolled = True
        if not self._is_closed:
            self._allocator.submit(self._unlock, mapped)

    def close(self) -> None:
        """Stop; a mapping is unlocked with its end."""
        self._is_closed = True

    def _submit(self, mapped: MappedFile, position: int) -> None:
        # One piece at a time, so that whoever needs the thread meanwhile waits for no whole file.
        try:
            self._allocator.submit(self._warm_piece, mapped, position)
        except RuntimeError:
            return  # the store is being closed

    def _warm_piece(self, mapped: MappedFile, position: int) -> None:
        if self._is_closed or mapped.is_rolled:
            return
        length = min(self._step, mapped.size - position)
        mapped.file.populate(mapped.buffer, position, length)
        if self._is_sync_flush and not self._flush(mapped):
            return
        position += length
        if position < mapped.size:
            self._submit(mapped, position)
        else:
            mapped.is_locked = self._memory_lock.lock(mapped.buffer)

    def _flush(self, mapped: MappedFile) -> bool:
        # By a descriptor of its own: the kernel tells each open file once of a failed write, and
        # the flush that acknowledges messages must be told too.
        try:
            file = self._storage.open(mapped.path)
        except FileNotFoundError:
            return False  # allocated, never used, and deleted since
        try:
            file.fdatasync()
        except OSError as error:
            logger.warning("warming up stops: file=%s error=%s", mapped.path, error)
            return False
        finally:
            file.close()
        return True

    def _unlock(self, mapped: MappedFile) -> None:
        if mapped.is_locked:
            mapped.is_locked = False
            self._memory_lock.unlock(mapped.buffer)
