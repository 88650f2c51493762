"""Store leases as records in the message log, in 5.3.3's revive topic.

There they are as durable as the messages, recovery and the verifier check them, and slaves receive
them, so a promoted slave has the leases.

Invariant: a lease is in the log before the group's consumer offset moves past its message, and
consumerOffset.json is written with that offset after the log is flushed up to the record.

Source: broker/processor/PopMessageProcessor.java, PopReviveService.java (5.3.3).
Differs: this broker puts records to the revive topic directly, and only to its first queue;
RocketMQ sends each one through the timer topic first, and stores it twice. A long lease is written
again at the end of the log, so that a restart reads only a short stretch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import CorruptRecordError, RequestRefusedError
from broker_core.formats import record
from broker_core.message import names
from broker_core.message.ids import host_bytes
from broker_core.message.names import (
    POP_REVIVE_GROUP,
    POP_REVIVE_SEEN_GROUP,
    PROPERTY_TAGS,
    pop_revive_topic,
)
from broker_core.message.properties import encode as encode_properties
from broker_core.pop import records
from broker_core.pop.checkpoint import OFFSETS_MAX, Checkpoint, Handle, QueueKey
from broker_core.pop.orders import Order
from broker_core.store.results import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Generator

    from broker_core.clock import Clock, SteadyClock
    from broker_core.message.message import MessageExt
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.metadata.topics import Topics
    from broker_core.pop.leases import Leases
    from broker_core.pop.orders import Orders
    from broker_core.store.message_store import MessageStore

logger = logging.getLogger(__name__)

QUEUE_NUMS = 8
QUEUE_ID = 0
REPLAYED_MIN = 20_000
"""Number of records that a restart may read before old leases are written again."""
REPLAYED_PER_LEASE = 4
HOST = host_bytes("127.0.0.1", 0)
INVISIBLE_MS_MAX = 12 * 3600 * 1000
UNITS_AT_ONCE = 512
BITS = (1 << OFFSETS_MAX) - 1


def log_skipped(queue_offset: int, commit_log_offset: int, error: Exception) -> None:
    """Log a record that can't be applied."""
    logger.warning(
        "revive record skipped queue_offset=%d commit_log_offset=%d reason=%s",
        queue_offset,
        commit_log_offset,
        error,
    )


class ReviveLog:
    """Writes and reads the records. Event loop only, except for `replay_steps` before the start.

    Attributes:
        is_taking_over: whether more leases may follow from a RocketMQ broker's timer messages.
    """

    def __init__(
        self,
        cluster: str,
        broker_name: str,
        store: MessageStore,
        topics: Topics,
        offsets: ConsumerOffsets,
        leases: Leases,
        orders: Orders,
        clock: Clock,
        steady: SteadyClock,
    ) -> None:
        self.topic = pop_revive_topic(cluster)
        self._broker_name = broker_name
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._leases = leases
        self._orders = orders
        self._clock = clock
        self._steady = steady
        self._is_rewriting = False
        self.is_taking_over = False
        self._is_replayed = False
        self._begin = 0
        self._ends_elsewhere: dict[int, int] = {}
        self._leased_elsewhere: set[Checkpoint] = set()

    @property
    def is_read(self) -> bool:
        """Whether all leases are known."""
        return self._is_replayed and not self.is_taking_over

    def write_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Write the leases of a checkpoint; return False if the store refuses the record."""
        start = checkpoint.start_offset
        bits = checkpoint.acked & BITS
        key = checkpoint.key
        text = records.encode(
            records.CheckpointRecord(
                bits - (1 << OFFSETS_MAX) if bits >> (OFFSETS_MAX - 1) else bits,
                self._broker_name,
                key.group,
                [offset - start for offset in checkpoint.offsets],
                checkpoint.invisible_ms,
                len(checkpoint.offsets),
                checkpoint.pop_time_ms,
                key.queue_id,
                checkpoint.pop_time_ms + checkpoint.invisible_ms,
                0,
                start,
                key.topic,
                checkpoint.is_suspended or msgspec.UNSET,
            )
        )
        where = self._put(records.TAG_CHECKPOINT, text)
        if where < 0:
            return False
        if checkpoint.record_offset < 0:
            checkpoint.record_offset = where
        else:
            self._leases.record_moved(checkpoint, where)
        return True

    def write_acks(self, checkpoint: Checkpoint, offsets: list[int]) -> bool:
        """Write the end of leases; return False if the store refuses the record."""
        key = checkpoint.key
        is_one = len(offsets) == 1
        text = records.encode(
            records.AckRecord(
                offsets[0] if is_one else -1,
                self._broker_name,
                key.group,
                checkpoint.pop_time_ms,
                key.queue_id,
                checkpoint.start_offset,
                key.topic,
                msgspec.UNSET if is_one else offsets,
            )
        )
        return self._put(records.TAG_ACK if is_one else records.TAG_BATCH_ACK, text) >= 0

    def write_order(self, order: Order) -> bool:
        """Write the batch of an ordered group; return False if the store refuses the record."""
        key, steady_ms, now = order.key, self._steady.now_ms(), self._clock.monotonic()
        offsets = sorted(order.times)
        text = records.encode(
            records.OrderRecord(
                order.attempt_id,
                sorted(order.acked),
                order.committed,
                order.end,
                key.group,
                order.invisible_ms,
                offsets,
                order.pop_time_ms,
                key.queue_id,
                [order.times[offset] for offset in offsets],
                key.topic,
                [
                    steady_ms + round((order.due[offset] - now) * 1000)
                    if offset in order.due
                    else 0
                    for offset in offsets
                ],
                sorted(order.suspended) or msgspec.UNSET,
            )
        )
        where = self._put(records.TAG_ORDER, text)
        if where < 0:
            return False
        order.record_offset = where
        if key in self._orders:
            self._orders.move_to_end(key)
        return True

    def write_order_ack(self, order: Order, offset: int) -> bool:
        """Write the acknowledgement of an ordered message; return as `write_order` does."""
        key = order.key
        text = records.encode(
            records.OrderAckRecord(key.group, offset, order.pop_time_ms, key.queue_id, key.topic)
        )
        return self._put(records.TAG_ORDER_ACK, text) >= 0

    def write_group_end(self, group: str, *, keeps_offsets: bool) -> bool:
        """Write the deletion of a group, which ends its leases; return as `write_order` does."""
        text = records.encode(records.GroupEndRecord(group, keeps_offsets))
        return self._put(records.TAG_GROUP_END, text) >= 0

    def return_offsets(self, group: str) -> None:
        """Move a group's offsets back to its first leased messages."""
        for key, first in self._leases.first_offsets(group):
            if first < self._offsets.query(*key):
                self._offsets.commit(*key, first)

    def note_progress(self) -> None:
        """Store the first position that a restart reads, and the position the table covers.

        Does nothing before the leases are read, when these positions are unknown.
        """
        if not self.is_read or self.topic not in self._topics.table:
            return
        end = self._store.max_offset_in_queue(self.topic, QUEUE_ID)
        # As in RocketMQ, the offset of the last record that was read.
        self._offsets.commit(POP_REVIVE_GROUP, self.topic, QUEUE_ID, self._oldest(end) - 1)
        self._offsets.commit(POP_REVIVE_SEEN_GROUP, self.topic, QUEUE_ID, end)
        self._leased_elsewhere = {
            each
            for each in self._leased_elsewhere
            if not each.is_done and each.record_offset <= self._begin
        }
        if not self._leased_elsewhere:
            for queue_id, queue_end in self._ends_elsewhere.items():
                self._offsets.commit(POP_REVIVE_GROUP, self.topic, queue_id, queue_end - 1)
            self._ends_elsewhere.clear()

    def forget(self) -> None:
        """Keep the stored positions unchanged until they are read again."""
        self._is_replayed = self.is_taking_over = False
        self._ends_elsewhere.clear()
        self._leased_elsewhere.clear()

    @property
    def has_records(self) -> bool:
        """Whether the log contains any record of a lease."""
        return self._store.max_offset_in_queue(self.topic, QUEUE_ID) > 0

    def replay_steps(self) -> Generator[None, None, None]:
        """Read the leases and move consumer offsets past them; yield after each record.

        5.3.3 spreads its checkpoints over all queues. This broker writes their acknowledgements to
        the first queue, so it reads that one last.
        """
        self._restore_topics()
        self._begin = self._first_unread(QUEUE_ID)
        for queue_id in sorted(self._store.queue_ids(self.topic), reverse=True):
            yield from self._replay_queue(queue_id)
        self._is_replayed = True
        if self._leases.count or self._orders:
            logger.info(
                "leases loaded messages=%d checkpoints=%d ordered_queues=%d",
                self._leases.count,
                len(self._leases),
                len(self._orders),
            )

    def _restore_topics(self) -> None:
        """Recreate retry and dead-letter topics that a kill kept out of topics.json."""
        for topic in self._store.topics():
            is_ours = names.is_retry_topic(topic) or names.is_dlq_topic(topic)
            queue_ids = self._store.queue_ids(topic)
            if is_ours and queue_ids and topic not in self._topics.table:
                try:
                    self._topics.create_retry(topic, queue_ids[-1] + 1)
                except RequestRefusedError as error:
                    logger.warning("retry topic not restored reason=%s", error)

    def _first_unread(self, queue_id: int) -> int:
        committed = self._offsets.query(POP_REVIVE_GROUP, self.topic, queue_id)
        return max(self._store.min_offset_in_queue(self.topic, queue_id), committed + 1)

    def _replay_queue(self, queue_id: int) -> Generator[None, None, None]:
        store, topic = self._store, self.topic
        low = store.min_offset_in_queue(topic, queue_id)
        end = store.max_offset_in_queue(topic, queue_id)
        committed = self._offsets.query(POP_REVIVE_GROUP, topic, queue_id)
        offset = self._first_unread(queue_id)
        if queue_id != QUEUE_ID and offset < end:
            self._ends_elsewhere[queue_id] = end
        seen = self._offsets.query(POP_REVIVE_SEEN_GROUP, topic, queue_id)
        # 5.3.3 doesn't write `seen`, so it's unknown whether the offset or the record is newer.
        newer_from = seen if seen >= 0 else low if committed < 0 else end
        while offset < end:
            units = store.units(topic, queue_id, offset, UNITS_AT_ONCE)
            if not units:
                break
            for commit_log_offset, _, _ in units:
                self._replay_record(commit_log_offset, offset, is_newer=newer_from <= offset)
                offset += 1
                yield

    def _replay_record(self, commit_log_offset: int, offset: int, *, is_newer: bool) -> None:
        view = self._store.look_message(commit_log_offset)
        try:
            message = None if view is None else record.decode(view)
            if message is None or (message.topic, message.queue_offset) != (self.topic, offset):
                return
            self._apply(message, is_newer=is_newer)
        except (CorruptRecordError, msgspec.DecodeError, ValueError) as error:
            log_skipped(offset, commit_log_offset, error)

    def _apply(self, message: MessageExt, *, is_newer: bool) -> None:
        tag = message.properties.get(PROPERTY_TAGS)
        body = message.body
        if tag == records.TAG_CHECKPOINT:
            self._apply_checkpoint(records.decode_checkpoint(body), message, is_newer=is_newer)
        elif tag in (records.TAG_ACK, records.TAG_BATCH_ACK):
            ack = records.decode_ack(body)
            key = QueueKey(ack.group, ack.topic, ack.queue_id)
            found = self._leases.find(key, Handle(ack.start_offset, ack.pop_time_ms))
            if found is not None:
                offsets = [ack.ack_offset] if ack.offsets is msgspec.UNSET else ack.offsets
                for offset in offsets:
                    self._leases.end(found, offset)
        elif tag == records.TAG_ORDER:
            self._apply_order(records.decode_order(body), message, is_newer=is_newer)
        elif tag == records.TAG_ORDER_ACK:
            order_ack = records.decode_order_ack(body)
            key = QueueKey(order_ack.group, order_ack.topic, order_ack.queue_id)
            order = self._orders.get(key)
            if order is not None and order.pop_time_ms == order_ack.pop_time_ms:
                order.end_lease(order_ack.offset)
                if is_newer:
                    self.raise_offset(key, order.committed)
                if not order.times:
                    del self._orders[key]
        elif tag == records.TAG_GROUP_END:
            self._apply_group_end(records.decode_group_end(body), is_newer=is_newer)

    def _apply_group_end(self, end: records.GroupEndRecord, *, is_newer: bool) -> None:
        if is_newer and end.keeps_offsets:
            self.return_offsets(end.group)
        self._leases.drop_queues(group=end.group)
        self._orders.drop_queues(lambda key: key.group == end.group)
        if is_newer and not end.keeps_offsets:
            # Older records have just restored them.
            self._offsets.delete_group(end.group)

    def skip_delivered(self, queue_id: int, queue_offset: int) -> None:
        """Don't read a record that the timer service has put at the next start."""
        if queue_id != QUEUE_ID:
            self._ends_elsewhere[queue_id] = queue_offset + 1

    def checkpoint_of(self, found: records.CheckpointRecord, recorded_ms: int) -> Checkpoint | None:
        """Return the leases in a record, or None if their messages don't exist.

        Raises:
            ValueError: the record isn't valid.
        """
        offsets = [found.start_offset + delta for delta in found.deltas]
        if (
            not 0 < len(offsets) <= OFFSETS_MAX
            or offsets != sorted(set(offsets))
            or not 0 <= found.invisible_ms <= INVISIBLE_MS_MAX
        ):
            raise ValueError(
                f"it has no valid list of 1 to {OFFSETS_MAX} offsets, or no valid invisible time"
            )
        key = QueueKey(found.group, found.topic, found.queue_id)
        if not self._messages_exist(key, offsets[-1], recorded_ms):
            return None
        left_ms = found.pop_time_ms + found.invisible_ms - self._steady.now_ms()
        due = self._clock.monotonic() + max(0, min(left_ms, found.invisible_ms)) / 1000
        checkpoint = Checkpoint(
            key, found.start_offset, offsets, found.pop_time_ms, found.invisible_ms, due
        )
        checkpoint.acked = found.bits & BITS & ((1 << len(offsets)) - 1)
        checkpoint.is_suspended = found.suspend is True
        return checkpoint

    def _apply_checkpoint(
        self, found: records.CheckpointRecord, message: MessageExt, *, is_newer: bool
    ) -> None:
        key = QueueKey(found.group, found.topic, found.queue_id)
        again = self._leases.find(key, Handle(found.start_offset, found.pop_time_ms))
        if again is not None:
            self._leases.record_moved(again, self._record_offset(message))
            return
        checkpoint = self.checkpoint_of(found, message.store_timestamp)
        if checkpoint is None:
            return
        checkpoint.record_offset = self._record_offset(message)
        leased = self._leases.leased_offsets(key)
        for index, offset in enumerate(checkpoint.offsets):
            other = leased.get(offset)
            # Queues are read one after another, so the times decide which lease is newer.
            if other in self._leased_elsewhere and other.pop_time_ms > checkpoint.pop_time_ms:
                checkpoint.acked |= 1 << index
        if not checkpoint.is_done:
            self._leases.add(checkpoint)
            if message.queue_id != QUEUE_ID:
                self._leased_elsewhere.add(checkpoint)
        if is_newer:
            self.raise_offset(key, checkpoint.offsets[-1] + 1)

    def _record_offset(self, message: MessageExt) -> int:
        """Return the offset in the first queue from which a restart must read this record."""
        return message.queue_offset if message.queue_id == QUEUE_ID else self._begin

    def _apply_order(
        self, found: records.OrderRecord, message: MessageExt, *, is_newer: bool
    ) -> None:
        key = QueueKey(found.group, found.topic, found.queue_id)
        last = max(found.committed, found.end) - 1
        if last >= 0 and not self._messages_exist(key, last, message.store_timestamp):
            return
        order = Order(key, found.committed)
        order.end, order.attempt_id = found.end, found.attempt_id
        order.pop_time_ms, order.invisible_ms = found.pop_time_ms, found.invisible_ms
        order.acked = set(found.acked)
        order.times = dict(zip(found.offsets, found.times, strict=True))
        order.record_offset = message.queue_offset
        order.suspended = set(found.suspended or ())
        now, steady_ms = self._clock.monotonic(), self._steady.now_ms()
        for offset, visible_ms in zip(found.offsets, found.visible_ms, strict=True):
            if visible_ms:
                left_ms = min(visible_ms - steady_ms, INVISIBLE_MS_MAX)
                order.due[offset] = now + max(0, left_ms) / 1000
        if order.times:
            self._orders[key] = order
            self._orders.move_to_end(key)
        else:
            self._orders.discard(key)
        if is_newer:
            self.raise_offset(key, order.committed)

    def _messages_exist(self, key: QueueKey, last: int, recorded_ms: int) -> bool:
        """Return whether the leased messages exist; a recreated topic has different messages."""
        store = self._store
        end = store.max_offset_in_queue(key.topic, key.queue_id)
        stored_ms = store.store_timestamp(key.topic, key.queue_id, last)
        return last < end and stored_ms <= recorded_ms

    def raise_offset(self, key: QueueKey, offset: int) -> None:
        """Move a consumer offset forward to `offset`, to the end of a lease."""
        if key.topic not in self._topics.table:
            return
        offset = min(offset, self._store.max_offset_in_queue(key.topic, key.queue_id))
        if offset > self._offsets.query(key.group, key.topic, key.queue_id):
            self._offsets.commit(key.group, key.topic, key.queue_id, offset)

    def _put(self, tag: str, text: bytes) -> int:
        """Put a record; return its queue offset, or -1 if the store refuses it."""
        if self.topic not in self._topics.table:
            self._topics.create_retry(self.topic, QUEUE_NUMS)
        now_ms = self._clock.now_ms()
        result = self._store.put_message(
            self.topic,
            QUEUE_ID,
            text,
            # A 5.3.3 broker on this store reads the progress of the log from this property.
            encode_properties({PROPERTY_TAGS: tag, "TIMER_OUT_MS": str(now_ms)}),
            tags=tag,
            keys=None,
            uniq_key=None,
            flag=0,
            sys_flag=0,
            born_timestamp=now_ms,
            born_host=HOST,
        )
        if result.status is not PutMessageStatus.PUT_OK:
            return -1
        if not self._is_rewriting:
            self._rewrite_oldest(result.queue_offset)
        return result.queue_offset

    def _oldest(self, end: int) -> int:
        oldest = self._leases.oldest_record
        order = next(iter(self._orders.values()), None)
        places = [each.record_offset for each in (oldest, order) if each is not None]
        return min(places, default=end)

    def _rewrite_oldest(self, end: int) -> None:
        """Write an old lease again, so that a restart reads a short stretch of the log."""
        if self.is_taking_over:
            return
        held = len(self._leases) + len(self._orders)
        far = end - max(REPLAYED_MIN, REPLAYED_PER_LEASE * held)
        if far <= 0:
            return
        oldest = self._leases.oldest_record
        order = next(iter(self._orders.values()), None)
        self._is_rewriting = True
        try:
            if oldest is not None and oldest.record_offset < far:
                self.write_checkpoint(oldest)
            if order is not None and order.record_offset < far:
                self.write_order(order)
        finally:
            self._is_rewriting = False
