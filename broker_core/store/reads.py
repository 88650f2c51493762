"""Reading: by queue offset, by offset in the log, by time, by key.

Source: store/DefaultMessageStore.java getMessage, queryMessage; store/ConsumeQueue.java
getOffsetInQueueByTime (4.9.8), BoundaryType LOWER and UPPER (5.3.3).
"""

from __future__ import annotations

import asyncio
import functools
import mmap
import os
from typing import TYPE_CHECKING

from broker_core.errors import CorruptRecordError
from broker_core.formats.cq_ext_unit import ADDRESS_MAX
from broker_core.formats.cq_unit import FILLER_SIZE, UNIT, UNIT_SIZE
from broker_core.formats.record import HEAD_SIZE, RecordHead, examine, store_timestamp_of
from broker_core.message.names import KEY_SEPARATOR, PROPERTY_KEYS, PROPERTY_UNIQ_KEY
from broker_core.message.properties import PROPERTY_SEPARATOR
from broker_core.message.tags import unsigned_hash
from broker_core.store.results import FILTERED_UNITS_MAX, GetMessageResult, GetMessageStatus
from broker_core.store.transfer import LogWindow, is_resident, plan_transfer, transfer_limits
from broker_core.store.visibility import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from concurrent.futures import Executor

    from broker_core.clock import Clock
    from broker_core.config.store import StoreConfig
    from broker_core.formats.cq_ext_unit import CqExtUnit
    from broker_core.storage import StorageFile
    from broker_core.store.availability import Availability
    from broker_core.store.consume_queue import ConsumeQueue
    from broker_core.store.consume_queue_ext import ConsumeQueueExt
    from broker_core.store.mapped_file import MappedFile
    from broker_core.store.results import MessageFilter
    from broker_core.store.store_files import StoreFiles
    from broker_core.store.transfer import Run
    from broker_core.store.visibility import Visibility

FRESH_BYTES = 16 * 1024 * 1024
_SEPARATOR = PROPERTY_SEPARATOR.encode()
QUERIED_BYTES_MAX = 8 * 1024 * 1024
"""Limit of a query by key; checking the records takes a millisecond per megabyte."""
RECORDS_S = 0.005
RECORDS_PER_READING = 16
"""How many records a filter reads between checks of the clock, which limits a get; the next get
continues. The clock isn't read for each record, so that a busy machine can't end a get after its
first record.
"""
FRESH_UNITS = mmap.PAGESIZE // UNIT_SIZE
"""Number of units at a queue's end that count as just written."""
UNITS_MAX = 1024
"""Maximum number of units that a get looks at."""
UNITS_AHEAD_BYTES = 256 * 1024
LOG_AHEAD_BYTES = 2 * 1024 * 1024


class MessageReader:
    """Event loop only; data that must be read from the disk is read in the executor.

    Attributes:
        get_found_times, get_miss_times: gets that returned messages, and gets that didn't.
        transferred_messages: how many messages gets returned.
        memory_bytes: this much of the log's end is assumed to be in memory, unless the kernel says
            otherwise.
        fresh_bytes: this much of the log's end was just written; the kernel isn't asked about it.
        config, log, queues, quarantine, visibility: read by gets, including a get that isn't
            written in Python.
    """

    __slots__ = (
        "_availability",
        "_cold_reads",
        "_deleted",
        "_has_pool",
        "_index",
        "_monotonic",
        "config",
        "fresh_bytes",
        "get_found_times",
        "get_miss_times",
        "log",
        "memory_bytes",
        "quarantine",
        "queues",
        "transferred_messages",
        "visibility",
    )

    def __init__(
        self,
        config: StoreConfig,
        files: StoreFiles,
        visibility: Visibility,
        availability: Availability,
        cold_reads: Executor,
        clock: Clock,
    ) -> None:
        self._monotonic = clock.monotonic
        self.get_found_times = 0
        self.get_miss_times = 0
        self.transferred_messages = 0
        self.config = config
        self.log = files.log
        self.queues = files.queues
        self._index = files.index
        self.quarantine = files.quarantine
        self._deleted = files.deleted
        self._has_pool = files.pool is not None
        self.visibility = visibility
        self._availability = availability
        self._cold_reads = cold_reads
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.memory_bytes = memory_bytes * config.access_message_in_memory_max_ratio // 100
        self.fresh_bytes = FRESH_BYTES

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
        *,
        has_units: bool = False,
    ) -> GetMessageResult | Awaitable[GetMessageResult]:
        """Return messages from queue_offset on, as many as the transfer limits allow.

        Awaitable when they aren't in memory. `has_units`: their units were just read from the disk.
        """
        queue = self.queues.find(topic, queue_id)
        if queue is None or queue.max_offset == 0:
            self.get_miss_times += 1
            return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if not low <= queue_offset < high:
            self.get_miss_times += 1
            return self._out_of_range(topic, queue_offset, low, high)
        if high - queue_offset > FRESH_UNITS and not has_units:
            mapped, start, end = queue.place(queue_offset, UNITS_MAX)
            if mapped.file.resident(mapped.buffer, start, end - start) < end - start:
                asked = (topic, queue_id, queue_offset, max_msg_nums, message_filter)
                return self._read_units(mapped, start, asked)
        return self._collect(queue, queue_offset, max_msg_nums, message_filter)

    def _out_of_range(self, topic: str, queue_offset: int, low: int, high: int) -> GetMessageResult:
        """Return the result for an offset outside the queue.

        Differs: in a recreated topic, an offset past the end belongs to the previous topic, and
        the result points to the beginning. In RocketMQ it points to the end, and messages
        stored in the meantime are skipped.
        """
        if queue_offset < low:
            return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
        if queue_offset == high:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high)
        begin = low if self._deleted.deleted_before(topic) else high
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, begin, low, high)

    def _collect(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult | Awaitable[GetMessageResult]:
        log = self.log
        max_offset = log.max_offset
        by_unit = by_record = None
        units_max = FILTERED_UNITS_MAX
        if message_filter is None:
            units_max = max(units_max, max_msg_nums)
        else:
            units_max = message_filter.units_max
            by_unit = message_filter.by_tags_code
            by_record = _for_some_time(message_filter.by_record, self._monotonic)
            if queue.ext is not None:
                by_unit = functools.partial(_matches_extended, queue.ext, message_filter)
        units = queue.units(queue_offset, units_max)
        plan = plan_transfer(
            units,
            transfer_limits(self.config, max_msg_nums),
            LogWindow(
                log.min_offset,
                max_offset,
                self.visibility.read_limit,
                max_offset - self.memory_bytes,
                max_offset - self.fresh_bytes,
            ),
            log.file_at,
            self.quarantine.contains if self.quarantine.ranges else None,
            by_unit,
            by_record,
        )
        result = GetMessageResult(
            GetMessageStatus.FOUND, queue_offset + plan.scanned, queue.min_offset, queue.max_offset
        )
        if not plan.scanned:
            self.get_miss_times += 1
            return _nothing_yet(result, is_end=len(units) > 0)
        result.suggest_pulling_from_slave = max_offset - plan.last_offset > self.memory_bytes
        if not plan.message_count:
            self.get_miss_times += 1
            result.status = (
                GetMessageStatus.MESSAGE_WAS_REMOVING
                if plan.is_removing
                else GetMessageStatus.NO_MATCHED_MESSAGE
            )
            return result
        if plan.is_cold:
            parts = _pread_resident(plan.runs)
            if parts is None:
                return self._read_cold(result, plan.runs, message_filter)
            return self._add_parts(result, plan.runs, parts, message_filter)
        self.get_found_times += 1
        self.transferred_messages += plan.message_count
        result.message_count = plan.message_count
        result.byte_count = plan.byte_count
        result.buffers = [mapped.view[start : start + size] for mapped, start, size in plan.runs]
        return result

    async def _read_units(
        self,
        mapped: MappedFile,
        position: int,
        asked: tuple[str, int, int, int, MessageFilter | None],
    ) -> GetMessageResult:
        """Read units from the disk, with some of the units after them, then get their messages."""
        length = min(UNITS_AHEAD_BYTES, mapped.size - position)
        loop = asyncio.get_running_loop()
        read_ahead = mapped.file.read_ahead
        await loop.run_in_executor(self._cold_reads, read_ahead, mapped.buffer, position, length)
        # If the units have left memory again, the loop waits for the disk.
        result = self.get_message(*asked, has_units=True)
        return result if isinstance(result, GetMessageResult) else await result

    async def _read_cold(
        self,
        result: GetMessageResult,
        runs: list[Run],
        message_filter: MessageFilter | None,
    ) -> GetMessageResult:
        places = [(mapped.file, start, size) for mapped, start, size in runs]
        loop = asyncio.get_running_loop()
        parts = await loop.run_in_executor(self._cold_reads, _pread_all, places)
        return self._add_parts(result, runs, parts, message_filter)

    def _add_parts(
        self,
        result: GetMessageResult,
        runs: list[Run],
        parts: Sequence[bytes | bytearray],
        message_filter: MessageFilter | None,
    ) -> GetMessageResult:
        for (mapped, start, size), part in zip(runs, parts, strict=True):
            if len(part) == size:
                _add_records(result, part, mapped.file_from_offset + start, message_filter)
        if result.message_count:
            self.get_found_times += 1
            self.transferred_messages += result.message_count
        else:
            self.get_miss_times += 1
            result.status = GetMessageStatus.NO_MATCHED_MESSAGE
        return result

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first readable queue_offset; 0 for an unknown queue."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue_offset after the last readable message; 0 for an unknown queue."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def units(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Return up to count (commit_log_offset, size, tags_code) from queue_offset on.

        Empty when queue_offset isn't readable; fewer than count at the end of a file.
        """
        queue = self.queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return []
        return [
            (offset, size, code if code > ADDRESS_MAX else self._code(queue, offset, code))
            for offset, size, code in UNIT.iter_unpack(queue.units(queue_offset, count))
        ]

    def extended_units(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int, CqExtUnit | None]]:
        """Return `units` with their codes as stored, and the extension units they point to."""
        queue = self.queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return []
        return [
            (*unit, queue.ext_unit(unit[2]))
            for unit in UNIT.iter_unpack(queue.units(queue_offset, count))
        ]

    def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """Return the first message stored at or after a time; with upper the last one up to it.

        0 for an unknown queue.
        """
        queue = self.queues.find(topic, queue_id)
        if queue is None:
            return 0
        bound = timestamp_ms + 1 if upper else timestamp_ms
        found = queue.lower_bound(
            queue.min_offset,
            lambda offset: self._timestamp_at(offset) < bound,
            self.quarantine.contains,
        )
        found = min(found, queue.max_offset)
        return max(found - 1, queue.min_offset) if upper else found

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return when a message was stored, or -1 if it doesn't exist."""
        queue = self.queues.find(topic, queue_id)
        unit = None if queue is None else queue.unit(queue_offset)
        if (
            queue is None
            or unit is None
            or unit[1] == FILLER_SIZE
            or queue_offset >= queue.max_offset
        ):
            return -1
        if self.quarantine.contains(unit[0]):
            return -1
        return self._timestamp_at(unit[0])

    @property
    def earliest_message_timestamp(self) -> int:
        """When the oldest message was stored; -1 without messages."""
        offset = self.log.min_offset
        return -1 if self._examine(offset) is None else self._timestamp_at(offset)

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool | None:
        """Return whether a message is likely in memory, or None if it doesn't exist."""
        queue = self.queues.find(topic, queue_id)
        unit = None if queue is None else queue.unit(queue_offset)
        if unit is None:
            return None
        return self.log.max_offset - unit[0] <= self.memory_bytes

    def _code(self, queue: ConsumeQueue, commit_log_offset: int, code: int) -> int:
        """Return the tags code of a unit that stores an extension address; 0 when it is lost."""
        unit = queue.ext_unit(code)
        if unit is not None:
            return unit.tags_code
        if queue.delay_ms is None:
            return 0
        return self._timestamp_at(commit_log_offset) + queue.delay_ms

    def look_message(self, commit_log_offset: int) -> memoryview | None:
        """Return the record that begins at a log offset, or None.

        With a pool this may be a copy of an unflushed record, because a producer can end a
        transaction right after its half message was put.
        """
        found = self._examine(commit_log_offset)
        if found is not None:
            return found[0]
        if self._has_pool and self._availability.failure is None:
            return self._look_unflushed(commit_log_offset)
        return None

    def glance(self, commit_log_offset: int) -> tuple[memoryview, RecordHead] | None:
        """Return a record that is likely in memory, with its head, without verifying its checksum.

        None for a record that is deleted, not readable yet, or on the disk.
        """
        log = self.log
        file = log.file_at(commit_log_offset)
        behind = log.max_offset - commit_log_offset
        if file is None or behind > self.memory_bytes:
            return None
        position = commit_log_offset - file.file_from_offset
        if behind > self.fresh_bytes and not is_resident(file, position):
            return None
        end = min(log.max_offset, self.visibility.read_limit) - file.file_from_offset
        view = file.view[position : max(position, min(end, file.size))]
        try:
            head = examine(view, 0, len(view), commit_log_offset, check_crc=False)
        except CorruptRecordError:
            return None
        return None if head.is_blank else (view[: head.size], head)

    def query_message(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        """Return records of a topic that have a key, oldest first.

        Differs: the broker, not the client, leaves out messages whose keys only share the hash. If
        the records exceed QUERIED_BYTES_MAX, only the newest are returned.
        """
        if self._index is None:
            return []
        max_num = min(max_num, self.config.max_msgs_num_batch)
        seed = unsigned_hash(topic + "#")
        found = self._index.find(seed, key, max_num, begin_ms, end_ms)
        records: list[memoryview] = []
        size = 0
        for offset in sorted(set(found), reverse=True):
            # Check the key before the checksum: the hash may belong to another key.
            examined = self._examine(offset, check_crc=False)
            if examined is not None and _has_key(*examined, topic, key):
                size += examined[1].size
                if records and size > QUERIED_BYTES_MAX:
                    break
                if self._examine(offset) is not None:
                    records.append(examined[0])
        return records[::-1]

    def _look_unflushed(self, commit_log_offset: int) -> memoryview | None:
        view = self.log.written_view(commit_log_offset)
        if view is None:
            return None
        try:
            head = examine(view, 0, len(view), commit_log_offset, check_crc=True)
        except CorruptRecordError:
            return None
        return None if head.is_blank else memoryview(bytes(view[: head.size]))

    def _timestamp_at(self, commit_log_offset: int) -> int:
        if commit_log_offset >= self.visibility.read_limit:
            return NO_LIMIT  # later than all readable messages
        file = self.log.file_at(commit_log_offset)
        if file is None:
            return -1
        position = commit_log_offset - file.file_from_offset
        if position + HEAD_SIZE + UNIT_SIZE + 8 > file.size:
            return -1
        return store_timestamp_of(file.view, position)

    def _examine(
        self, commit_log_offset: int, *, check_crc: bool = True
    ) -> tuple[memoryview, RecordHead] | None:
        """Return a record and its head with positions in the record."""
        file = self.log.file_at(commit_log_offset)
        if file is None:
            return None
        position = commit_log_offset - file.file_from_offset
        limit = min(self.log.max_offset, self.visibility.read_limit) - file.file_from_offset
        limit = min(limit, file.size)
        if position >= limit:
            return None
        view = file.view[position:limit]
        try:
            head = examine(
                view,
                0,
                len(view),
                commit_log_offset,
                check_crc=check_crc,
                is_guarded=self.config.enabled_append_prop_crc,
            )
        except CorruptRecordError:
            return None
        return None if head.is_blank else (view[: head.size], head)


def _matches_extended(ext: ConsumeQueueExt, message_filter: MessageFilter, tags_code: int) -> bool:
    unit = ext.unit(tags_code) if tags_code <= ADDRESS_MAX else None
    if unit is None:
        return message_filter.by_tags_code(tags_code)
    return message_filter.by_ext_unit(unit)


def _nothing_yet(result: GetMessageResult, *, is_end: bool) -> GetMessageResult:
    if is_end:
        # Everything from here on is unflushed: for readers the queue ends here.
        result.status = GetMessageStatus.OFFSET_OVERFLOW_ONE
        result.max_offset = result.next_begin_offset
    else:
        result.status = GetMessageStatus.OFFSET_FOUND_NULL
        result.next_begin_offset = result.max_offset
    return result


def _pread_resident(runs: list[Run]) -> list[bytearray] | None:
    """Read runs far behind the log's end; None when one is not in memory."""
    parts = []
    for mapped, start, size in runs:
        part = mapped.file.pread_resident(start, size)
        if part is None:
            return None
        parts.append(part)
    return parts


def _pread_all(places: list[tuple[StorageFile, int, int]]) -> list[bytes]:
    file, offset, length = places[-1]
    # A reader of cold data usually continues past it.
    file.will_need(offset + length, LOG_AHEAD_BYTES)
    return [file.pread(offset, length) for file, offset, length in places]


def _add_records(
    result: GetMessageResult,
    part: bytes | bytearray,
    commit_log_offset: int,
    message_filter: MessageFilter | None,
) -> None:
    """Add the wanted records from a run of adjacent records to a result."""
    view = memoryview(part)
    position = 0
    while position < len(view):
        try:
            head = examine(view, position, len(view), commit_log_offset + position, check_crc=False)
        except CorruptRecordError:
            return
        record = view[position : position + head.size]
        if message_filter is None or message_filter.by_record(record):
            result.buffers.append(record)
            result.message_count += 1
            result.byte_count += head.size
        position += head.size


def _has_key(record: memoryview, head: RecordHead, topic: str, key: str) -> bool:
    if record[head.topic_from : head.topic_to] != topic.encode():
        return False
    # Search the bytes: decoding many properties takes a millisecond.
    data = b"".join((_SEPARATOR, record[head.properties_from : head.properties_to], _SEPARATOR))
    wanted = key.encode()
    if _last_value(data, PROPERTY_UNIQ_KEY.encode()) == wanted:
        return True
    keys = _last_value(data, PROPERTY_KEYS.encode())
    return KEY_SEPARATOR not in key and b" %b " % wanted in b" %b " % keys


def _last_value(data: bytes, name: bytes) -> bytes:
    """Return the last non-empty value of a name, or b"" without one."""
    needle = b"\x02%b\x01" % name
    at = data.rfind(needle)
    while at >= 0:
        start = at + len(needle)
        end = data.index(_SEPARATOR, start)
        if end > start:
            return data[start:end]
        # Include this separator in the search, because it also ends the property before it.
        at = data.rfind(needle, 0, at + 1)
    return b""


def _for_some_time(
    by_record: Callable[[memoryview], bool], monotonic: Callable[[], float]
) -> Callable[[memoryview], bool | None]:
    """Limit a filter to RECORDS_S: afterwards it returns None."""
    until = monotonic() + RECORDS_S
    count = 0

    def decide(record: memoryview) -> bool | None:
        nonlocal count
        count += 1
        if not count % RECORDS_PER_READING and monotonic() >= until:
            return None
        return by_record(record)

    return decide
