"""One IndexFile, which maps keys to offsets in the CommitLog.

Source: store/index/IndexFile.java (4.9.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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
    from numpy.typing import NDArray

    from broker_core.formats.index_entry import Waiting, WriteEntries
    from broker_core.storage import StorageFile

ALLOCATE_ENTRIES = 65_536
ENTRIES = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])

assert ENTRIES.itemsize == ENTRY_SIZE


class IndexFile:
    """Event loop only.

    Attributes:
        begin_timestamp, end_timestamp: store timestamps of the first and last entry.
        begin_phy_offset, end_phy_offset: their offsets in the log.
        count: number of the next entry; entries are numbered from 1.
        ready: blocks are reserved for entries below this number.
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
            used_slots,
            count,
        ) = HEADER.unpack_from(self._mapped.buffer, 0)
        self.used_slots = min(max(used_slots, 0), slot_num)
        self.count = min(max(count, 1), entry_num)
        self.ready = 0

    @property
    def file(self) -> StorageFile:
        """The open file."""
        return self._mapped.file

    @property
    def is_full(self) -> bool:
        """Whether the file has no room for another entry."""
        return self.count >= self.entry_num

    def continue_from(self, previous: IndexFile) -> None:
        """Copy the end of the previous file, as RocketMQ does in a new file's header."""
        self.begin_timestamp = self.end_timestamp = previous.end_timestamp
        self.begin_phy_offset = self.end_phy_offset = previous.end_phy_offset
        self._write_header()

    def make_room(self, entries: int) -> None:
        """Reserve blocks for more entries, and in a new file for the slots.

        Raises:
            OSError: there is no space.
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

    def put_all(
        self, key_hashes: NDArray[np.int64], offsets: NDArray[np.int64], times: NDArray[np.int64]
    ) -> None:
        """Add entries in this order, as `put` would; the caller has checked that there is room."""
        count = len(key_hashes)
        number = self.count
        chain = key_hashes % self._slot_num
        order = np.argsort(chain, kind="stable")
        ordered = chain[order]
        # Whether an entry continues the chain of the previous entry in this order.
        goes_on = np.zeros(count + 1, bool)
        np.equal(ordered[1:], ordered[:-1], out=goes_on[1:-1])
        begins = order[~goes_on[:-1]]
        ends = order[~goes_on[1:]]
        slots = self._slots()
        heads = slots[chain[begins]]
        heads[(heads < 0) | (heads >= number)] = 0
        previous = np.empty(count, np.int64)
        previous[begins] = heads
        if len(begins) < count:
            previous[order[goes_on[:-1]]] = order[goes_on[1:]] + number
        begin = self.begin_timestamp
        if number <= 1:
            self.begin_timestamp = int(times[0])
            self.begin_phy_offset = int(offsets[0])
        seconds = (times - self.begin_timestamp) // 1000
        if number <= 1 and begin > 0:
            # The first entry of a file counts from the end of the previous file.
            seconds[0] = (times[0] - begin) // 1000
        seconds = np.minimum(np.maximum(seconds, 0), SECONDS_MAX)
        entries = self.entries(number, number + count)
        entries["hash"] = key_hashes
        entries["offset"] = offsets
        entries["seconds"] = seconds
        entries["previous"] = previous
        slots[chain[ends]] = ends + number
        self.used_slots += int((heads == 0).sum())
        self.count = number + count
        self.end_timestamp = int(times[-1])
        self.end_phy_offset = int(offsets[-1])
        self._write_header()

    def put_waiting(self, write_entries: WriteEntries, waiting: list[Waiting]) -> bool:
        """Add entries of messages with the native code, as many as fit.

        Returns False, without adding any, when it can't read a key.
        """
        number = self.count
        found = write_entries(
            self._mapped.buffer,
            waiting,
            self._slot_num,
            self.entry_num,
            number,
            self.begin_timestamp,
        )
        if found is None:
            return False
        written, new_slots, first, last = found
        if written:
            if number <= 1:
                *_, self.begin_phy_offset, self.begin_timestamp = waiting[first]
            *_, self.end_phy_offset, self.end_timestamp = waiting[last]
            self.used_slots += new_slots
            self.count = number + written
            self._write_header()
        return True

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
            # Entries have one-second resolution: include a message stored within the first second.
            if hash_ == key_hash and begin_ms - 1000 < timestamp + 1000 and timestamp <= end_ms:
                found.append(offset)
            if previous >= number:
                break
            number = previous
        return found

    def covers(self, begin_ms: int, end_ms: int) -> bool:
        """Return whether messages of [begin_ms, end_ms] may be in this file."""
        return self.begin_timestamp <= end_ms and self.end_timestamp >= begin_ms

    def first_number(self, commit_log_offset: int) -> int:
        """Return the number of the first entry of a message at or after an offset.

        Entries that are out of order count as such, because their position is unknown.
        """
        offsets = self.entries(1, self.count)["offset"]
        is_wrong = offsets[1:] < offsets[:-1]
        low, high = 1, 2 + int(is_wrong.argmax()) if is_wrong.any() else self.count
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[1] < commit_log_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def entries(self, number_from: int, number_to: int) -> NDArray[np.void]:
        """Return entries as an array over the mapping."""
        start = self._entries_from + number_from * ENTRY_SIZE
        return np.frombuffer(self._mapped.buffer, ENTRIES, number_to - number_from, start)

    def has_intact_chains(self, number_from: int) -> bool:
        """Return whether the entries from a number on, newest first, are the heads of their chains.

        They are, unless the power was cut while pages were being written to the disk.
        """
        entries = self.entries(number_from, self.count)
        hashes = entries["hash"].astype(np.int64)
        slots = self._slots()
        if (hashes < 0).any() or (slots >= self.count).any():
            return False
        if not len(entries):
            return bool((slots < number_from).all())
        # Each entry points to an older one. If no slot has two heads, and each entry is a head or
        # has one successor in its own chain, then all are in the right chain in the right order.
        chain = hashes % self._slot_num
        numbers = np.arange(number_from, self.count)
        previous = entries["previous"].astype(np.int64)
        goes_on = previous >= number_from
        named = previous[goes_on] - number_from
        if (previous < 0).any() or (previous >= numbers).any():
            return False
        times = np.bincount(named, minlength=len(numbers))
        if times.max() > 1 or (chain[named] != chain[goes_on]).any():
            return False
        is_head = times == 0
        # No other chain may have a head among these entries.
        return bool(
            (slots[chain[is_head]] == numbers[is_head]).all()
            and int((slots >= number_from).sum()) == int(is_head.sum())
        )

    def cut_from(self, commit_log_offset: int) -> None:
        """Remove the entries of messages at or after an offset."""
        low = self.first_number(commit_log_offset)
        if not self.has_intact_chains(low):
            self._rebuild(low)
            return
        entries = self.entries(low, self.count)
        chain, first = np.unique(entries["hash"].astype(np.int64) % self._slot_num, True)
        heads = entries["previous"][first]
        self._slots()[chain] = heads
        self.used_slots -= int((heads == 0).sum())
        self._end_at(low)

    def _slots(self) -> NDArray[np.int32]:
        slots: NDArray[np.int32] = np.frombuffer(
            self._mapped.buffer, ">i4", self._slot_num, HEADER_SIZE
        )
        return slots

    def _rebuild(self, count: int) -> None:
        """Rebuild all chains from the entries below count."""
        entries = self.entries(1, count)
        is_wrong = (entries["hash"] < 0) | (entries["offset"] < self.begin_phy_offset)
        if is_wrong.any():
            count = 1 + int(is_wrong.argmax())
            entries = self.entries(1, count)
        chain = entries["hash"].astype(np.int64) % self._slot_num
        order = np.argsort(chain, kind="stable")
        ordered = chain[order]
        goes_on = ordered[1:] == ordered[:-1]
        previous = np.zeros(len(entries), np.int64)
        previous[order[1:][goes_on]] = order[:-1][goes_on] + 1
        entries["previous"] = previous
        slots = self._slots()
        slots[:] = 0
        ends = np.append(~goes_on, True) if len(entries) else np.zeros(0, bool)
        slots[ordered[ends]] = order[ends] + 1
        self.used_slots = int(ends.sum())
        self._end_at(count)

    def _end_at(self, count: int) -> None:
        """Make count the number of the next entry; zero that entry and all after it."""
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

    def close(self) -> None:
        """Close the descriptor."""
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
