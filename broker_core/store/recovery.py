"""Recovery: makes the files consistent at a start, after a clean or an unclean exit.

The log is authoritative. Recovery scans it from the offset up to which everything is durable,
compares each record with its ConsumeQueue, and writes a missing unit at the queue offset in the
record.

Unreadable bytes are of two kinds. After the last readable record they are a torn tail: the log is
cut there. Bytes before a readable record are damage: they are quarantined and skipped, never
truncated, and the messages in them keep their offsets in their queues.

Source: store/CommitLog.java recoverNormally, recoverAbnormally (4.9.8).
Differs: RocketMQ truncates at the first unreadable byte.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from broker_core.errors import CorruptRecordError
from broker_core.formats.record import (
    MAGIC_POSITION,
    MESSAGE_MAGIC_BYTES,
    MESSAGE_MAGIC_V2_BYTES,
    examine,
    find_magic,
)
from broker_core.message.sys_flag import (
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from broker_core.store.bulk_scan import BulkScan
from broker_core.store.index_replay import IndexReplay
from broker_core.store.mapped_file import first_not_zero
from broker_core.store.record_dispatch import RecordDispatch
from broker_core.store.results import DamagedRange, RecoveryReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.clock import Clock
    from broker_core.formats.checkpoint import Checkpoint
    from broker_core.store.commit_log import CommitLog
    from broker_core.store.consume_queues import ConsumeQueues
    from broker_core.store.deleted_topics import DeletedTopics
    from broker_core.store.index_service import IndexService
    from broker_core.store.mapped_file import MappedFile
    from broker_core.store.quarantine import Quarantine

logger = logging.getLogger(__name__)

PAGE_SIZE = 4096
BULK_RECORDS_MIN = 16
"""When a chunk yields fewer records, the next SINGLE_RECORDS are examined separately."""
SINGLE_RECORDS = 256
NO_UNIT_TYPES = (TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE)
STEADY_RECORDS = 3


class Recovery:
    """A single run over the store; not reusable.

    `run` is a plain call without sockets. It ends the threads that read and check ahead.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: IndexService | None,
        quarantine: Quarantine,
        deleted: DeletedTopics,
        checkpoint: Checkpoint,
        clock: Clock,
        *,
        clean_exit: bool,
        check_crc: bool,
        is_guarded: bool = False,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._quarantine = quarantine
        self._deleted = deleted
        self._checkpoint = checkpoint
        self._clock = clock
        self._clean_exit = clean_exit
        self._check_crc = check_crc
        self._is_guarded = check_crc and is_guarded
        self._replay: IndexReplay | None = None
        self._places = RecordDispatch(commit_log, queues, deleted, self._is_damaged)
        self._ext = self._places.ext
        self._next = self._places.next
        self._last_timestamps: list[int] = []
        self._damaged: list[DamagedRange] = []
        self._zero_from: int | None = None
        self._dispatched_end: int | None = None
        self._empty: Future[dict[int, int]] = Future()
        self._records = 0
        self.store_timestamp = 0

    def run(self, *, follows: bool = False) -> RecoveryReport:
        """Make the log, queues and index consistent; return the report.

        follows: the log belongs to a slave, whose master resends data that is cut.
        """
        started = self._clock.monotonic()
        self._queues.drop_deleted(self._deleted.deleted_before)
        scan_from, dispatch_from = self._starting_points()
        with ThreadPoolExecutor(1, "recover-tail") as thread:
            # The log usually ends where the queues say, followed by hundreds of megabytes of zeros:
            # the thread checks those while the records are scanned.
            likely_end = max((queue.end_commit_log_offset() for queue in self._queues), default=0)
            self._empty = thread.submit(_empty_tails, self._log.files, likely_end)
            self._dispatched_end = likely_end if follows else None
            if self._index is not None:
                self._replay = IndexReplay(self._index, dispatch_from, clean_exit=self._clean_exit)
                self._places.keys = self._replay
            end = self._scan(scan_from, dispatch_from)
        if self._replay is not None:
            self._replay.finish(end)
        dirty = self._log.continue_at(end, self._zero_from)
        if dirty:
            logger.warning("torn tail cut commit_log_offset=%d bytes=%d", end, dirty)
        self._finish_queues(dispatch_from, end)
        for found in self._damaged:
            logger.error("damaged range skipped from=%d to=%d reason=%s", *found)
        known = list(self._quarantine.ranges)
        self._quarantine.cut_at(end)
        self._quarantine.found_at_start = [
            found for found in self._damaged if self._quarantine.add(found)
        ]
        if self._quarantine.ranges != known:
            self._quarantine.save()
        return RecoveryReport(
            clean_exit=self._clean_exit,
            scanned_from=scan_from,
            scanned_to=end,
            records=self._records,
            min_commit_log_offset=self._log.min_offset,
            max_commit_log_offset=end,
            truncated_bytes=dirty,
            damaged=self._damaged,
            units_written=self._places.units_written,
            units_missing=self._places.units_missing,
            duration_ms=round((self._clock.monotonic() - started) * 1000),
        )

    def _starting_points(self) -> tuple[int, int]:
        """Return the offsets from which to scan, and from which to compare with the queues."""
        files = self._log.files
        if not files:
            return 0, 0
        if self._clean_exit:
            indexed_to = max((queue.end_commit_log_offset() for queue in self._queues), default=0)
            file = self._log.file_at(max(indexed_to - 1, self._log.min_offset))
            if file is not None and indexed_to > file.file_from_offset:
                return file.file_from_offset, indexed_to
            if indexed_to == 0:
                return self._log.min_offset, self._log.min_offset
            # The queues have more messages than the log: compare everything.
        for file in reversed(files):
            timestamp = self._first_timestamp(file)
            if timestamp is not None and 0 < timestamp <= self._checkpoint.min_timestamp:
                return file.file_from_offset, file.file_from_offset
        return self._log.min_offset, self._log.min_offset

    def _first_timestamp(self, file: MappedFile) -> int | None:
        try:
            head = examine(file.view, 0, file.size, file.file_from_offset, check_crc=True)
        except CorruptRecordError:
            return None
        return head.store_timestamp

    def _scan(self, scan_from: int, dispatch_from: int) -> int:
        """Scan the records; return where the log ends."""
        bulk = BulkScan(
            self._queues,
            self._replay,
            self._ext,
            self._deleted,
            self._next,
            self._places.mark,
            check_crc=self._check_crc,
            is_guarded=self._is_guarded,
        )
        try:
            return self._scan_with(bulk, scan_from, dispatch_from)
        finally:
            bulk.close()
            self._places.units_written += bulk.units_written

    def _scan_with(self, bulk: BulkScan, scan_from: int, dispatch_from: int) -> int:
        offset = scan_from
        singles = 0
        while True:
            file = self._log.file_at(offset)
            if file is None:
                return offset
            position = offset - file.file_from_offset
            if singles <= 0:
                stretch = bulk.advance(file, position, dispatch_from)
                if stretch is None or stretch.records < BULK_RECORDS_MIN:
                    singles = SINGLE_RECORDS
                if stretch is not None:
                    self._records += stretch.records
                    self._remember(stretch.store_timestamps)
                    offset += stretch.size
                    continue
            singles -= 1
            try:
                head = examine(
                    file.view,
                    position,
                    file.size,
                    offset,
                    check_crc=self._check_crc,
                    is_guarded=self._is_guarded,
                )
                if head.is_blank and head.size != file.size - position:
                    raise CorruptRecordError(
                        str(file.path), offset, "a blank record that does not end with the file"
                    )
            except CorruptRecordError as error:
                found = self._search(offset)
                if found is None:
                    found = self._end_by_units(offset, file)
                if found is None:
                    return offset
                self._zero_from = None
                self._damaged.append(DamagedRange(offset, found, f"{file.path}: {error.reason}"))
                offset = found
                continue
            if head.is_blank:
                following = self._log.file_at(offset + head.size)
                if following is None:
                    return offset
                offset = following.file_from_offset
                continue
            if (
                self._dispatched_end is not None
                and offset >= self._dispatched_end
                and self._places.recreated_topic_queue(file.view, head) is not None
            ):
                # The slave was killed before it recorded where the deleted topic ended.
                return offset
            self._records += 1
            self._remember([head.store_timestamp])
            if offset >= dispatch_from and not self._places.dispatch(file.view, head):
                self._damaged.append(
                    DamagedRange(
                        offset,
                        offset + head.size,
                        f"{file.path}: its header doesn't match the ConsumeQueue",
                    )
                )
            offset += head.size

    def _remember(self, store_timestamps: list[int]) -> None:
        last = self._last_timestamps
        last += store_timestamps
        del last[:-STEADY_RECORDS]
        self.store_timestamp = max(last)

    def _search(self, offset: int) -> int | None:
        """Return the offset of the first readable record after `offset`, or None."""
        file = self._log.file_at(offset)
        self._zero_from = offset + 1
        empty = self._empty.result()
        while file is not None:
            start = max(offset - file.file_from_offset + 1, 0)
            limit = empty.get(file.file_from_offset, file.size)
            for data_from, data_to in file.file.data_ranges(start, max(start, limit)):
                # Usually these are all zeros, up to a whole file.
                begin = first_not_zero(file, max(data_from, start), data_to)
                if begin == data_to:
                    continue
                if start:
                    self._zero_from = None
                begin = max(begin - MAGIC_POSITION - len(MESSAGE_MAGIC_BYTES), data_from, start)
                found = self._search_range(file, begin, data_to)
                if found is not None:
                    return found
            file = self._log.file_at(file.file_from_offset + file.size)
        return None

    def _search_range(self, file: MappedFile, start: int, end: int) -> int | None:
        found: list[int] = []
        for magic in (MESSAGE_MAGIC_BYTES, MESSAGE_MAGIC_V2_BYTES):
            at = find_magic(file.buffer, magic, start, end)
            while at >= 0:
                position = at - MAGIC_POSITION
                if position >= start and self._is_record(file, position):
                    found.append(file.file_from_offset + position)
                    break
                at = find_magic(file.buffer, magic, at + 1, end)
        return min(found, default=None)

    def _end_by_units(self, offset: int, file: MappedFile) -> int | None:
        """Return where the unreadable last record ends according to its unit, or None.

        A unit is written after its record, so the record was once complete. The exception is an
        empty last page, which happens if only the unit reached the disk before a power cut, or if a
        process was killed while it committed a buffer.
        """
        unit = self._places.unit_of(offset)
        if unit is None:
            return None
        size = unit[2]
        position = offset - file.file_from_offset
        if not 0 < size <= file.size - position:
            # The record is damaged; the start would never get past it.
            return None
        end = position + size
        last_page = bytes(file.view[max(position, (end - 1) // PAGE_SIZE * PAGE_SIZE) : end])
        if not self._clean_exit and last_page.count(0) == len(last_page):
            return None
        return offset + size

    def _is_record(self, file: MappedFile, position: int) -> bool:
        offset = file.file_from_offset + position
        try:
            head = examine(file.view, position, file.size, offset, check_crc=True)
        except CorruptRecordError:
            return False
        # A real broker doesn't zero the bytes it cuts, so stale records may follow. Other messages
        # have taken their queue offsets, or they are older than the records before them.
        if len(self._last_timestamps) == STEADY_RECORDS and head.store_timestamp < min(
            self._last_timestamps
        ):
            return False
        queue = self._places.queue_of(file.view, head)
        return queue is None or head.queue_offset >= self._next.get(queue, 0)

    def _is_damaged(self, commit_log_offset: int) -> bool:
        return any(
            known.offset_from <= commit_log_offset < known.offset_to for known in self._damaged
        ) or self._quarantine.contains(commit_log_offset)

    def _finish_queues(self, dispatch_from: int, end: int) -> None:
        """Cut units of messages that the log lacks; set the readable range of each queue."""
        known_to = min(dispatch_from, end)
        for queue in self._queues:
            next_offset = self._next.get(queue)
            if next_offset is None:
                next_offset = queue.lower_bound(queue.min_offset, lambda offset: offset < known_to)
            # Units of damaged messages after the last readable one keep their offsets.
            while (
                next_offset < queue.next_offset
                and (unit := queue.unit(next_offset)) is not None
                and unit[0] < end
                and self._is_damaged(unit[0])
            ):
                self._places.units_missing += 1
                if self._ext.keep(queue, next_offset):
                    self._places.units_written += 1
                    self._places.mark(queue)
                next_offset += 1
            is_cut = not self._clean_exit or next_offset != queue.next_offset
            if is_cut:
                queue.truncate(next_offset, thorough=queue in self._next)
            self._ext.finish(queue, is_cut=is_cut)
            queue.max_offset = queue.next_offset
            queue.correct_min_offset(self._log.min_offset)


def _empty_tails(files: Sequence[MappedFile], likely_end: int) -> dict[int, int]:
    """Return the files that are empty after an offset: the file's first offset -> position."""
    empty = {}
    for file in files:
        start = max(likely_end - file.file_from_offset, 0)
        ranges = file.file.data_ranges(start, file.size) if start < file.size else []
        if start < file.size and all(
            first_not_zero(file, max(data_from, start), data_to) == data_to
            for data_from, data_to in ranges
        ):
            empty[file.file_from_offset] = start
    return empty
