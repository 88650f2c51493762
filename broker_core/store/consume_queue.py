"""One ConsumeQueue: the CommitLog locations of the messages of a (topic, queue_id).

Unit n is at byte 20 n; all files have the same size and are named by their first byte.

Invariant: units [min_offset, next_offset) are present; after them are zeros.
Source: store/ConsumeQueue.java (4.9.8).
"""

from __future__ import annotations

import itertools
import logging
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from broker_core.errors import StoreError
from broker_core.formats.cq_ext_unit import ADDRESS_MAX, CqExtUnit
from broker_core.formats.cq_unit import FILLER, FILLER_SIZE, UNIT, UNIT_SIZE, UNITS
from broker_core.formats.paths import offset_file_name
from broker_core.message.names import PROPERTY_TIMER_OUT_MS
from broker_core.message.properties import decode as decode_properties
from broker_core.message.tags import tags_code
from broker_core.store.mapped_file import MappedFile, zero_tail
from broker_core.store.queue_files import QueueFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from broker_core.storage import Storage, StorageFile
    from broker_core.store.consume_queue_ext import ConsumeQueueExt

    CodeOf = Callable[[int, str | None, str], int]
    BitMapOf = Callable[[str, str], bytes]

logger = logging.getLogger(__name__)

NO_LIMIT = 1 << 62
STALE_LOOK_BYTES = 64 * 1024
EXT_LOOK_UNITS = 4096
TIMER_CODE = re.compile(r"[1-9][0-9]{10,14}")
"""Due times that a unit can hold as its tags code: from 1970-04-26 on, larger than any hash."""
FILE_SIZE_KEY = "mappedFileSizeConsumeQueue"


class ConsumeQueue(QueueFiles):
    """Event loop only.

    The put path packs units into `buffer` at `position` directly while position < `limit`;
    otherwise it calls `make_room` first.

    Attributes:
        next_offset: the queue_offset of the next message.
        max_offset: messages may be read up to here; less than next_offset only while messages are
            unflushed.
        min_offset: the first message that still exists.
        topic_field: the topic as stored in a record: size, then UTF-8.
        key_seed: Java's hash of "topic#", from which index keys start, modulo 2^32.
        delay_ms: how long messages in a SCHEDULE_TOPIC_XXXX queue wait; None elsewhere.
        has_due_times: whether the tags code of a message is its TIMER_OUT_MS.
        ext: the extension files; None if there are no extensions.
        code_of: computes a unit's tags code from (store_timestamp, tags, properties); None where
            the code is the hash of the tags.
        flushed_offset: next_offset at the last flush.
    """

    __slots__ = (
        "_bit_map_of",
        "delay_ms",
        "ext",
        "flushed_offset",
        "has_due_times",
        "key_seed",
        "min_offset",
        "topic_field",
    )

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
        self.position = 0
        self.next_offset = 0
        self.max_offset = 0
        self.min_offset = 0
        self.flushed_offset = 0
        self.topic_field = b""
        self.key_seed = 0
        self.delay_ms: int | None = None
        self.has_due_times = False
        self.ext: ConsumeQueueExt | None = None
        self.code_of: CodeOf | None = None
        self._bit_map_of: BitMapOf = no_bit_map

    def delay(self, delay_ms: int) -> None:
        """Use the due time of messages as their tags code."""
        self.delay_ms = delay_ms
        self.code_of = self._delayed_code

    def use_due_times(self) -> None:
        """Use TIMER_OUT_MS as the tags code of messages that have it."""
        self.has_due_times = True
        self.code_of = _due_time_code

    def extend(self, ext: ConsumeQueueExt, bit_map_of: BitMapOf) -> None:
        """Write extension units; bit_map_of computes bitmaps from (topic, properties)."""
        self.ext = ext
        self._bit_map_of = bit_map_of
        self.code_of = self._extended_code

    def load(self, *, trust_end: bool) -> None:
        """Find the files and the end of the units.

        trust_end: there are no holes (a clean exit), so that bisection can find the end.

        Raises:
            StoreError: a stray file, a file of the wrong size, or a missing file between others.
        """
        self._find_files()
        for before, start in itertools.pairwise(self._files):
            if start != before + self._file_size:
                name = offset_file_name(start)
                raise StoreError(f"{self._directory}: a file is missing before {name}")
        per_file = self._file_size // UNIT_SIZE
        while self._files:
            last = self._map(self._files[-1])
            count = _count_by_bisection(last) if trust_end else _count_by_scan(last)
            if count or len(self._files) == 1:
                self._set_end(self._files[-1] // UNIT_SIZE + count)
                break
            self._delete_file(self._files[-1])
        if self._files:
            first = self._files[0] // UNIT_SIZE
            self.min_offset = first
            while self.min_offset < self.next_offset:
                unit = self.unit(self.min_offset)
                if unit is None or unit[1] != FILLER_SIZE or self.min_offset - first >= per_file:
                    break
                self.min_offset += 1
        if self.ext is not None:
            self.ext.load(self.last_ext_address(self.next_offset), trust_end=trust_end)

    def make_room(self, units: int = 1) -> None:
        """Reserve room for this many units from `position` on, so that no batch is torn.

        Raises:
            OSError: there is no space; no unit has changed.
        """
        offset, size = self.next_offset * UNIT_SIZE, units * UNIT_SIZE
        self.position = self._write_at(
            offset, min(size, self._file_size - offset % self._file_size)
        )
        # One more than the last position where a unit may begin.
        self.limit = _shared(self.limit + 1 - UNIT_SIZE)
        self._reserve_to(offset + size)

    def append(self, commit_log_offset: int, size: int, tags_code: int) -> None:
        """Write the next unit. The put path of the store does the same inline."""
        if self.position >= self.limit:
            self.make_room()
        UNIT.pack_into(self.buffer, self.position, commit_log_offset, size, tags_code)
        self.position += UNIT_SIZE
        self.next_offset += 1

    def append_units(self, units: bytes) -> None:
        """Write the next units.

        Raises:
            OSError: there is no space; some units may have been written.
        """
        done = 0
        while done < len(units):
            if self.position >= self.limit:
                self.make_room()
            room = self.limit - 1 - self.position
            size = min(room - room % UNIT_SIZE + UNIT_SIZE, len(units) - done)
            self.buffer[self.position : self.position + size] = units[done : done + size]
            self.position += size
            self.next_offset += size // UNIT_SIZE
            done += size

    def start_at(self, queue_offset: int) -> None:
        """Begin an empty queue at an offset; write fillers from the start of the file to it."""
        for file_from_offset in list(self._files):
            self._delete_file(file_from_offset)
        self._set_end(queue_offset - queue_offset % (self._file_size // UNIT_SIZE))
        while self.next_offset < queue_offset:
            self.append(0, FILLER_SIZE, 0)
        self.min_offset = self.max_offset = queue_offset

    def put_at(self, queue_offset: int, commit_log_offset: int, size: int, tags_code: int) -> bool:
        """Set one existing unit; return whether it was different."""
        byte = queue_offset * UNIT_SIZE
        mapped = self._map(byte - byte % self._file_size)
        position = byte - mapped.file_from_offset
        unit = UNIT.pack(commit_log_offset, size, tags_code)
        if mapped.view[position : position + UNIT_SIZE] == unit:
            return False
        mapped.view[position : position + UNIT_SIZE] = unit
        return True

    def put_ext(self, code: int, store_timestamp: int, properties: str) -> int:
        """Write an extension unit; return its address, or the code if it couldn't be written."""
        if self.ext is None:
            return code
        bit_map = self._bit_map_of(self.topic, properties)
        try:
            address = self.ext.put(CqExtUnit(code, store_timestamp, bit_map))
        except OSError as error:
            # As in RocketMQ: the message is stored, and its filter is evaluated on each read.
            logger.warning("extension unit missing topic=%s reason=%s", self.topic, error)
            return code
        return code if address is None else address

    def put_filler_at(self, queue_offset: int) -> bool:
        """Mark the unit of a lost message; return whether the unit was different."""
        return self.put_at(queue_offset, *UNIT.unpack(FILLER))

    def truncate(self, next_offset: int, *, thorough: bool) -> None:
        """Make next_offset the end; zero the units after it, delete later files.

        thorough: look for stale units up to the end of the file, not only shortly after the end.
        """
        while self._files and self._files[-1] // UNIT_SIZE >= next_offset and len(self._files) > 1:
            self._delete_file(self._files[-1])
        self._set_end(next_offset)
        if not self._files:
            return
        last = self._map(self._files[-1])
        position = next_offset * UNIT_SIZE - last.file_from_offset
        if thorough:
            zero_tail(last, position)
        else:
            look = bytes(last.view[position : position + STALE_LOOK_BYTES])
            if look.count(0) != len(look):
                zero_tail(last, position)

    def remove_units_from(self, commit_log_offset: int) -> None:
        """Remove the units of messages at or after a log offset, so that they can be rewritten.

        For a queue in use: units written earlier still wait for their flush.
        """
        end = self.lower_bound(self.min_offset, lambda offset: offset < commit_log_offset)
        if end == self.next_offset:
            return
        for queue_offset in range(end, self.next_offset):
            self.put_at(queue_offset, 0, 0, 0)
        self.next_offset = end
        self.max_offset = min(self.max_offset, end)
        self.flushed_offset = min(self.flushed_offset, end)
        self.limit = -1

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return (commit_log_offset, size, tags_code), or None when there is no such unit."""
        if not self._files or not self._files[0] // UNIT_SIZE <= queue_offset < self.next_offset:
            return None
        byte = queue_offset * UNIT_SIZE
        mapped = self._map(byte - byte % self._file_size)
        return UNIT.unpack_from(mapped.buffer, byte - mapped.file_from_offset)

    def units(self, queue_offset: int, count: int) -> memoryview:
        """Return up to count readable units from one file."""
        mapped, start, end = self.place(queue_offset, count)
        return mapped.view[start:end]

    def place(self, queue_offset: int, count: int) -> tuple[MappedFile, int, int]:
        """Return the location of up to count readable units: file, start and end."""
        byte = queue_offset * UNIT_SIZE
        file_from_offset = byte - byte % self._file_size
        write = self.write
        if write is not None and write.file_from_offset == file_from_offset:
            mapped = write
        else:
            mapped = self._map(file_from_offset)
        position = byte - file_from_offset
        end = min(
            position + count * UNIT_SIZE,
            mapped.size,
            self.max_offset * UNIT_SIZE - file_from_offset,
        )
        return mapped, position, end

    def stored_units(self, queue_offset: int, count: int) -> memoryview:
        """Return up to count units from one file, including unflushed messages."""
        byte = queue_offset * UNIT_SIZE
        file_from_offset = byte - byte % self._file_size
        if file_from_offset not in self._files:
            return memoryview(b"")
        mapped = self._map(file_from_offset)
        position = byte - file_from_offset
        end = min(
            position + count * UNIT_SIZE,
            mapped.size,
            self.next_offset * UNIT_SIZE - file_from_offset,
        )
        return mapped.view[position : max(position, end)]

    def ext_unit(self, address: int) -> CqExtUnit | None:
        """Return the extension unit at an address, or None when it can't be read."""
        return None if self.ext is None else self.ext.unit(address)

    def last_ext_address(self, queue_offset: int) -> int | None:
        """Return the address in the last unit before an offset that has one, or None.

        Addresses ascend. Where they don't, the highest is returned, so that nothing is overwritten.
        """
        file_units = self._file_size // UNIT_SIZE
        to = min(queue_offset, self.next_offset)
        while to > self.first_offset():
            start = max((to - 1) - (to - 1) % file_units, to - EXT_LOOK_UNITS)
            codes = np.frombuffer(self.stored_units(start, to - start), UNITS)["tags_code"]
            found = np.flatnonzero(codes <= ADDRESS_MAX)
            if len(found):
                return int(codes[found].max())
            to = start
        return None

    def first_offset(self) -> int:
        """Return the queue_offset of the first unit in the files, including removed messages."""
        return self._files[0] // UNIT_SIZE if self._files else self.next_offset

    def lower_bound(
        self,
        queue_from: int,
        is_before: Callable[[int], bool],
        is_lost: Callable[[int], bool] | None = None,
    ) -> int:
        """Return the first queue_offset in [queue_from, next_offset] for which is_before is false.

        is_before takes a commit_log_offset and must be monotonic. The search skips fillers,
        messages for which is_lost is true, and zeros, which a power cut can leave before units that
        had reached the disk.
        """
        low, high = queue_from, self.next_offset
        while low < high:
            middle = probe = (low + high) // 2
            while (
                probe < high
                and (unit := self.unit(probe))
                and (
                    unit[1] == FILLER_SIZE
                    or unit[1] <= 0
                    or (is_lost is not None and is_lost(unit[0]))
                )
            ):
                probe += 1
            if probe < high and unit is not None and is_before(unit[0]):
                low = probe + 1
            else:
                high = middle
        return low

    def begin_commit_log_offset(self) -> int:
        """Return the log offset where the first message begins; NO_LIMIT without messages."""
        for queue_offset in range(self.min_offset, self.next_offset):
            unit = self.unit(queue_offset)
            if unit is not None and unit[1] != FILLER_SIZE:
                return unit[0]
        return NO_LIMIT

    def end_commit_log_offset(self) -> int:
        """Return the log offset where the last message ends; 0 without messages."""
        for queue_offset in range(self.next_offset - 1, self.min_offset - 1, -1):
            unit = self.unit(queue_offset)
            if unit is not None and unit[1] != FILLER_SIZE:
                return unit[0] + unit[1]
        return 0

    def files_to_flush(self) -> list[StorageFile]:
        files = super().files_to_flush()
        return files if self.ext is None else files + self.ext.files_to_flush()

    def delete_before(self, commit_log_offset: int) -> int:
        """Delete files with only messages before an offset, never the last; return how many."""
        deleted = 0
        while len(self._files) > 1 and self._last_place_in_first_file() < commit_log_offset:
            self._delete_file(self._files[0])
            deleted += 1
        return deleted

    def _last_place_in_first_file(self) -> int:
        """Return the log offset of the last message in the first file; -1 when all are lost."""
        first, second = self._files[0] // UNIT_SIZE, self._files[1] // UNIT_SIZE
        if self.next_offset < second:
            # The second file was created in advance, and the first is still being written.
            return NO_LIMIT
        for queue_offset in range(second - 1, first - 1, -1):
            unit = self.unit(queue_offset)
            if unit is not None and unit[1] != FILLER_SIZE:
                return unit[0]
        return -1

    def correct_min_offset(self, commit_log_offset: int) -> None:
        """Set min_offset to the first message at or after a log offset."""
        queue_from = max(self.first_offset(), self.min_offset)
        self.min_offset = min(
            self.lower_bound(queue_from, lambda offset: offset < commit_log_offset),
            self.max_offset,
        )
        if self.ext is not None:
            unit = self.unit(self.min_offset)
            if unit is not None and unit[2] <= ADDRESS_MAX:
                self.ext.delete_before(unit[2])

    def close(self) -> None:
        super().close()
        if self.ext is not None:
            self.ext.close()

    def delete(self) -> None:
        super().delete()
        if self.ext is not None:
            self.ext.delete()

    def _set_end(self, next_offset: int) -> None:
        self.next_offset = self.max_offset = self.flushed_offset = next_offset
        self.write = None
        self.limit = -1

    def _delayed_code(self, store_timestamp: int, tags: str | None, properties: str) -> int:
        return store_timestamp + (self.delay_ms or 0)

    def _extended_code(self, store_timestamp: int, tags: str | None, properties: str) -> int:
        code = tags_code(tags) if self.delay_ms is None else store_timestamp + self.delay_ms
        return self.put_ext(code, store_timestamp, properties)


def _due_time_code(store_timestamp: int, tags: str | None, properties: str) -> int:
    return timer_code(decode_properties(properties).get(PROPERTY_TIMER_OUT_MS), tags)


def timer_code(out_ms: str | None, tags: str | None) -> int:
    """Return a message's due time, or the hash of its tags, which is always smaller."""
    if out_ms is not None and TIMER_CODE.fullmatch(out_ms):
        return int(out_ms)
    return tags_code(tags)


def _count_by_bisection(mapped: MappedFile) -> int:
    """Return the number of units before the zeros."""
    low, high = 0, mapped.size // UNIT_SIZE
    while low < high:
        middle = (low + high) // 2
        offset, size, _ = UNIT.unpack_from(mapped.buffer, middle * UNIT_SIZE)
        if offset >= 0 and size > 0:
            low = middle + 1
        else:
            high = middle
    return low


def _count_by_scan(mapped: MappedFile) -> int:
    """Return the number of units before the first hole."""
    units = np.frombuffer(mapped.buffer, UNITS, mapped.size // UNIT_SIZE)
    is_hole = (units["offset"] < 0) | (units["size"] <= 0)
    return int(is_hole.argmax()) if is_hole.any() else len(units)


def no_bit_map(topic: str, properties: str) -> bytes:
    """Return the bitmap of a message whose topic has no filters."""
    return b""


@lru_cache(1024)
def _shared(number: int) -> int:
    """Return one shared object for a number that many queues store."""
    return number
