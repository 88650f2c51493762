"""The CommitLog: every message of the broker, in order of arrival.

All files have the same size and are named by their first offset. The first file may begin anywhere
(older ones expire); there are no gaps. A background thread allocates the next file in advance, and
faults in pages ahead of the write position: the first touch of a page costs seven times a later
one.

With a TransientStorePool a new file is written through a buffer of the pool, which is committed to
the file later: then `buffer` is that buffer, while readers see the mapping, which holds the
committed data.

Source: store/CommitLog.java, store/MappedFileQueue.java, store/AllocateMappedFileService.java
(4.9.8).
Differs: no file is created without a free buffer (RocketMQ writes such a file through its
mapping, where it would survive a kill that the end of the previous file doesn't).
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import StoreError, StoreUnavailableError
from broker_core.formats.paths import offset_file_name
from broker_core.formats.record import BLANK_SIZE_MIN, encode_blank
from broker_core.store.foreign_entries import offset_files
from broker_core.store.mapped_file import MappedFile, zero_tail

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future
    from pathlib import Path

    from broker_core.storage import Storage, StorageFile
    from broker_core.store.put_state import PutState
    from broker_core.store.transient_store_pool import TransientStorePool
    from broker_core.store.warm_up import WarmUp

logger = logging.getLogger(__name__)

PAGE_SIZE = 4096
POPULATE_AHEAD = 16 * 1024 * 1024


class Piece(NamedTuple):
    """The bytes of a file to commit next."""

    mapped: MappedFile
    position: int
    data: memoryview


class CommitLog:
    """Event loop only; allocation runs in the executor and touches only unused files.

    The put path packs into `put_state.buffer` at its `position` directly, as long as the end stays
    within its `limit`; otherwise it calls `make_room` first.

    Attributes:
        put_state: where the next record goes.
        files: oldest first. Callers must not change it.
        flushed_where: the log is durable up to here.
        wake_bytes: 0, or the maximum number of bytes between calls of `on_wake`.
        on_growth: called once after each `watch_growth`, during the next put or commit.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        storage: Storage,
        allocator: Executor,
        put_state: PutState,
        pool: TransientStorePool | None = None,
        warm_up: WarmUp | None = None,
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.put_state = put_state
        self.flushed_where = 0
        self.wake_bytes = 0
        self.on_wake: Callable[[], object] = _nothing
        self.on_growth: Callable[[], object] = _nothing
        self._is_growth_watched = False
        self._storage = storage
        self._allocator = allocator
        self._pool = pool
        self._warm_up = warm_up
        self._uncommitted: deque[MappedFile] = deque()
        self.files: list[MappedFile] = []
        self._populated_to = 0
        self._next: Future[MappedFile] | None = None

    @property
    def min_offset(self) -> int:
        """The start of the first file; 0 in an empty log."""
        return self.files[0].file_from_offset if self.files else 0

    @property
    def max_offset(self) -> int:
        """The offset of the next record."""
        state = self.put_state
        return state.file_from_offset + state.position

    @property
    def committed_where(self) -> int:
        """The files hold the log up to here: max_offset, unless a buffer has uncommitted data."""
        if not self._uncommitted:
            return self.max_offset
        first = self._uncommitted[0]
        return first.file_from_offset + first.committed_position

    def load(self) -> None:
        """Map the existing files.

        Raises:
            StoreError: a file has the wrong size or a damaged name, or a file is missing between
                others.
        """
        offsets = offset_files(self._storage, self.directory)
        for file_from_offset in offsets:
            name = offset_file_name(file_from_offset)
            path = self.directory / name
            file = self._storage.open(path)
            size = file.size
            if size == 0 and file_from_offset == offsets[-1]:
                # The process was killed between creating the file and setting its size.
                file.close()
                self._storage.unlink(path)
                continue
            if size != self.file_size:
                file.close()
                raise StoreError(
                    f"{path} has {size} bytes, but mappedFileSizeCommitLog is {self.file_size}"
                )
            if self.files and file_from_offset != self.files[-1].file_from_offset + size:
                file.close()
                raise StoreError(
                    f"{self.directory}: a file is missing before {name}; "
                    "restore it, or move the files before it away"
                )
            self.files.append(MappedFile(file, file_from_offset, size))

    def file_at(self, commit_log_offset: int) -> MappedFile | None:
        """Return the file that holds an offset."""
        files = self.files
        if not files:
            return None
        index = (commit_log_offset - files[0].file_from_offset) // self.file_size
        return files[index] if 0 <= index < len(files) else None

    def read(self, commit_log_offset: int, size: int) -> memoryview | None:
        """Return size bytes, or None when they aren't stored or cross files."""
        file = self.file_at(commit_log_offset)
        if file is None:
            return None
        position = commit_log_offset - file.file_from_offset
        end = position + size
        if size <= 0 or end > file.size or commit_log_offset + size > self.committed_where:
            return None
        return file.view[position:end]

    def committed_view(self, commit_log_offset: int) -> memoryview | None:
        """Return the bytes in the files from an offset to the end of its file; None if empty.

        The view stays valid after the file is deleted.
        """
        file = self.file_at(commit_log_offset)
        if file is None:
            return None
        position = commit_log_offset - file.file_from_offset
        end = min(file.size, self.committed_where - file.file_from_offset)
        return file.view[position:end] if position < end else None

    def watch_growth(self) -> None:
        """Call `on_growth` when there is more to read.

        A put pays for this only once: the limit makes it check here.
        """
        self._is_growth_watched = True
        state = self.put_state
        state.limit = min(state.limit, state.position)

    def written_view(self, commit_log_offset: int) -> memoryview | None:
        """Return the bytes put from an offset to the end of its file, committed or not.

        For internal use only: uncommitted data must not be shown to clients.
        """
        file = self.file_at(commit_log_offset)
        if file is None or commit_log_offset >= self.max_offset:
            return None
        position = commit_log_offset - file.file_from_offset
        end = min(file.size, self.max_offset - file.file_from_offset)
        if file.write_buffer is None or position < file.committed_position:
            return file.view[position:end]
        return memoryview(file.write_buffer)[position:end]

    def cut_at(self, commit_log_offset: int) -> None:
        """Durably remove everything after an offset; a log that ends before it is unchanged."""
        if self.files and commit_log_offset < self.files[-1].file_from_offset + self.file_size:
            self.continue_at(commit_log_offset)
            # If a deleted file came back, the log before it would look damaged.
            self._storage.sync_directory(self.directory)

    def continue_at(self, commit_log_offset: int, zero_from: int | None = None) -> int:
        """Make an offset the end of the log: zero the rest of its file, delete later files.

        zero_from: the file is known to be zero from here on.

        Returns the number of bytes that weren't zero in the file that holds the end.
        """
        if self.files and self.files[-1].file_from_offset > commit_log_offset:
            # The next file would follow a file that is about to be deleted.
            self._drop_next()
        while self.files and self.files[-1].file_from_offset > commit_log_offset:
            self._delete(self.files[-1])
        if not self.files:
            state = self.put_state
            state.position = commit_log_offset % self.file_size
            state.file_from_offset = commit_log_offset - state.position
            self.flushed_where = commit_log_offset
            return 0
        last = self.files[-1]
        position = commit_log_offset - last.file_from_offset
        zero_at = last.size if zero_from is None else zero_from - last.file_from_offset
        dirty = zero_tail(last, position, min(zero_at, last.size))
        if dirty:
            last.file.fdatasync()
        self._write_to(last, position)
        self.flushed_where = commit_log_offset
        return dirty

    def make_room(self, size: int) -> None:
        """Make a record of size bytes fit between position and limit.

        Rolls to the next file when this one is full. The caller has checked `record_size_max`.

        Raises:
            OSError: no file could be created; nothing has changed.
            StoreUnavailableError: a new file would have no buffer; nothing has changed.
        """
        self._grow()
        state = self.put_state
        end = state.position + size
        if state.limit >= 0 and end <= self.file_size - BLANK_SIZE_MIN:
            self._look_ahead(end)
            return
        if self._pool is not None and not self._pool.available_buffer_nums:
            raise StoreUnavailableError("all buffers of the transient store pool are in use")
        if state.limit < 0:
            self._append(self._allocate(state.file_from_offset), state.position)
        else:
            following = self._take_next()
            if state.position < self.file_size:
                encode_blank(state.buffer, state.position, self.file_size - state.position)
            self._roll(self.files[-1])
            self._append(following, 0)
        self._look_ahead(state.position + size)

    def begin_at(self, commit_log_offset: int) -> None:
        """Make an empty log begin at a file's first offset.

        Raises:
            StoreError: the log has files, or the offset isn't the start of a file.
        """
        if self.files or commit_log_offset % self.file_size:
            raise StoreError(f"the log cannot begin at offset {commit_log_offset}")
        self.continue_at(commit_log_offset)

    def append_data(self, data: memoryview) -> None:
        """Write bytes from another broker's log; they must not cross the end of a file.

        Raises:
            OSError: no file could be created; nothing has changed.
        """
        state = self.put_state
        if state.limit < 0:
            self._append(self._allocate(state.file_from_offset), state.position)
        elif state.position == self.file_size:
            following = self._take_next()
            self._roll(self.files[-1])
            self._append(following, 0)
        end = state.position + len(data)
        if end > self.file_size:
            raise ValueError(f"{len(data)} bytes cross the end of a file")
        if end > state.limit:
            self._look_ahead(end)
        state.buffer[state.position : end] = data
        state.position = end
        self._grow()

    def piece_to_commit(self, size_max: int) -> Piece | None:
        """Return the next bytes to write to a file, or None when everything is in the files."""
        if not self._uncommitted:
            return None
        mapped = self._uncommitted[0]
        buffer = mapped.write_buffer
        assert buffer is not None
        position = mapped.committed_position
        end = mapped.wrote_position if mapped.is_rolled else self.put_state.position
        if end - position > size_max:
            # Commit up to the end of a page: after a kill, recovery uses the page boundary to
            # distinguish a torn record from damage.
            end = position + size_max - (position + size_max) % PAGE_SIZE
        if end <= position:
            return None
        return Piece(mapped, position, memoryview(buffer)[position:end])

    def committed(self, piece: Piece) -> None:
        """Record that a piece is in its file, where readers may see it."""
        self._grow()
        mapped = piece.mapped
        mapped.committed_position = piece.position + len(piece.data)
        piece.data.release()
        if mapped.is_rolled and mapped.committed_position == mapped.wrote_position:
            self._uncommitted.popleft()
            if self._pool is not None and mapped.write_buffer is not None:
                self._pool.return_buffer(mapped.write_buffer)
            mapped.write_buffer = None

    @property
    def record_size_max(self) -> int:
        """The largest record that fits into a file."""
        return self.file_size - BLANK_SIZE_MIN

    def files_between(self, offset_from: int, offset_to: int) -> list[StorageFile]:
        """Return the files that hold bytes of [offset_from, offset_to)."""
        return [
            mapped.file
            for mapped in self.files
            if mapped.file_from_offset < offset_to
            and mapped.file_from_offset + mapped.size > offset_from
        ]

    def delete_first(self) -> None:
        """Delete the oldest file; its readers can continue. The last file is never deleted."""
        if len(self.files) > 1:
            gone = [self.files[0]]
            self._delete(self.files[0])
            # Unmapping frees up to a gigabyte of pages, which takes about 30 ms; this lets that
            # thread drop the last reference.
            self._allocator.submit(gone.clear)

    def close(self) -> None:
        """Close the descriptors; delete a file that was allocated in advance and not used."""
        self._drop_next()
        for mapped in self.files:
            mapped.close()
        self.put_state.limit = -1

    def _delete(self, mapped: MappedFile) -> None:
        # Unlink first: if that fails, the file must stay in use.
        self._storage.unlink(mapped.path)
        self.files.remove(mapped)
        mapped.close()

    def _append(self, mapped: MappedFile, position: int) -> None:
        if self._pool is not None:
            mapped.write_buffer = self._pool.borrow_buffer()
            mapped.committed_position = position
            self._uncommitted.append(mapped)
        self.files.append(mapped)
        self._write_to(mapped, position)

    def _roll(self, mapped: MappedFile) -> None:
        # After the head of the blank record the buffer holds stale data from the previous file.
        mapped.wrote_position = min(self.put_state.position + BLANK_SIZE_MIN, self.file_size)
        mapped.is_rolled = True
        if self._warm_up is not None:
            self._warm_up.release(mapped)

    def _write_to(self, mapped: MappedFile, position: int) -> None:
        state = self.put_state
        state.buffer = mapped.buffer if mapped.write_buffer is None else mapped.write_buffer
        state.file_from_offset = mapped.file_from_offset
        state.position = position
        state.limit = position
        self._populated_to = position

    def _look_ahead(self, end: int) -> None:
        """Raise the limit to the next point where background work is due, at least to end."""
        mapped = self.files[-1]
        if self._populated_to < self.file_size and end > self._populated_to - POPULATE_AHEAD // 2:
            start = max(self._populated_to, end)
            length = min(POPULATE_AHEAD, self.file_size - start)
            self._populated_to = start + length
            if length > 0:
                self._allocator.submit(mapped.file.populate, self.put_state.buffer, start, length)
        half = self.file_size // 2
        if end >= half and self._next is None:
            self._next = self._allocator.submit(
                self._allocate, mapped.file_from_offset + self.file_size
            )
        due = self.file_size - BLANK_SIZE_MIN
        if self._populated_to < self.file_size:
            due = min(due, self._populated_to - POPULATE_AHEAD // 2)
        if self._next is None:
            due = min(due, half)
        if self.wake_bytes:
            due = min(due, end + self.wake_bytes)
            self.on_wake()
        self.put_state.limit = max(due, end)

    def _grow(self) -> None:
        if self._is_growth_watched:
            self._is_growth_watched = False
            self.on_growth()

    def _drop_next(self) -> None:
        """Delete the file that was allocated in advance."""
        ahead, self._next = self._next, None
        if ahead is not None and not ahead.cancel() and ahead.exception() is None:
            self._storage.unlink(ahead.result().path)
            ahead.result().close()

    def _take_next(self) -> MappedFile:
        ahead, self._next = self._next, None
        if ahead is not None and ahead.exception() is None:
            return ahead.result()
        return self._allocate(self.put_state.file_from_offset + self.file_size)

    def _allocate(self, file_from_offset: int) -> MappedFile:
        """Durably create a file with all its blocks reserved. Any thread."""
        path = self.directory / offset_file_name(file_from_offset)
        file = self._storage.open(path, create=True)
        try:
            # Set the full length immediately: a file of another length would stop a real broker's
            # start.
            file.set_size(self.file_size)
            file.allocate(0, self.file_size)
            self._storage.sync_directory(self.directory)
            mapped = MappedFile(file, file_from_offset, self.file_size)
            file.populate(mapped.buffer, 0, min(POPULATE_AHEAD, self.file_size))
        except OSError:
            file.close()
            self._storage.unlink(path)
            raise
        if self._warm_up is not None:
            self._warm_up.warm(mapped)
        return mapped


def _nothing() -> None:
    """Do nothing; the default callback."""
