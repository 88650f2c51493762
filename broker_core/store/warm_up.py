"""Page warm-up: loads the pages of a log file before the first message arrives.

The first touch of a page costs seven times a later one. With warmMapedFileEnable the allocating
thread faults in the whole next file, flushLeastPagesWhenWarmMapedFile pages at a time; with
SYNC_FLUSH it flushes each of these pieces, so that later flushes write data and no block
allocations. Then it locks the file in memory until the file is full.

Source: store/MappedFile.java warmMappedFile, store/AllocateMappedFileService.java (4.9.8).
Differs: a put waits for a file's first pages only; the rest follows in the background.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from broker_core.storage import Storage
    from broker_core.store.mapped_file import MappedFile
    from broker_core.store.memory_lock import MemoryLock

logger = logging.getLogger(__name__)

PAGE_SIZE = 4096


class WarmUp:
    """`warm` and `release` run on the event loop, their work in the allocating thread."""

    def __init__(
        self,
        step_pages: int,
        storage: Storage,
        memory_lock: MemoryLock,
        allocator: Executor,
        *,
        is_flushed: bool,
    ) -> None:
        self._step = max(1, step_pages) * PAGE_SIZE
        self._is_flushed = is_flushed
        self._storage = storage
        self._memory_lock = memory_lock
        self._allocator = allocator
        self._is_closed = False

    def warm(self, mapped: MappedFile) -> None:
        """Start to fault a file in."""
        self._submit(mapped, 0)

    def release(self, mapped: MappedFile) -> None:
        """Unlock a full file, and stop warming it."""
        mapped.is_rolled = True
        if not self._is_closed:
            self._allocator.submit(self._unlock, mapped)

    def close(self) -> None:
        """Stop; unmapping also unlocks a file."""
        self._is_closed = True

    def _submit(self, mapped: MappedFile, position: int) -> None:
        # One piece at a time: other users of the thread mustn't wait for a whole file.
        try:
            self._allocator.submit(self._warm_piece, mapped, position)
        except RuntimeError:
            return  # the store is being closed

    def _warm_piece(self, mapped: MappedFile, position: int) -> None:
        if self._is_closed or mapped.is_rolled:
            return
        length = min(self._step, mapped.size - position)
        mapped.file.populate(mapped.buffer, position, length)
        if self._is_flushed and not self._flush(mapped):
            return
        position += length
        if position < mapped.size:
            self._submit(mapped, position)
        else:
            mapped.is_locked = self._memory_lock.lock(mapped.buffer)

    def _flush(self, mapped: MappedFile) -> bool:
        # Use a separate descriptor: the kernel reports a failed write once per open file, and the
        # flush that acknowledges messages must see it, too.
        try:
            file = self._storage.open(mapped.path)
        except FileNotFoundError:
            return False  # allocated but deleted without being used
        try:
            file.fdatasync()
        except OSError as error:
            logger.warning("warm-up stopped file=%s reason=%s", mapped.path, error)
            return False
        finally:
            file.close()
        return True

    def _unlock(self, mapped: MappedFile) -> None:
        if mapped.is_locked:
            mapped.is_locked = False
            self._memory_lock.unlock(mapped.buffer)
