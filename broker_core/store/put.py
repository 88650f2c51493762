"""Putting: how messages get into the log, their queue and the index.

Invariant: the head of a record is written last, and `position` moves past the record only then; the
ConsumeQueue's unit, the index and the readers follow. Killing the process at any point leaves zeros
in place of the next head.

Source: store/CommitLog.java putMessage, putMessages (4.9.8).
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING
from zlib import crc32

from broker_core.errors import CorruptRecordError, PropertiesError, StoreUnavailableError
from broker_core.formats.cq_unit import UNIT, UNIT_SIZE
from broker_core.formats.record import (
    CRC_MASK,
    FIXED,
    GUARDED,
    MESSAGE_MAGIC,
    PROPERTIES_SIZE,
    with_crc_room,
)
from broker_core.message.ids import HOST_V4_SIZE, HOST_V6_SIZE
from broker_core.message.properties import PROPERTIES_BYTES_MAX
from broker_core.message.sys_flag import (
    BORNHOST_V6_FLAG,
    HOST_V6_MASK,
    STOREHOST_V6_FLAG,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
)
from broker_core.message.tags import tags_code as tags_code_of
from broker_core.steps import run_to_end
from broker_core.store.batch_parts import read_batch
from broker_core.store.put_watch import PutWatch
from broker_core.store.results import (
    PutBatchResult,
    PutMessageResult,
    PutMessageStatus,
    RefusedPutError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from struct import Struct

    from broker_core.clock import Clock
    from broker_core.config.store import StoreConfig
    from broker_core.formats.index_entry import Waiting
    from broker_core.formats.record import GuardedFields
    from broker_core.store.availability import Availability
    from broker_core.store.batch_parts import BatchParts
    from broker_core.store.consume_queue import ConsumeQueue
    from broker_core.store.store_files import StoreFiles
    from broker_core.store.visibility import Visibility

logger = logging.getLogger(__name__)

PUT_OK = PutMessageStatus.PUT_OK
RECORD_OVERHEAD_MAX = 64 * 1024
pack_unit_into = UNIT.pack_into
pack_unit = UNIT.pack
pack_text_size = PROPERTIES_SIZE.pack


class MessagePut:
    """Puts one message, or a batch. Event loop only.

    Decisions that would be the same for each message are made once, on creation. The native code
    puts plain messages on its own, through the public attributes and methods of this class.

    Attributes:
        state, queues, index: changed by a put; index is None without an index.
        store_host: this broker's address, as stored in records.
        store_v6_flag: the bit of the sys_flag for such a host.
        is_guarded: whether records end in a checksum of the whole record.
        visibility: shows the messages.
        watch: reports slow puts.
    """

    __slots__ = (
        "_availability",
        "_config",
        "_fixed_v4",
        "_fixed_v6",
        "_log",
        "_monotonic",
        "_now_ms",
        "_properties_bytes",
        "index",
        "is_guarded",
        "queues",
        "state",
        "store_host",
        "store_v6_flag",
        "visibility",
        "watch",
    )

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        store_host: bytes,
        files: StoreFiles,
        availability: Availability,
        visibility: Visibility,
    ) -> None:
        self._config = config
        self._monotonic = clock.monotonic
        self._now_ms = clock.now_ms
        self.state = files.put_state
        self._log = files.log
        self.queues = files.queues
        self.index = files.index
        self._availability = availability
        self.visibility = visibility
        self.is_guarded = config.enabled_append_prop_crc
        fixed: Mapping[tuple[int, int], Struct | GuardedFields] = (
            GUARDED if self.is_guarded else FIXED
        )
        self._fixed_v4 = fixed[HOST_V4_SIZE, len(store_host)]
        self._fixed_v6 = fixed[HOST_V6_SIZE, len(store_host)]
        self._properties_bytes: Callable[[str], bytes] = (
            with_crc_room if self.is_guarded else str.encode
        )
        self.store_host = store_host
        self.store_v6_flag = STOREHOST_V6_FLAG if len(store_host) == HOST_V6_SIZE else 0
        self.watch = PutWatch(self.state, clock)

    def put_message(  # noqa: PLR0913  a record's fields
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        properties: str,
        *,
        tags: str | None,
        keys: str | None,
        uniq_key: str | None,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> PutMessageResult:
        """Append a message, dispatch it to its queue and the index, notify waiting consumers.

        The hot path: it packs into the mappings directly, creates no object except the result, and
        leaves everything that isn't needed for each message to other methods.
        """
        state = self.state
        if not state.is_writable:
            return self._refused(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        try:
            queue = self.queues.table[topic][queue_id]
        except KeyError:
            created = self.queues.create(topic, queue_id)
            if created is None:
                return self._refused(PutMessageStatus.MESSAGE_ILLEGAL)
            queue = created
        properties_bytes = self._properties_bytes(properties)
        properties_size = len(properties_bytes)
        body_size = len(body)
        if len(born_host) == HOST_V4_SIZE:
            fixed = self._fixed_v4
            sys_flag = sys_flag & ~HOST_V6_MASK | self.store_v6_flag
        else:
            fixed = self._fixed_v6
            sys_flag = sys_flag & ~HOST_V6_MASK | self.store_v6_flag | BORNHOST_V6_FLAG
        topic_field = queue.topic_field
        fixed_size = fixed.size
        size = fixed_size + body_size + len(topic_field) + 2 + properties_size
        position = state.position
        index = self.index if uniq_key or keys else None
        if (
            position + size > state.limit
            or queue.position >= queue.limit
            or properties_size > PROPERTIES_BYTES_MAX
            or body_size > self._config.max_message_size
            or "\0" in properties
            or (index is not None and index.room <= (len(keys) if keys else 0))
        ):
            entries = (1 if uniq_key else 0) + (len(keys) if keys else 0)
            refusal = self._make_room(queue, size, body_size, properties_bytes, entries)
            if refusal is not None:
                return self._refused(refusal)
            position = state.position
        store_timestamp = self._now_ms()
        if store_timestamp != state.store_timestamp:
            store_timestamp = self.begin_millisecond(store_timestamp)
        # PREPARED and ROLLBACK (both have this bit) are stored without an offset in the queue.
        has_place = not sys_flag & TRANSACTION_PREPARED_TYPE
        queue_offset = queue.next_offset if has_place else 0

        buffer = state.buffer
        commit_log_offset = state.file_from_offset + position
        body_from = position + fixed_size
        tail_from = body_from + body_size
        end = position + size
        try:
            # The head is last: a process that is killed here leaves zeros in its place.
            buffer[body_from:tail_from] = body
            buffer[tail_from:end] = topic_field + pack_text_size(properties_size) + properties_bytes
            fixed.pack_into(
                buffer,
                position,
                size,
                MESSAGE_MAGIC,
                crc32(body) & CRC_MASK if body_size else 0,
                queue_id,
                flag,
                queue_offset,
                commit_log_offset,
                sys_flag,
                born_timestamp,
                born_host,
                store_timestamp,
                self.store_host,
                reconsume_times,
                prepared_transaction_offset,
                body_size,
            )
            state.position = end
            if state.is_timed:
                state.appended_at = self._monotonic()

            if has_place:
                code_of = queue.code_of
                if code_of is None:
                    code = tags_code_of(tags) if tags else 0
                else:
                    code = code_of(store_timestamp, tags, properties)
                pack_unit_into(queue.buffer, queue.position, commit_log_offset, size, code)
                queue.position += UNIT_SIZE
                queue.next_offset = queue_offset + 1
                if not queue.dirty:
                    queue.dirty = True
                    self.queues.dirty.append(queue)
            if index is not None:
                index.waiting.append(
                    (queue.key_seed, uniq_key, keys, commit_log_offset, store_timestamp)
                )
                index.room -= 1 + len(keys) if keys else 1
        except MemoryError:
            self._break_off()
            raise
        state.put_times += 1
        state.put_bytes += size
        now = self._monotonic()
        if state.is_timed:
            state.dispatched_at = now
        if now > state.slow_at:
            self.watch.report(topic, queue_id, size)
        visibility = self.visibility
        if visibility.waits:
            visibility.leave_unflushed(queue, commit_log_offset + size)
        elif has_place:
            queue.max_offset = queue_offset + 1
            if visibility.on_arrival is not None:
                visibility.on_arrival(topic, queue_id, queue_offset + 1)
        return PutMessageResult(PUT_OK, commit_log_offset, queue_offset, store_timestamp, size)

    def put_batch(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        batch_properties: str,
        *,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int = 0,
        parts: BatchParts | None = None,
    ) -> PutBatchResult:
        """Append all or no messages of a batch, to one file; `_checked` may refuse them.

        `parts`: see batch_steps.
        """
        try:
            queue, fixed, parts = self._checked(
                topic, queue_id, body, batch_properties, sys_flag, born_host, parts
            )
        except RefusedPutError as refusal:
            self._refused(refusal.status)
            return PutBatchResult(refusal.status, [])
        sys_flag = sys_flag & ~HOST_V6_MASK | self.store_v6_flag
        if len(born_host) != HOST_V4_SIZE:
            sys_flag |= BORNHOST_V6_FLAG
        state = self.state
        store_timestamp = self._now_ms()
        if store_timestamp != state.store_timestamp:
            store_timestamp = self.begin_millisecond(store_timestamp)
        buffer, position = state.buffer, state.position
        total = len(parts.records)
        commit_log_offset, code_of = state.file_from_offset + position, queue.code_of
        first_queue_offset = queue_offset = queue.next_offset
        seed, store_host, pack_into = queue.key_seed, self.store_host, fixed.pack_into
        offsets: list[int] = []
        units: list[bytes] = []
        entries: list[Waiting] = []
        try:
            # First everything except the heads, then each head.
            buffer[position : position + total] = parts.records
            for flag, body_size, crc, text, size, tags, keys, uniq_key in parts.items:
                pack_into(
                    buffer,
                    position,
                    size,
                    MESSAGE_MAGIC,
                    crc,
                    queue_id,
                    flag,
                    queue_offset,
                    commit_log_offset,
                    sys_flag,
                    born_timestamp,
                    born_host,
                    store_timestamp,
                    store_host,
                    reconsume_times,
                    0,
                    body_size,
                )
                offsets.append(commit_log_offset)
                if code_of is None:
                    code = tags_code_of(tags) if tags else 0
                else:
                    code = code_of(store_timestamp, tags, text.decode())
                units.append(pack_unit(commit_log_offset, size, code))
                if uniq_key or keys:
                    entries.append((seed, uniq_key, keys, commit_log_offset, store_timestamp))
                position += size
                commit_log_offset += size
                queue_offset += 1
            state.position = position
            self._dispatch(queue, units, entries, parts.entries)
        except MemoryError:
            self._break_off()
            raise
        self._end_batch(queue, len(offsets), total, commit_log_offset)
        return PutBatchResult(PUT_OK, offsets, first_queue_offset, store_timestamp, total)

    def _end_batch(self, queue: ConsumeQueue, messages: int, size: int, end: int) -> None:
        """Count a batch that is in the log and its queue, and show it."""
        state = self.state
        state.put_times += messages
        state.put_bytes += size
        now = self._monotonic()
        if state.is_timed:
            state.dispatched_at = now
        if now > state.slow_at:
            self.watch.report(queue.topic, queue.queue_id, size)
        self.show(queue, end)

    def _break_off(self) -> None:
        """Refuse puts until a restart; its recovery then repairs the log.

        A record may lack its unit at this point, or the bytes after the log's end may not be zeros.
        """
        logger.error("put out of memory, refusing writes until a restart")
        self._availability.fail(OSError(errno.ENOMEM, "out of memory while storing a message"))

    def _dispatch(
        self, queue: ConsumeQueue, units: list[bytes], entries: list[Waiting], room: int
    ) -> None:
        """Dispatch a batch, whose records are in the log, to its queue and the index."""
        if self.state.is_timed:
            self.state.appended_at = self._monotonic()
        queue.append_units(b"".join(units))
        if self.index is not None:
            self.index.waiting += entries
            self.index.room -= room

    def show(self, queue: ConsumeQueue, end: int) -> None:
        """Schedule a flush of a queue, and show its new messages now or once they are readable."""
        if not queue.dirty:
            queue.dirty = True
            self.queues.dirty.append(queue)
        if self.visibility.waits:
            self.visibility.leave_unflushed(queue, end)
        else:
            self.visibility.show(queue)

    def batch_steps(
        self, topic: str, queue_id: int, body: bytes, batch_properties: str, *, born_host: bytes
    ) -> Generator[None, None, BatchParts]:
        """Read a batch in steps; return the parts for put_batch.

        Raises:
            PropertiesError: a message's properties can't be stored unchanged.
            RefusedPutError: put_batch would refuse it.
        """
        try:
            queue = self.queues.find(topic, queue_id) or self.queues.create(topic, queue_id)
            if queue is None or len(body) > self._config.max_message_size:
                raise RefusedPutError(PutMessageStatus.MESSAGE_ILLEGAL)
            return (yield from self._read_batch(queue, body, batch_properties, born_host))
        except RefusedPutError as refusal:
            self._refused(refusal.status)
            raise

    def _read_batch(
        self, queue: ConsumeQueue, body: bytes, batch_properties: str, born_host: bytes
    ) -> Generator[None, None, BatchParts]:
        fixed = self._fixed_v4 if len(born_host) == HOST_V4_SIZE else self._fixed_v6
        try:
            parts = yield from read_batch(
                body, batch_properties, fixed.size, queue.topic_field, is_guarded=self.is_guarded
            )
        except PropertiesError:
            self._refused(PutMessageStatus.MESSAGE_ILLEGAL)
            raise
        except (CorruptRecordError, UnicodeDecodeError):
            raise RefusedPutError(PutMessageStatus.MESSAGE_ILLEGAL) from None
        if not parts.items:
            raise RefusedPutError(PutMessageStatus.MESSAGE_ILLEGAL)
        return parts

    def _checked(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        batch_properties: str,
        sys_flag: int,
        born_host: bytes,
        parts: BatchParts | None,
    ) -> tuple[ConsumeQueue, Struct | GuardedFields, BatchParts]:
        """Reserve room for a batch; return its queue, its head format and its parts.

        Raises:
            PropertiesError: a message's properties couldn't be read back unchanged.
            RefusedPutError: the batch is refused.
        """
        if not self.state.is_writable:
            raise RefusedPutError(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        queue = self.queues.find(topic, queue_id) or self.queues.create(topic, queue_id)
        if (
            queue is None
            or sys_flag & TRANSACTION_MASK
            or len(body) > self._config.max_message_size
        ):
            raise RefusedPutError(PutMessageStatus.MESSAGE_ILLEGAL)
        fixed = self._fixed_v4 if len(born_host) == HOST_V4_SIZE else self._fixed_v6
        if parts is None:
            parts = run_to_end(self._read_batch(queue, bytes(body), batch_properties, born_host))
        refusal = self._reserve(queue, len(parts.records), len(parts.items), parts.entries)
        if refusal is not None:
            raise RefusedPutError(refusal)
        return queue, fixed, parts

    def _make_room(
        self,
        queue: ConsumeQueue,
        size: int,
        body_size: int,
        properties: bytes,
        entries: int,
    ) -> PutMessageStatus | None:
        """Check the limits, reserve space; return why the message is refused, or None.

        Differs: zeros in properties are refused, because recovery uses zeros to detect a torn
        write.
        """
        if b"\0" in properties:
            return PutMessageStatus.MESSAGE_ILLEGAL
        if body_size > self._config.max_message_size:
            return PutMessageStatus.MESSAGE_ILLEGAL
        if len(properties) > PROPERTIES_BYTES_MAX:
            if len(properties.decode()) > PROPERTIES_BYTES_MAX:
                return PutMessageStatus.MESSAGE_ILLEGAL
            return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
        return self._reserve(queue, size, 1, entries)

    def _reserve(
        self, queue: ConsumeQueue, size: int, units: int, entries: int
    ) -> PutMessageStatus | None:
        """Make room in the log, the queue and the index; return why that failed, or None."""
        record_size_max = self._log.record_size_max
        if size > min(record_size_max, self._config.max_message_size + RECORD_OVERHEAD_MAX) and (
            units == 1 or size > record_size_max
        ):
            return PutMessageStatus.MESSAGE_ILLEGAL
        state, index, watch = self.state, self.index, self.watch
        watch.start_room()
        try:
            if state.position + size > state.limit:
                refusal = self._make_log_room(size)
                watch.end_step("a file of the log")
                if refusal is not None:
                    return refusal
            if queue.position + (units - 1) * UNIT_SIZE >= queue.limit:
                queue.make_room(units)
                watch.end_step("blocks for the ConsumeQueue")
            if index is not None and index.room < entries:
                index.make_room(entries)
                watch.end_step("blocks for the index")
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self._availability.fill_disk()
                return PutMessageStatus.SERVICE_NOT_AVAILABLE
            logger.warning("queue or index file not created reason=%s", error)
            return PutMessageStatus.UNKNOWN_ERROR
        return None

    def _make_log_room(self, size: int) -> PutMessageStatus | None:
        """Make room in the log; return why that failed, or None.

        Raises:
            OSError: the disk is full.
        """
        try:
            self._log.make_room(size)
        except StoreUnavailableError:
            if self._config.fast_fail_if_no_buffer_in_store_pool:
                return PutMessageStatus.CREATE_MAPEDFILE_FAILED
            return PutMessageStatus.OS_PAGE_CACHE_BUSY
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            logger.warning("log file not created reason=%s", error)
            return PutMessageStatus.CREATE_MAPEDFILE_FAILED
        return None

    def begin_millisecond(self, now_ms: int) -> int:
        """Return the store timestamp for the first put of a new millisecond.

        Unlike the wall clock it never goes back: recovery and time queries need ascending times.
        """
        state = self.state
        self.watch.begin()
        if now_ms > state.store_timestamp:
            state.store_timestamp = now_ms
        return state.store_timestamp

    def make_plain_room(self, queue: ConsumeQueue, size: int) -> bool:
        """Raise the log's limit within its file; return whether a record of this size fits now.

        This notifies the watcher of the log's growth. It never creates another file.
        """
        state = self.state
        if state.limit < 0 or state.position + size > self._log.record_size_max:
            return False
        return self._reserve(queue, size, 1, 0) is None

    def make_index_room(self, queue: ConsumeQueue, entries: int) -> bool:
        """Write the buffered index entries; return whether this many more can be buffered now."""
        return self._reserve(queue, 0, 1, entries) is None

    def report_slow_put(self, topic: str, queue_id: int, size: int) -> None:
        """Log a put that ended after the state's `slow_at`."""
        self.watch.report(topic, queue_id, size)

    def _refused(self, status: PutMessageStatus) -> PutMessageResult:
        self.state.put_failed_times += 1
        return PutMessageResult(status)
