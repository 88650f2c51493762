"""Check that each index entry is in its slot's chain and leads to a message with its key."""

from __future__ import annotations

import mmap
import os
import re
from typing import TYPE_CHECKING

from broker_core.formats.index_entry import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE, SLOT, SLOT_SIZE
from broker_core.verify.records import index_hash

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.verify.log import Log
    from broker_core.verify.report import Report

SLOT_NUM_DEFAULT = 5_000_000


class IndexCheck:
    """Checks the index files, which don't state their numbers of slots and entries."""

    def __init__(self, root: Path, log: Log, report: Report) -> None:
        self._root = root / "index"
        self._log = log
        self._report = report

    def check(self) -> None:
        """Follow all chains of all files."""
        entries = files = 0
        root = self._root
        for path in sorted(root.iterdir()) if root.is_dir() else ():
            if not re.fullmatch(r"[0-9]{17}", path.name):
                self._report.ignore(path)
                continue
            if not path.is_file():
                self._report.add(path, "is not a file")
                continue
            files += 1
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < HEADER_SIZE:
                    if self._report.clean_exit:
                        self._report.add(path, "is too short for an index file")
                    continue
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            entries += self._check_file(path, data)
            data.close()
        self._report.index = {"files": files, "entries": entries}

    def _check_file(self, path: Path, data: mmap.mmap) -> int:
        """Check one file; return its number of entries."""
        used_slots: int
        count: int
        *_, used_slots, count = HEADER.unpack_from(data, 0)
        slot_num = _slot_num(data, count)
        if slot_num is None:
            if count > 1:
                self._report.add(path, "no number of slots fits the entries")
            return 0
        entries_from = HEADER_SIZE + slot_num * SLOT_SIZE
        seen = bytearray(count)
        used = 0
        for slot in range(slot_num):
            (number,) = SLOT.unpack_from(data, HEADER_SIZE + slot * SLOT_SIZE)
            while number >= count and not self._report.clean_exit:
                # Added after the header was read: a chain only grows at its head.
                self._report.ahead["entries"] += 1
                *_, number = ENTRY.unpack_from(data, entries_from + number * ENTRY_SIZE)
            used += 0 < number < count
            while 0 < number < count:
                hash_, offset, _, previous = ENTRY.unpack_from(
                    data, entries_from + number * ENTRY_SIZE
                )
                if seen[number] or hash_ % slot_num != slot or previous >= number:
                    self._report.add(path, f"entry {number} is in the wrong chain")
                    break
                seen[number] = 1
                self._check_entry(path, number, hash_, offset)
                number = previous
        if used != used_slots:
            self._report.add(path, f"{used} slots are in use, the header says {used_slots}")
        if seen.count(1) != max(count - 1, 0):
            self._report.add(path, f"only {seen.count(1)} of {count - 1} entries are in a chain")
        return max(count - 1, 0)

    def _check_entry(self, path: Path, number: int, hash_: int, offset: int) -> None:
        if offset < self._log.begin:
            return
        if offset >= self._log.end and not self._report.clean_exit:
            self._report.ahead["entries"] += 1
            return
        found = self._log.record_at(offset)
        if found is None:
            self._report.add(path, f"entry {number} points at {offset}, where no record begins")
            return
        keys = [found.properties.get("UNIQ_KEY", ""), *found.properties.get("KEYS", "").split(" ")]
        if hash_ not in {index_hash(f"{found.topic}#{key}") for key in keys if key}:
            self._report.add(path, f"the hash of entry {number} matches no key of its message")


def _slot_num(data: mmap.mmap, count: int) -> int | None:
    """Return the number of slots that fits the file's size and its first and last entries."""
    if count <= 1:
        return None
    likely: int | None = None
    _, _, _, end_offset, _, _ = HEADER.unpack_from(data, 0)
    for slot_num in (SLOT_NUM_DEFAULT, *range(1, (len(data) - HEADER_SIZE) // SLOT_SIZE)):
        rest = len(data) - HEADER_SIZE - slot_num * SLOT_SIZE
        if rest < ENTRY_SIZE * 2 or rest % ENTRY_SIZE:
            continue
        start = HEADER_SIZE + slot_num * SLOT_SIZE
        hash_, _, _, previous = ENTRY.unpack_from(data, start + ENTRY_SIZE)
        empty = data[start : start + ENTRY_SIZE] == bytes(ENTRY_SIZE)
        if not empty or previous != 0 or hash_ < 0:
            continue
        number: int
        (number,) = SLOT.unpack_from(data, HEADER_SIZE + hash_ % slot_num * SLOT_SIZE)
        while 1 < number < count:
            *_, number = ENTRY.unpack_from(data, start + number * ENTRY_SIZE)
        if number == 1:
            last = start + (count - 1) * ENTRY_SIZE
            hash_, offset, _, _ = ENTRY.unpack_from(data, min(last, len(data) - ENTRY_SIZE))
            slot = HEADER_SIZE + abs(hash_) % slot_num * SLOT_SIZE
            # Unused slots look like an entry of hash 0 at the beginning of the log.
            is_first = any(data[start + ENTRY_SIZE : start + 2 * ENTRY_SIZE])
            is_last = offset == end_offset and SLOT.unpack_from(data, slot) == (count - 1,)
            if is_first and is_last:
                return int(slot_num)
            likely = likely or int(slot_num)
    return likely
