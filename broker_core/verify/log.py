"""Read the CommitLog as a sequence of records, blank records and damaged ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.formats.record import (
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_BYTES,
    MESSAGE_MAGIC_V2,
    find_magic,
)
from broker_core.verify.files import Files
from broker_core.verify.records import Record, integer, parse

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

    from broker_core.verify.queues import QueueCheck
    from broker_core.verify.report import Report


class Log:
    """The files of the CommitLog.

    Attributes:
        end: after `check`, the commit_log_offset at which the last record ends.
    """

    def __init__(self, directory: Path, report: Report) -> None:
        self._files = Files(directory, report)
        self._report = report
        self._limit = self._find_limit()
        self.begin = min(self._files.maps, default=0)
        self.end = self.begin
        self.damaged: list[tuple[int, int]] = []

    def record_at(self, offset: int) -> Record | None:
        """Return the record that starts at an offset, or None."""
        place = self._files.at(offset)
        found = None if place is None else self._read(place[0], place[1], offset)
        return found if isinstance(found, Record) else None

    def check(self, queues: QueueCheck) -> None:
        """Read every record and check its position in its queue."""
        records = blanks = size = 0
        damaged: list[dict[str, object]] = []
        first_timestamp = last_timestamp = 0
        offset = self.begin
        while offset < self._limit and (place := self._files.at(offset)) is not None:
            data, position, path = place
            found = self._read(data, position, offset)
            if isinstance(found, str):
                following = self._find_next(offset + 1)
                if following is None:
                    break
                self.damaged.append((offset, following))
                damaged.append({"from": offset, "to": following, "reason": found})
                self._report.add(path, f"damaged from {offset} to {following}: {found}")
                offset = following
            elif isinstance(found, int):
                blanks += 1
                offset += found
                self.end = offset
            else:
                records += 1
                size += found.size
                first_timestamp = first_timestamp or found.store_timestamp
                if found.store_timestamp < last_timestamp:
                    self._report.add(path, f"the record at {offset} is older than the one before")
                last_timestamp = max(last_timestamp, found.store_timestamp)
                queues.check_place(found, path)
                offset += found.size
                self.end = offset
        self._check_tail()
        self._report.commit_log = {
            "files": len(self._files.maps),
            "fileSize": self._files.size,
            "minOffset": self.begin,
            "maxOffset": self.end,
            "records": records,
            "recordBytes": size,
            "blankRecords": blanks,
            "firstStoreTimestamp": first_timestamp,
            "lastStoreTimestamp": last_timestamp,
            "damaged": damaged,
        }

    def _check_tail(self) -> None:
        """Check for zeros after the last record; anything else may mean that its end is damaged."""
        place = self._files.at(self.end)
        if place is None or not self._report.clean_exit:
            return
        data, position, path = place
        if any(data[position : position + 8]):
            self._report.add(path, f"a torn record at {position}")

    def _find_limit(self) -> int:
        """Return the current end of the last readable record."""
        offset = min(self._files.maps, default=0)
        while (place := self._files.at(offset)) is not None:
            data, position, _ = place
            size = integer(data, position, 4) if len(data) - position >= 8 else 0
            magic = integer(data, position + 4, 4) if size else 0
            if magic not in {MESSAGE_MAGIC, MESSAGE_MAGIC_V2, BLANK_MAGIC} or size <= 0:
                following = self._find_next(offset + 1)
                if following is None:
                    return offset
                offset = following
            else:
                offset += size
        return offset

    def _read(self, data: mmap.mmap | bytes, position: int, offset: int) -> Record | int | str:
        """Return a record, the size of a blank record, or the text of a problem."""
        left = len(data) - position
        if left < 8:
            return "the file ends without a blank record"
        size = integer(data, position, 4)
        magic = integer(data, position + 4, 4)
        if magic == BLANK_MAGIC:
            return size if size == left else f"a blank record of {size} bytes where {left} are left"
        if magic not in {MESSAGE_MAGIC, MESSAGE_MAGIC_V2}:
            return "nothing written" if size == magic == 0 else f"magic code {magic}"
        if not 91 <= size <= left:
            return f"size {size} does not fit"
        record = bytes(data[position : position + size])
        try:
            return parse(record, offset, 1 if magic == MESSAGE_MAGIC else 2)
        except (ValueError, IndexError) as error:
            return str(error)

    def _find_next(self, offset: int) -> int | None:
        while (place := self._files.at(offset)) is not None:
            data, position, _ = place
            start = offset - position
            at = find_magic(data, MESSAGE_MAGIC_BYTES, position, len(data))
            while at >= 0:
                if at >= 4 and isinstance(self._read(data, at - 4, start + at - 4), Record):
                    return start + at - 4
                at = find_magic(data, MESSAGE_MAGIC_BYTES, at + 1, len(data))
            offset = start + self._files.size
        return None
