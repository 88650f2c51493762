"""RecordDispatch: finds a record's location in its queue, and writes missing units.

Recovery and a slave's replay use it for the records that aren't dispatched in bulk.

Source: store/DefaultMessageStore.java CommitLogDispatcherBuildConsumeQueue (4.9.8).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from broker_core.errors import CorruptRecordError
from broker_core.formats.cq_unit import FILLER_SIZE
from broker_core.formats.record import OVERHEAD_V4, examine
from broker_core.message import properties as message_properties
from broker_core.message.names import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQ_KEY,
)
from broker_core.message.sys_flag import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from broker_core.message.tags import tags_code
from broker_core.store.consume_queue import timer_code
from broker_core.store.ext_replay import ExtReplay

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.formats.record import RecordHead
    from broker_core.store.commit_log import CommitLog
    from broker_core.store.consume_queue import ConsumeQueue
    from broker_core.store.consume_queues import ConsumeQueues
    from broker_core.store.deleted_topics import DeletedTopics

logger = logging.getLogger(__name__)

NO_UNIT_TYPES = (TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE)


class KeySink(Protocol):
    """Receives the keys of messages, in log order."""

    def put(
        self,
        seed: int,
        uniq_key: str | None,
        keys: str | None,
        commit_log_offset: int,
        store_timestamp: int,
    ) -> None:
        """Receive the keys of one message."""
        ...


def queue_of_record(
    queues: ConsumeQueues,
    deleted: DeletedTopics,
    topic: bytes,
    queue_id: int,
    commit_log_offset: int,
) -> ConsumeQueue | None:
    """Return the queue of a record, or None if it doesn't exist or its topic was deleted later."""
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        return None
    queue = queues.find(name, queue_id)
    if queue is None or commit_log_offset < deleted.deleted_before(name):
        return None
    return queue


class RecordDispatch:
    """Event loop only, or the recovery thread.

    Attributes:
        next: the queue offset that a queue's next record must have, once known.
        ext: the extensions of the queues.
        keys: receives the keys to index; None without an index.
        is_new: whether none of the upcoming records can have a unit yet.
        on_written: called with each queue that gets a unit; None if unused.
        units_written, units_missing: how many units were written, and how many of lost messages.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        deleted: DeletedTopics,
        is_damaged: Callable[[int], bool],
    ) -> None:
        """is_damaged returns whether a log offset is in a damaged range."""
        self.next: dict[ConsumeQueue, int] = {}
        self.ext = ExtReplay()
        self.keys: KeySink | None = None
        self.is_new = False
        self.on_written: Callable[[ConsumeQueue], None] | None = None
        self.units_written = 0
        self.units_missing = 0
        self._log = commit_log
        self._queues = queues
        self._deleted = deleted
        self._is_damaged = is_damaged

    def dispatch(self, view: memoryview, head: RecordHead) -> bool:
        """Write a record's unit and index entries where they are missing.

        Returns False when its head contradicts the queues.
        """
        topic = str(view[head.topic_from : head.topic_to], "utf-8", "replace")
        if head.commit_log_offset < self._deleted.deleted_before(topic):
            return True
        queue = self._queues.find(topic, head.queue_id)
        has_place = head.sys_flag & TRANSACTION_MASK not in NO_UNIT_TYPES
        if queue is None or not has_place or not self._fits(queue, head):
            # The topic, queue or queue offset is new; it is damaged if another unit points at this
            # record.
            known = None if self.is_new else self.unit_of(head.commit_log_offset)
            place = (queue, head.queue_offset) if has_place else None
            if known is not None and known[:2] != place:
                return False
            queue = queue or self._queues.create(topic, head.queue_id)
            if queue is None:
                return False
        text = str(view[head.properties_from : head.properties_to], "utf-8", "replace")
        properties = message_properties.decode(text)
        if has_place:
            code = tags_code(properties.get(PROPERTY_TAGS))
            if queue.delay_ms is not None and PROPERTY_DELAY_TIME_LEVEL in properties:
                code = head.store_timestamp + queue.delay_ms
            elif queue.has_due_times:
                out_ms = properties.get(PROPERTY_TIMER_OUT_MS)
                code = timer_code(out_ms, properties.get(PROPERTY_TAGS))
            self._put_unit(queue, head, code, text)
        self._put_keys(queue, head, properties)
        return True

    def recreated_topic_queue(self, view: memoryview, head: RecordHead) -> ConsumeQueue | None:
        """Return the queue that restarts with this record, although it has messages already.

        A master's queue offsets restart only if the topic was deleted and created again.
        """
        queue = None if head.queue_offset else self.queue_of(view, head)
        if (
            queue is None
            or head.sys_flag & TRANSACTION_MASK in NO_UNIT_TYPES
            or head.commit_log_offset < self._deleted.deleted_before(queue.topic)
            or not self._expected(queue, head)
        ):
            return None
        return queue

    def unit_of(self, commit_log_offset: int) -> tuple[ConsumeQueue, int, int] | None:
        """Return (queue, queue_offset, size) of the unit that points at a log offset."""
        for queue in self._queues:
            queue_offset = queue.lower_bound(
                queue.min_offset, lambda offset: offset < commit_log_offset
            )
            unit = queue.unit(queue_offset)
            if unit is not None and unit[0] == commit_log_offset and unit[1] != FILLER_SIZE:
                return queue, queue_offset, unit[1]
        return None

    def queue_of(self, view: memoryview, head: RecordHead) -> ConsumeQueue | None:
        """Return the queue that a record belongs to, or None."""
        try:
            topic = str(view[head.topic_from : head.topic_to], "utf-8")
        except UnicodeDecodeError:
            return None
        return self._queues.find(topic, head.queue_id)

    def mark(self, queue: ConsumeQueue) -> None:
        """Schedule the flush of a queue that was written."""
        if self.on_written is not None:
            self.on_written(queue)
        if not queue.dirty:
            queue.dirty = True
            self._queues.dirty.append(queue)

    def _put_keys(self, queue: ConsumeQueue, head: RecordHead, properties: dict[str, str]) -> None:
        if self.keys is not None:
            self.keys.put(
                queue.key_seed,
                properties.get(PROPERTY_UNIQ_KEY),
                properties.get(PROPERTY_KEYS),
                head.commit_log_offset,
                head.store_timestamp,
            )

    def _fits(self, queue: ConsumeQueue, head: RecordHead) -> bool:
        """Return whether a record is the next of its queue and no other record has its offset."""
        if head.queue_offset != self._expected(queue, head):
            return False
        unit = queue.unit(head.queue_offset)
        return unit is None or unit[0] == head.commit_log_offset or unit[1] == FILLER_SIZE

    def _expected(self, queue: ConsumeQueue, head: RecordHead) -> int:
        """Return the queue offset that a record should have."""
        expected = self.next.get(queue)
        if expected is not None:
            return expected
        return queue.lower_bound(queue.min_offset, lambda offset: offset < head.commit_log_offset)

    def _put_unit(self, queue: ConsumeQueue, head: RecordHead, code: int, text: str) -> None:
        expected = self._expected(queue, head)
        queue_offset = head.queue_offset
        if expected == queue.next_offset == queue.first_offset() and expected != queue_offset:
            queue.start_at(queue_offset)
            expected = queue_offset
        if queue_offset < expected or self._is_replaced(queue, head):
            logger.warning(
                "queue offset already used topic=%s queue_id=%d queue_offset=%d "
                "commit_log_offset=%d",
                queue.topic,
                queue.queue_id,
                queue_offset,
                head.commit_log_offset,
            )
            return
        if queue_offset > expected and (
            queue_offset - expected > self._max_records_between(queue, expected, head)
        ):
            logger.error(
                "record ahead of its queue topic=%s queue_id=%d queue_offset=%d expected=%d "
                "commit_log_offset=%d",
                queue.topic,
                queue.queue_id,
                queue_offset,
                expected,
                head.commit_log_offset,
            )
            return
        for missing in range(expected, queue_offset):
            self._keep_place(queue, missing)
        place = head.commit_log_offset, head.size
        code = self.ext.unit_code(queue, queue_offset, place, code, head.store_timestamp, text)
        if queue_offset < queue.next_offset:
            if queue.put_at(queue_offset, head.commit_log_offset, head.size, code):
                self.units_written += 1
                self.mark(queue)
        else:
            queue.append(head.commit_log_offset, head.size, code)
            self.units_written += 1
            self.mark(queue)
        self.next[queue] = queue_offset + 1

    def _max_records_between(self, queue: ConsumeQueue, expected: int, head: RecordHead) -> int:
        """Return how many records fit into the log between a queue's last one and this one.

        A flipped bit may yield any offset; it must not fill a disk with units of lost messages.
        """
        unit = queue.unit(expected - 1) if expected > queue.first_offset() else None
        begin = 0 if unit is None or unit[1] == FILLER_SIZE else unit[0]
        return max(0, head.commit_log_offset - begin) // OVERHEAD_V4

    def _is_replaced(self, queue: ConsumeQueue, head: RecordHead) -> bool:
        """Return whether a later message has the record's offset after a restart of its queue."""
        unit = queue.unit(head.queue_offset)
        if unit is None or unit[1] == FILLER_SIZE or unit[0] <= head.commit_log_offset:
            return False
        file = self._log.file_at(unit[0])
        if file is None:
            return False
        position = unit[0] - file.file_from_offset
        try:
            other = examine(file.view, position, file.size, unit[0], check_crc=True)
        except CorruptRecordError:
            return False
        return other.queue_offset == head.queue_offset and (
            self.queue_of(file.view, other) is queue
        )

    def _keep_place(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Keep the unit of a lost message, or write a filler, to preserve later offsets."""
        self.units_missing += 1
        unit = queue.unit(queue_offset)
        if unit is not None and unit[1] != FILLER_SIZE and self._is_damaged(unit[0]):
            if self.ext.keep(queue, queue_offset):
                self.units_written += 1
                self.mark(queue)
            return
        if queue_offset < queue.next_offset:
            if not queue.put_filler_at(queue_offset):
                return
        else:
            queue.append(0, FILLER_SIZE, 0)
        self.units_written += 1
        self.mark(queue)
