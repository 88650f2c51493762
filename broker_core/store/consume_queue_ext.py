"""The extension of one ConsumeQueue: store times and filter bitmaps of its messages.

Written when enableConsumeQueueExt is set. All its data can be derived from the log: an unreadable
unit means reading the record instead, and never loses a message.

Source: store/ConsumeQueueExt.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from broker_core.formats.cq_ext_unit import (
    ADDRESS_BASE,
    ADDRESS_MAX,
    END_MARK,
    END_SIZE,
    EXT_OFFSET_MAX,
    HEAD_SIZE,
    HEADS,
    UNIT_SIZE_MAX,
    CqExtUnit,
    decode,
    encode,
)
from broker_core.store.mapped_file import zero_tail
from broker_core.store.queue_files import QueueFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from broker_core.storage import Storage, StorageFile

    Ints = NDArray[np.int64]

FILE_SIZE_KEY = "mappedFileSizeConsumeQueueExt"


class ConsumeQueueExt(QueueFiles):
    """Event loop only. The ConsumeQueue decides where it ends.

    Attributes:
        end: the offset of the next unit, counted across all files.
    """

    __slots__ = ("_room", "end")

    def __init__(
        self,
        topic: str,
        queue_id: int,
        directory: Path,
        file_size: int,
        storage: Storage,
        on_mapped: Callable[[QueueFiles, int], None],
    ) -> None:
        super().__init__(topic, queue_id, directory, file_size, FILE_SIZE_KEY, storage, on_mapped)
        self.end = 0
        self._room = file_size - END_SIZE

    def load(self, last_address: int | None, *, trust_end: bool) -> None:
        """Find the files; continue after the last unit that the ConsumeQueue refers to.

        trust_end: the ConsumeQueue is complete (a clean exit), so unreferenced units may be
        removed.

        Raises:
            StoreError: a stray file, or a file of the wrong size.
        """
        self._find_files()
        self.end = self._size_of_files()
        if last_address is not None:
            self.end = self.end_behind(last_address)
            if trust_end:
                # Units written while extensions were enabled, before the last start without them.
                self.cut(self.end, thorough=True)
        else:
            self.cut(0, thorough=False)

    def put(self, unit: CqExtUnit) -> int | None:
        """Write the next unit; return its address, or None when it is too big for a file.

        Raises:
            OSError: there is no space; nothing has changed.
        """
        size = unit.size
        if size > min(UNIT_SIZE_MAX, self._room):
            return None
        offset = self.end
        position = offset % self._file_size
        if position + size > self._room:
            offset = self._roll()
            position = 0
        if offset + size > EXT_OFFSET_MAX:
            return None
        write = self.write
        if (
            write is None
            or write.file_from_offset != offset - position
            or position + size > self.limit
        ):
            self._write_at(offset, size)
        self.buffer[position : position + size] = encode(unit)
        self.end = offset + size
        self.dirty = True
        return offset + ADDRESS_BASE

    def cut(self, end: int, *, thorough: bool) -> None:
        """Make an offset the end: delete later files, zero the rest of its file when thorough."""
        self.end = end
        for file_from_offset in [start for start in self._files if start >= end]:
            self._delete_file(file_from_offset)
        file_from_offset = end - end % self._file_size
        if thorough and file_from_offset in self._files:
            zero_tail(self._map(file_from_offset), end - file_from_offset)

    def unit(self, address: int) -> CqExtUnit | None:
        """Return the unit at an address, or None."""
        offset = address - ADDRESS_BASE
        file_from_offset = offset - offset % self._file_size
        if address > ADDRESS_MAX or offset >= self.end or file_from_offset not in self._files:
            return None
        unit = decode(self._map(file_from_offset).view, offset - file_from_offset)
        if unit is None or offset - file_from_offset + unit.size > self._room:
            return None
        return unit

    def sizes(self, addresses: Ints, tags_codes: Ints, store_timestamps: Ints) -> Ints:
        """Return the sizes of the units at these addresses; -1 where the contents differ."""
        offsets = addresses ^ np.int64(ADDRESS_BASE)
        sizes = np.full(len(addresses), -1, np.int64)
        starts = offsets - offsets % self._file_size
        for start in np.unique(starts).tolist():
            limit = min(self.end, start + self._room - HEAD_SIZE + 1)
            chosen = np.flatnonzero((starts == start) & (offsets < limit))
            if start not in self._files or not len(chosen):
                continue
            mapped = self._map(start)
            places = offsets[chosen] - start
            count = mapped.size - HEAD_SIZE + 1
            heads = np.ndarray((count,), HEADS, mapped.buffer, strides=(1,))[places]
            size = heads["size"].astype(np.int64)
            bit_map_size = np.maximum(heads["bit_map_size"].astype(np.int64), 0)
            is_right = (
                (size == bit_map_size + HEAD_SIZE)
                & (places + size <= self._room)
                & (heads["tags_code"] == tags_codes[chosen])
                & (heads["store_timestamp"] == store_timestamps[chosen])
            )
            sizes[chosen] = np.where(is_right, size, -1)
        return sizes

    def end_behind(self, address: int) -> int:
        """Return where the unit that follows the unit at an address may begin.

        If that unit can't be read, return the end of its file, so that no referenced unit is
        overwritten.
        """
        offset = address - ADDRESS_BASE
        unit = self.unit(address)
        if unit is not None:
            return offset + unit.size
        return offset - offset % self._file_size + self._file_size

    def files_to_flush(self) -> list[StorageFile]:
        self.dirty = False
        return super().files_to_flush()

    def delete_before(self, address: int) -> None:
        """Delete files that hold only units before an address."""
        for file_from_offset in list(self._files):
            if file_from_offset + self._file_size < address - ADDRESS_BASE:
                self._delete_file(file_from_offset)

    def _size_of_files(self) -> int:
        return self._files[-1] + self._file_size if self._files else 0

    def _roll(self) -> int:
        """Mark the end of a full file; return where the next begins."""
        position = self._write_at(self.end, len(END_MARK))
        marked = self.buffer
        offset = self.end - position + self._file_size
        self._write_at(offset, HEAD_SIZE)
        marked[position : position + len(END_MARK)] = END_MARK
        return offset
