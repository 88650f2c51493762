"""One memory-mapped file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

    from broker_core.storage import StorageFile


ZERO_STEP = 1 << 20
_ZEROS = bytes(ZERO_STEP)


class MappedFile:
    """A file of fixed size, mapped in full.

    Slices of `view` may outlive the file's deletion: the memory is freed with the last slice.

    Attributes:
        write_buffer: the pool's buffer into which records are packed, until all of it is committed;
            None for a file that is written through its mapping.
        wrote_position: once the file is full, the end of its data in write_buffer.
        committed_position: write_buffer has been written to the file up to here.
        is_rolled: writing has moved on to another file.
        is_locked: the mapping is locked in memory.
    """

    __slots__ = (
        "buffer",
        "committed_position",
        "file",
        "file_from_offset",
        "is_locked",
        "is_rolled",
        "path",
        "size",
        "view",
        "write_buffer",
        "wrote_position",
    )

    def __init__(self, file: StorageFile, file_from_offset: int, size: int) -> None:
        self.file = file
        self.path: Path = file.path
        self.file_from_offset = file_from_offset
        self.size = size
        self.buffer: mmap.mmap | bytearray = file.map()
        self.view = memoryview(self.buffer)
        self.write_buffer: mmap.mmap | bytearray | None = None
        self.wrote_position = 0
        self.committed_position = 0
        self.is_rolled = False
        self.is_locked = False

    def close(self) -> None:
        """Close the descriptor; the mapping is freed with its last reader."""
        self.file.close()


def zero_tail(mapped: MappedFile, position: int, to: int | None = None) -> int:
    """Zero everything from position on; return the distance to the end of the last nonzero chunk.

    Only chunks with data are written, so that a sparse file stays sparse. `to`: the file is known
    to be zero from here on and needn't be checked.
    """
    dirty = 0
    limit = mapped.size if to is None else to
    for data_from, data_to in mapped.file.data_ranges(position, limit):
        start = data_from
        while (start := first_not_zero(mapped, start, data_to)) < data_to:
            end = min(start + ZERO_STEP, data_to)
            mapped.view[start:end] = _ZEROS[: end - start]
            dirty = end - position
            start = end
    return dirty


def first_not_zero(mapped: MappedFile, position: int, end: int) -> int:
    """Return the start of the chunk with the first nonzero byte, or end if all are zero."""
    # Check the mapping directly: reading a tail of a gigabyte takes a tenth of the time of copying
    # it.
    data = np.frombuffer(mapped.buffer, np.uint8)
    while position < end:
        following = min(position + ZERO_STEP, end)
        if data[position:following].max():
            return position
        position = following
    return end
