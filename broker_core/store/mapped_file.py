"""One mapped file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

    from broker_core.storage import StorageFile


ZERO_STEP = 1 << 20
_ZEROS = bytes(ZERO_STEP)


class MappedFile:
    """A file of fixed size with a mapping over the whole of it.

    Slices of `view` may outlive the file's deletion: the memory goes when the last of them does.

    Attributes:
        write_buffer: the buffer of the pool that records are packed into, until all of it is
            committed; None for a file that is written through its mapping.
        wrote_to: behind the last byte in write_buffer that belongs to the file, once it is full.
        committed_to: up to here write_buffer was written to the file.
        is_rolled: another file is written now.
        is_locked: the mapping may not be swapped out.
    """

    __slots__ = (
        "buffer",
        "committed_to",
        "file",
        "file_from_offset",
        "is_locked",
        "is_rolled",
        "path",
        "size",
        "view",
        "write_buffer",
        "wrote_to",
    )

    def __init__(self, file: StorageFile, file_from_offset: int, size: int) -> None:
        self.file = file
        self.path: Path = file.path
        self.file_from_offset = file_from_offset
        self.size = size
        self.buffer: mmap.mmap | bytearray = file.map()
        self.view = memoryview(self.buffer)
        self.write_buffer: mmap.mmap | bytearray | None = None
        self.wrote_to = 0
        self.committed_to = 0
        self.is_rolled = False
        self.is_locked = False

    def close(self) -> None:
        """Give back the descriptor; the mapping goes with its last reader."""
        self.file.close()


def zero_tail(mapped: MappedFile, position: int) -> int:
    """Zero all from position to the end; return how far behind position something was found.

    Only chunks that hold something are written, so that a sparse file stays sparse.
    """
    dirty = 0
    for data_from, data_to in mapped.file.data_ranges(position, mapped.size):
        for start in range(data_from, data_to, ZERO_STEP):
            end = min(start + ZERO_STEP, data_to)
            zeros = _ZEROS[: end - start]
            if bytes(mapped.view[start:end]) != zeros:
                mapped.view[start:end] = zeros
                dirty = end - position
    return dirty


def first_not_zero(mapped: MappedFile, position: int, end: int) -> int:
    """Return where the piece begins that has the first byte that is not zero; end for none."""
    buffer = bytearray(ZERO_STEP)
    view = memoryview(buffer)
    while position < end:
        wanted = min(ZERO_STEP, end - position)
        size = mapped.file.pread_into(position, view[:wanted])
        if size == 0:
            break
        if buffer[:size] != _ZEROS[:size]:
            return position
        position += size
    return end
