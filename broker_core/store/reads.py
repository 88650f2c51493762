"""Reading: by queue offset, by offset in the log, by time, by key.

Source: store/DefaultMessageStore.java getMessage, queryMessage; store/ConsumeQueue.java
getOffsetInQueueByTime (4.9.8), BoundaryType LOWER and UPPER (5.3.3).
"""

from __future__ import annotations

import asyncio
import functools
import struct
from typing import TYPE_CHECKING

from broker_core.errors import CorruptRecordError
from broker_core.formats.cq_ext_unit import ADDRESS_MAX
from broker_core.formats.cq_unit import FILLER_SIZE, UNIT, UNIT_SIZE
from broker_core.formats.record import HEAD_SIZE, RecordHead, examine, store_timestamp_of
from broker_core.message import properties as message_properties
from broker_core.message.names import KEY_SEPARATOR, PROPERTY_KEYS, PROPERTY_UNIQ_KEY
from broker_core.message.tags import unsigned_hash
from broker_core.store.results import FILTERED_UNITS_MAX, GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor

    from broker_core.config import StoreConfig
    from broker_core.storage import StorageFile
    from broker_core.store.commit_log import CommitLog
    from broker_core.store.consume_queue import ConsumeQueue
    from broker_core.store.consume_queue_ext import ConsumeQueueExt
    from broker_core.store.consume_queues import ConsumeQueues
    from broker_core.store.index_service import IndexService
    from broker_core.store.mapped_file import MappedFile
    from broker_core.store.quarantine import Quarantine
    from broker_core.store.results import MessageFilter

    Run = tuple[MappedFile, int, int]
    """Records side by side: their file, their place in it, their size."""

NO_LIMIT = 1 << 62
_SIZE = struct.Struct(">i")


class MessageReader:
    """Event loop only; cold data is read in the executor.

    Attributes:
        read_limit: nothing behind this offset of the log is shown.
    """

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: IndexService | None,
        quarantine: Quarantine,
        cold_reads: Executor,
        memory_bytes: int,
    ) -> None:
        self.read_limit = NO_LIMIT
        self.get_found_times = 0
        self.get_miss_times = 0
        self.transferred_messages = 0
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._quarantine = quarantine
        self._cold_reads = cold_reads
        self._memory_bytes = memory_bytes * config.access_message_in_memory_max_ratio // 100

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult | Awaitable[GetMessageResult]:
        """Return messages from queue_offset on, as many as the transfer limits allow.

        Awaitable when they are likely not in memory.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue.max_offset == 0:
            self.get_miss_times += 1
            return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if not low <= queue_offset < high:
            self.get_miss_times += 1
            return _outside(queue_offset, low, high)
        return self._collect(queue, queue_offset, max_msg_nums, message_filter)

    def _collect(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult | Awaitable[GetMessageResult]:
        config = self._config
        log = self._log
        quarantine = self._quarantine if self._quarantine.ranges else None
        max_phy = log.max_offset
        min_phy = log.min_offset
        disk_before = max_phy - self._memory_bytes
        read_limit = self.read_limit
        status = GetMessageStatus.NO_MATCHED_MESSAGE
        result = GetMessageResult(status, queue_offset, queue.min_offset, queue.max_offset)
        by_unit: Callable[[int], bool] | None = None
        if message_filter is None:
            units = queue.units(queue_offset, max(FILTERED_UNITS_MAX, max_msg_nums))
        else:
            units = queue.units(queue_offset, message_filter.units_max)
            by_unit = message_filter.by_tags_code
            if queue.ext is not None:
                by_unit = functools.partial(_matches_extended, queue.ext, message_filter)
        count_in_memory = min(config.max_transfer_count_on_message_in_memory, max_msg_nums)
        bytes_in_memory = config.max_transfer_bytes_on_message_in_memory
        count_on_disk = min(config.max_transfer_count_on_message_in_disk, max_msg_nums)
        bytes_on_disk = config.max_transfer_bytes_on_message_in_disk
        runs: list[Run] = []
        run_from = run_to = -1
        file_from = file_to = -1
        file = run_file = None
        scanned = count = bytes_ = 0
        is_cold = False
        offset = 0
        for offset, size, tags_code in UNIT.iter_unpack(units):
            if offset + size > read_limit and size != FILLER_SIZE:
                break
            is_on_disk = offset < disk_before
            if count:
                if is_on_disk:
                    if count >= count_on_disk or bytes_ + size > bytes_on_disk:
                        break
                elif count >= count_in_memory or bytes_ + size > bytes_in_memory:
                    break
            scanned += 1
            if by_unit is not None and not by_unit(tags_code):
                continue
            if not file_from <= offset < file_to:
                file = None if size == FILLER_SIZE else log.file_at(offset)
                if file is None:
                    file_from = file_to = -1
                else:
                    file_from = file.file_from_offset
                    file_to = min(file_from + file.size, max_phy)
            if (
                file is None
                or offset < min_phy
                or offset + size > file_to
                or (quarantine is not None and quarantine.contains(offset))
            ):
                if not count:
                    status = GetMessageStatus.MESSAGE_WAS_REMOVING
                continue
            if is_on_disk:
                is_cold = True
            else:
                if _SIZE.unpack_from(file.buffer, offset - file_from)[0] != size:
                    if not count:
                        status = GetMessageStatus.MESSAGE_WAS_REMOVING
                    continue
                if message_filter is not None and not message_filter.by_record(
                    file.view[offset - file_from : offset - file_from + size]
                ):
                    continue
            count += 1
            bytes_ += size
            if offset == run_to and file is run_file:
                run_to += size
            else:
                if run_file is not None:
                    runs.append((run_file, run_from - run_file.file_from_offset, run_to - run_from))
                run_file, run_from, run_to = file, offset, offset + size
        if run_file is not None:
            runs.append((run_file, run_from - run_file.file_from_offset, run_to - run_from))
        if scanned == 0:
            if len(units) == 0:
                self.get_miss_times += 1
                result.status = GetMessageStatus.OFFSET_FOUND_NULL
                result.next_begin_offset = queue.max_offset
                return result
            # All that is there waits for its flush: the queue ends here, as far as may be known.
            self.get_miss_times += 1
            result.status = GetMessageStatus.OFFSET_OVERFLOW_ONE
            result.max_offset = queue_offset
            return result
        result.next_begin_offset = queue_offset + scanned
        result.suggest_pulling_from_slave = max_phy - offset > self._memory_bytes
        result.message_count = count
        result.byte_count = bytes_
        if not count:
            self.get_miss_times += 1
            result.status = status
            return result
        if is_cold:
            return self._read_cold(result, runs, message_filter)
        self.get_found_times += 1
        self.transferred_messages += count
        result.status = GetMessageStatus.FOUND
        result.buffers = [mapped.view[start : start + size] for mapped, start, size in runs]
        return result

    async def _read_cold(
        self,
        result: GetMessageResult,
        runs: list[Run],
        message_filter: MessageFilter | None,
    ) -> GetMessageResult:
        places = [(mapped.file, start, size) for mapped, start, size in runs]
        loop = asyncio.get_running_loop()
        parts = await loop.run_in_executor(self._cold_reads, _pread_all, places)
        result.message_count = result.byte_count = 0
        for (mapped, start, size), part in zip(runs, parts, strict=True):
            if len(part) == size:
                _add_records(result, part, mapped.file_from_offset + start, message_filter)
        if result.message_count:
            self.get_found_times += 1
            self.transferred_messages += result.message_count
            result.status = GetMessageStatus.FOUND
        else:
            self.get_miss_times += 1
        return result

    def offset_by_time(self, queue: ConsumeQueue, timestamp_ms: int, *, upper: bool) -> int:
        """Return the first message stored from a time on; with upper the last one up to it."""
        bound = timestamp_ms + 1 if upper else timestamp_ms
        found = queue.lower_bound(
            queue.min_offset,
            lambda offset: self._timestamp_at(offset) < bound,
            self._quarantine.contains,
        )
        found = min(found, queue.max_offset)
        return max(found - 1, queue.min_offset) if upper else found

    def store_timestamp(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """Return when a message was stored, -1 when it is not there."""
        unit = queue.unit(queue_offset)
        if unit is None or unit[1] == FILLER_SIZE or queue_offset >= queue.max_offset:
            return -1
        if self._quarantine.contains(unit[0]):
            return -1
        return self._timestamp_at(unit[0])

    def is_in_memory(self, queue: ConsumeQueue, queue_offset: int) -> bool | None:
        """Tell whether a message is likely in memory, None when there is no such message."""
        unit = queue.unit(queue_offset)
        if unit is None:
            return None
        return self._log.max_offset - unit[0] <= self._memory_bytes

    def code(self, queue: ConsumeQueue, commit_log_offset: int, code: int) -> int:
        """Return the tags code of a unit that has an address in its place; 0 when it is lost."""
        unit = queue.ext_unit(code)
        if unit is not None:
            return unit.tags_code
        if queue.delay_ms is None:
            return 0
        return self._timestamp_at(commit_log_offset) + queue.delay_ms

    def look_message(self, commit_log_offset: int) -> memoryview | None:
        """Return the record that begins at an offset, None when there is none."""
        found = self._examine(commit_log_offset)
        return None if found is None else found[0]

    def query_message(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        """Return records of a topic that carry a key, oldest first.

        Differs: other messages whose keys have the same hash are left out here, not by the client.
        """
        if self._index is None:
            return []
        max_num = min(max_num, self._config.max_msgs_num_batch)
        seed = unsigned_hash(topic + "#")
        found = self._index.find(seed, key, max_num, begin_ms, end_ms)
        records: list[memoryview] = []
        for offset in sorted(set(found)):
            examined = self._examine(offset)
            if examined is not None and _has_key(*examined, topic, key):
                records.append(examined[0])
        return records

    def _timestamp_at(self, commit_log_offset: int) -> int:
        if commit_log_offset >= self.read_limit:
            return NO_LIMIT  # later than all that may be read, whatever its bytes are by now
        file = self._log.file_at(commit_log_offset)
        if file is None:
            return -1
        position = commit_log_offset - file.file_from_offset
        if position + HEAD_SIZE + UNIT_SIZE + 8 > file.size:
            return -1
        return store_timestamp_of(file.view, position)

    def _examine(self, commit_log_offset: int) -> tuple[memoryview, RecordHead] | None:
        """Return a record and its head with positions in the record."""
        file = self._log.file_at(commit_log_offset)
        if file is None:
            return None
        position = commit_log_offset - file.file_from_offset
        limit = min(self._log.max_offset, self.read_limit) - file.file_from_offset
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
                check_crc=True,
                is_guarded=self._config.enabled_append_prop_crc,
            )
        except CorruptRecordError:
            return None
        return None if head.is_blank else (view[: head.size], head)


def _matches_extended(ext: ConsumeQueueExt, message_filter: MessageFilter, tags_code: int) -> bool:
    unit = ext.unit(tags_code) if tags_code <= ADDRESS_MAX else None
    if unit is None:
        return message_filter.by_tags_code(tags_code)
    return message_filter.by_ext_unit(unit)


def _outside(queue_offset: int, low: int, high: int) -> GetMessageResult:
    if queue_offset < low:
        return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
    if queue_offset == high:
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high)
    return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)


def _pread_all(places: list[tuple[StorageFile, int, int]]) -> list[bytes]:
    return [file.pread(offset, length) for file, offset, length in places]


def _add_records(
    result: GetMessageResult,
    part: bytes,
    commit_log_offset: int,
    message_filter: MessageFilter | None,
) -> None:
    """Add the wanted records of adjacent ones to a result."""
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
    text = str(record[head.properties_from : head.properties_to], "utf-8", "replace")
    properties = message_properties.decode(text)
    if properties.get(PROPERTY_UNIQ_KEY) == key:
        return True
    return key in properties.get(PROPERTY_KEYS, "").split(KEY_SEPARATOR)
