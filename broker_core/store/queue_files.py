"""The files of one queue: all of one size, consecutive, mapped while they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import StoreError
from broker_core.formats.paths import offset_file_name
from broker_core.store.foreign_entries import offset_files
from broker_core.store.mapped_file import MappedFile

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable
    from pathlib import Path

    from broker_core.storage import Storage, StorageFile

ALLOCATE_STEP_MIN = 16 * 1024
ALLOCATE_STEP_MAX = 1024 * 1024


class PutPlace:
    """The fields of its queue that a put reads, kept together in memory.

    With thousands of queues, the processor's nearest cache rarely has them, and each cache line
    that a put touches costs as much as a hundred instructions.
    """

    __slots__ = ("buffer", "code_of", "dirty", "limit", "max_offset", "next_offset", "position")


class QueueFiles(PutPlace):
    """Event loop only. Files have their full length from the start, and get blocks in steps.

    Writers pack into `buffer` directly, below `limit`, which counts from the start of the file.

    Attributes:
        topic, queue_id: the queue that the files belong to.
        dirty: written since the last flush.
        is_new: the directory was created since the last flush.
        write: the file being written, if any.
    """

    __slots__ = (
        "_directory",
        "_file_size",
        "_files",
        "_mapped",
        "_on_mapped",
        "_reserved_to",
        "_rolled",
        "_size_key",
        "_step",
        "_storage",
        "is_new",
        "queue_id",
        "topic",
        "write",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        directory: Path,
        file_size: int,
        size_key: str,
        storage: Storage,
        on_mapped: Callable[[QueueFiles, int], None],
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.buffer: mmap.mmap | bytearray = bytearray()
        self.limit = -1
        self.dirty = False
        self.is_new = True
        self._directory = directory
        self._file_size = file_size
        self._size_key = size_key
        self._storage = storage
        self._on_mapped = on_mapped
        self._files: list[int] = []
        self._mapped: dict[int, MappedFile] = {}
        self.write: MappedFile | None = None
        self._rolled: list[StorageFile] = []
        self._step = ALLOCATE_STEP_MIN
        # Blocks are reserved up to here, past the file being written.
        self._reserved_to = 0

    def directory(self) -> Path:
        """Return the directory of the files."""
        return self._directory

    def files_to_flush(self) -> list[StorageFile]:
        """Return the files written since the last call."""
        files = self._rolled
        self._rolled = []
        if self.write is not None:
            files.append(self.write.file)
        return files

    def has_mapped(self, file_from_offset: int) -> bool:
        """Return whether a file is currently mapped."""
        return file_from_offset in self._mapped

    def evict(self, file_from_offset: int) -> bool:
        """Release one mapping, unless it waits for its flush; it is mapped again when needed."""
        mapped = self._mapped[file_from_offset]
        if mapped.file in self._rolled:
            return False
        if mapped is self.write:
            if self.dirty:
                return False
            self._stop_writing()
        del self._mapped[file_from_offset]
        mapped.close()
        return True

    def close(self) -> None:
        """Close all descriptors."""
        for mapped in self._mapped.values():
            mapped.close()
        self._mapped.clear()
        self._stop_writing()

    def delete(self) -> None:
        """Delete the files and the directory."""
        for file_from_offset in list(self._files):
            self._delete_file(file_from_offset)
        self._stop_writing()
        self._storage.remove_directory(self._directory)

    def _find_files(self) -> None:
        """List the files.

        Raises:
            StoreError: a file may belong to the queue but has a damaged name.
        """
        self._files += offset_files(self._storage, self._directory)
        self.is_new = not self._files

    def _write_at(self, offset: int, least: int) -> int:
        """Map the file of an offset for writing, with blocks for at least this many bytes.

        Returns the position in the file.

        Raises:
            OSError: there is no space; nothing has changed.
        """
        file_from_offset = offset - offset % self._file_size
        write = self.write
        if write is None or write.file_from_offset != file_from_offset:
            following = self._map(file_from_offset, create=True)
            if write is not None:
                self._rolled.append(write.file)
                write.file.set_fault_ahead(write.buffer, is_on=True)
            write = following
        position = offset - file_from_offset
        if offset + least <= self._reserved_to:
            end = min(position + self._reserved_to - offset, self._file_size)
        else:
            # Round up to a whole step, so that many queues have the same limit.
            end = position + max(self._step, least) + ALLOCATE_STEP_MIN - 1
            end = min(end - end % ALLOCATE_STEP_MIN, self._file_size)
            write.file.allocate(position, end - position)
            self._step = min(self._step * 2, ALLOCATE_STEP_MAX)
        self.write = write
        self.buffer = write.buffer
        self.limit = end
        return position

    def _reserve_to(self, end: int) -> None:
        """Create the files after the one being written, with their blocks, up to an offset.

        Raises:
            OSError: there is no space; empty files may have been created.
        """
        write = self.write
        assert write is not None
        start = write.file_from_offset + self._file_size
        while start < end:
            length = min(self._file_size, end - start)
            self._map(start, create=True).file.allocate(0, length)
            self._reserved_to = start + length
            start += length

    def _stop_writing(self) -> None:
        self.write = None
        self.buffer = bytearray()
        self.limit = -1

    def _map(self, file_from_offset: int, *, create: bool = False) -> MappedFile:
        mapped = self._mapped.get(file_from_offset)
        if mapped is not None:
            return mapped
        path = self._directory / offset_file_name(file_from_offset)
        is_new = create and file_from_offset not in self._files
        if is_new:
            # Not durable yet: the flush before the next checkpoint syncs directories.
            self._storage.make_directory(self._directory, durable=False)
        file = self._storage.open(path, create=is_new)
        size = file.size
        if is_new:
            try:
                file.set_size(self._file_size)
            except OSError:
                # An empty file would prevent a real broker from starting.
                file.close()
                self._storage.unlink(path)
                raise
            self._files.append(file_from_offset)
            self.is_new = True
        elif size == 0:
            # The process was killed between creating the file and setting its length.
            file.set_size(self._file_size)
        elif size != self._file_size:
            file.close()
            raise StoreError(f"{path} has {size} bytes, but {self._size_key} is {self._file_size}")
        mapped = self._mapped[file_from_offset] = MappedFile(
            file, file_from_offset, self._file_size
        )
        if file_from_offset >= max(self._files):
            # Most of the file is a hole: with the read-ahead of some disks (8 MiB), the first
            # message of a queue would wait until all of that is zeroed.
            file.set_fault_ahead(mapped.buffer, is_on=False)
        self._on_mapped(self, file_from_offset)
        return mapped

    def _delete_file(self, file_from_offset: int) -> None:
        # Unlink first: if that fails, the file must stay in use.
        self._storage.unlink(self._directory / offset_file_name(file_from_offset))
        self._files.remove(file_from_offset)
        self._reserved_to = 0
        mapped = self._mapped.pop(file_from_offset, None)
        if mapped is not None:
            mapped.close()
        if self.write is mapped:
            self.write = None
            self.limit = -1
