"""One IndexFile: from keys to offsets in the CommitLog.

Source: store/index/IndexFile.java (4.9.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.formats.index_entry import (
    ENTRY,
    ENTRY_SIZE,
    HEADER,
    HEADER_SIZE,
    SECONDS_MAX,
    SLOT,
    SLOT_SIZE,
)
from broker_core.store.mapped_file import MappedFile

if TYPE_CHECKING:
    from broker_core.storage import StorageFile

ALLOCATE_ENTRIES = 65_536


class IndexFile:
    """Event loop only.

    Attributes:
        begin_timestamp, end_timestamp: store timestamps of the first and last entry.
        begin_phy_offset, end_phy_offset: their offsets in the log.
        count: number of the next entry; entries are numbered from 1.
        ready: entries below this number have their blocks.
    """

    __slots__ = (
        "_entries_from",
        "_mapped",
        "_slot_num",
        "begin_phy_offset",
        "begin_timestamp",
        "count",
        "end_phy_offset",
        "end_timestamp",
        "entry_num",
        "ready",
        "used_slots",
    )

    def __init__(self, file: StorageFile, slot_num: int, entry_num: int) -> None:
        self._slot_num = slot_num
        self._entries_from = HEADER_SIZE + slot_num * SLOT_SIZE
        self.entry_num = entry_num
        self.count: int
        self.used_slots: int
        self.begin_timestamp: int
        self.end_timestamp: int
        self.begin_phy_offset: int
        self.end_phy_offset: int
        self._mapped = MappedFile(file, 0, file.size)
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.used_slots,
            count,
        ) = HEADER.unpack_from(self._mapped.buffer, 0)
        self.count = min(max(count, 1), entry_num)
        self.ready = 0

    @property
    def file(self) -> StorageFile:
        """The open file."""
        return self._mapped.file

    @property
    def is_full(self) -> bool:
        """Whether no entry can be added."""
        return self.count >= self.entry_num

    def continue_from(self, previous: IndexFile) -> None:
        """Take over the end of the file before, as RocketMQ does in a new file's header."""
        self.begin_timestamp = self.end_timestamp = previous.end_timestamp
        self.begin_phy_offset = self.end_phy_offset = previous.end_phy_offset
        self._write_header()

    def make_room(self, entries: int) -> None:
        """Reserve blocks for more entries; for the slots, too, when the file is new.

        Raises:
            OSError: there are none.
        """
        if self.ready == 0:
            self.file.allocate(0, self._entries_from)
        ready = min(self.count + max(entries, ALLOCATE_ENTRIES), self.entry_num)
        start = self._entries_from + self.count * ENTRY_SIZE
        length = (ready - self.count) * ENTRY_SIZE
        if length > 0:
            self.file.allocate(start, length)
        self.ready = ready

    def put(self, key_hash: int, commit_log_offset: int, store_timestamp: int) -> None:
        """Add an entry. The caller has checked that there is room."""
        buffer = self._mapped.buffer
        number = self.count
        slot = HEADER_SIZE + key_hash % self._slot_num * SLOT_SIZE
        (previous,) = SLOT.unpack_from(buffer, slot)
        if previous <= 0 or previous >= number:
            previous = 0
            self.used_slots += 1
        begin = self.begin_timestamp
        seconds = (store_timestamp - begin) // 1000 if begin > 0 else 0
        if not 0 <= seconds <= SECONDS_MAX:
            seconds = 0 if seconds < 0 else SECONDS_MAX
        ENTRY.pack_into(
            buffer,
            self._entries_from + number * ENTRY_SIZE,
            key_hash,
            commit_log_offset,
            seconds,
            previous,
        )
        SLOT.pack_into(buffer, slot, number)
        if number <= 1:
            self.begin_timestamp = store_timestamp
            self.begin_phy_offset = commit_log_offset
        self.count = number + 1
        self.end_timestamp = store_timestamp
        self.end_phy_offset = commit_log_offset
        HEADER.pack_into(
            buffer,
            0,
            self.begin_timestamp,
            store_timestamp,
            self.begin_phy_offset,
            commit_log_offset,
            self.used_slots,
            number + 1,
        )

    def find(self, key_hash: int, begin_ms: int, end_ms: int, max_num: int) -> list[int]:
        """Return offsets of messages whose keys have this hash, newest first."""
        buffer = self._mapped.buffer
        (number,) = SLOT.unpack_from(buffer, HEADER_SIZE + key_hash % self._slot_num * SLOT_SIZE)
        found: list[int] = []
        while 0 < number < self.count and len(found) < max_num:
            hash_, offset, seconds, previous = ENTRY.unpack_from(
                buffer, self._entries_from + number * ENTRY_SIZE
            )
            timestamp = self.begin_timestamp + seconds * 1000
            if seconds < 0 or timestamp < begin_ms - 1000:
                break
            # Entries know seconds only: a message stored within the first one must be found as
            # well.
            if hash_ == key_hash and begin_ms - 1000 < timestamp + 1000 and timestamp <= end_ms:
                found.append(offset)
            if previous >= number:
                break
            number = previous
        return found

    def covers(self, begin_ms: int, end_ms: int) -> bool:
        """Tell whether messages of [begin_ms, end_ms] may be in this file."""
        return self.begin_timestamp <= end_ms and self.end_timestamp >= begin_ms

    def cut_from(self, commit_log_offset: int) -> None:
        """Forget the entries of messages at or behind an offset."""
        low, high = 1, self.count
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[1] < commit_log_offset:
                low = middle + 1
            else:
                high = middle
        # Newest first, each entry is the head of its chain: unless the power was cut while pages
        # were on their way to the disk.
        for number in range(self.count - 1, low - 1, -1):
            hash_, _, _, previous = self._entry(number)
            slot = HEADER_SIZE + hash_ % self._slot_num * SLOT_SIZE
            if hash_ < 0 or SLOT.unpack_from(self._mapped.buffer, slot) != (number,):
                self._rebuild(low)
                return
            SLOT.pack_into(self._mapped.buffer, slot, previous)
            self.used_slots -= previous == 0
        self._end_at(low)

    def _rebuild(self, count: int) -> None:
        """Make all chains anew from the entries below count."""
        view = self._mapped.view
        view[HEADER_SIZE : self._entries_from] = bytes(self._entries_from - HEADER_SIZE)
        slots: dict[int, int] = {}
        for number in range(1, count):
            hash_, offset, seconds, _ = self._entry(number)
            if hash_ < 0 or offset < self.begin_phy_offset:
                count = number
                break
            slot = hash_ % self._slot_num
            previous = slots.get(slot, 0)
            self._set_entry(number, hash_, offset, seconds, previous)
            slots[slot] = number
        for slot, number in slots.items():
            SLOT.pack_into(self._mapped.buffer, HEADER_SIZE + slot * SLOT_SIZE, number)
        self.used_slots = len(slots)
        self._end_at(count)

    def _end_at(self, count: int) -> None:
        """Make count the number of the next entry; zero what stood there and behind."""
        stale_from = self._entries_from + count * ENTRY_SIZE
        stale_to = self._entries_from + self.count * ENTRY_SIZE
        self._mapped.view[stale_from:stale_to] = bytes(max(stale_to - stale_from, 0))
        self.count = count
        self.ready = 0
        if count > 1:
            _, self.end_phy_offset, seconds, _ = self._entry(count - 1)
            self.end_timestamp = min(
                self.end_timestamp, self.begin_timestamp + seconds * 1000 + 999
            )
        self._write_header()

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        return ENTRY.unpack_from(self._mapped.buffer, self._entries_from + number * ENTRY_SIZE)

    def _set_entry(self, number: int, hash_: int, offset: int, seconds: int, previous: int) -> None:
        position = self._entries_from + number * ENTRY_SIZE
        ENTRY.pack_into(self._mapped.buffer, position, hash_, offset, seconds, previous)

    def close(self) -> None:
        """Give back the descriptor."""
        self._mapped.close()

    def _write_header(self) -> None:
        HEADER.pack_into(
            self._mapped.buffer,
            0,
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.used_slots,
            self.count,
        )
