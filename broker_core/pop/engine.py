"""Lease messages to consumers, and end or change the leases.

When a concurrent group leases messages, its consumer offset moves past them immediately, and the
leases record the open messages. An ordered group's offset stays at the first open message of a
queue. So the offset means the same for pull consumers, mqadmin and lag: no message after it was
delivered, and no message before it is lost.

Source: broker/processor/PopMessageProcessor.java, AckMessageProcessor.java,
ChangeInvisibleTimeProcessor.java (5.3.3).
Differs: a handle without a lease changes nothing; RocketMQ stores any handle that a client sends.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.formats.record import decode, queue_offset_of
from broker_core.message.names import pop_retry_topic
from broker_core.pop.checkpoint import OFFSETS_MAX, Checkpoint, Handle, QueueKey
from broker_core.pop.leases import InFlight
from broker_core.pop.orders import Order, Orders
from broker_core.pop.reading import finish, last_record, records_of
from broker_core.pop.results import TO_END, ChangeResult, LeasedBatch, Outcome, PopResult
from broker_core.pop.revive_log import INVISIBLE_MS_MAX
from broker_core.store.results import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Generator, Iterator

    from broker_core.clock import Clock
    from broker_core.message.message import MessageExt
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.metadata.topics import Topics
    from broker_core.pop.leases import Leases
    from broker_core.pop.reading import Steps
    from broker_core.pop.results import PopRequest
    from broker_core.pop.revive_log import ReviveLog
    from broker_core.store.message_store import MessageStore

RETRIES_FIRST_EVERY = 5
"""Every fifth pop reads the retry topic before the topic itself."""
QUEUES_MAX = 1_024
"""Queues that one pop reads, which takes about three milliseconds."""
FILTERED_ROUNDS = 8
"""Reads of a queue in one pop while no message matches the filter."""
ATTEMPT_ID_CHARS_MAX = 255
SYSTEM_BUSY = 2
"""ResponseCode.SYSTEM_BUSY, repeated because this layer doesn't import the protocol."""
OFFSET_INVALID = frozenset(
    {GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_OVERFLOW_BADLY}
)
NO_MATCH = frozenset({GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.MESSAGE_WAS_REMOVING})


class PopEngine:
    """Event loop only.

    Attributes:
        leases: leases of concurrent groups.
        orders: leases of ordered groups, by age of their last record, oldest first.
        log: stores both in the message log.
        on_due_sooner: called with the end of a new lease, in monotonic seconds.
        on_unblocked: called with topic and queue_id after an ordered group acknowledged a batch.
        bury: puts an ordered message to the group's dead letters; returns False if the store
            refuses it.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        offsets: ConsumerOffsets,
        leases: Leases,
        orders: Orders,
        log: ReviveLog,
        clock: Clock,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self.leases = leases
        self.orders = orders
        self.log = log
        self._clock = clock
        self._turn = 0
        self._reading: set[QueueKey] = set()
        self.on_due_sooner: Callable[[float], None] = lambda _due: None
        self.on_unblocked: Callable[[str, int], None] = lambda _topic, _queue_id: None
        self.bury: Callable[[MessageExt, str], bool] = lambda _message, _group: False

    def pop(self, request: PopRequest) -> PopResult | Awaitable[PopResult]:
        """Lease up to `count` messages. The result is awaitable if some aren't in memory.

        Raises:
            RequestRefusedError: the group has no consumer offset yet and the table of offsets is
                full, or this broker is still reading the leases.
        """
        self._require_leases()
        invisible_ms = max(0, min(request.invisible_ms, INVISIBLE_MS_MAX))
        popped = PopResult(self._clock.now_ms(), invisible_ms)
        steps = self._steps(request, popped)
        try:
            reading = next(steps)
        except StopIteration:
            return popped
        return finish(steps, reading, popped)

    def peek(self, request: PopRequest) -> PopResult | Awaitable[PopResult]:
        """Return the messages that a pop would find, without leasing them."""
        popped = PopResult(0, 0)
        steps = self._peek_steps(request, popped)
        try:
            reading = next(steps)
        except StopIteration:
            return popped
        return finish(steps, reading, popped)

    def acknowledge(self, key: QueueKey, handle: Handle, offsets: Container[int]) -> Outcome:
        """End the leases of a handle whose offsets are in `offsets`.

        Returns DONE if at least one lease ended, GONE if no lease existed, and UNWRITABLE if the
        store refused the record, which keeps every lease.

        Raises:
            RequestRefusedError: this broker is still reading the leases.
        """
        self._require_leases()
        checkpoint = self.leases.find(key, handle)
        if checkpoint is None:
            return Outcome.GONE
        acknowledged = [offset for offset in checkpoint.leased() if offset in offsets]
        if not acknowledged:
            return Outcome.GONE
        if not self.log.write_acks(checkpoint, acknowledged):
            return Outcome.UNWRITABLE
        for offset in acknowledged:
            self.leases.end(checkpoint, offset)
        return Outcome.DONE

    def acknowledge_ordered(
        self, key: QueueKey, pop_time_ms: int, offsets: Container[int]
    ) -> Outcome:
        """End leases of an ordered group, and move its offset to the first open message.

        Returns and raises as `acknowledge` does.
        """
        self._require_leases()
        order = self._order(key)
        if order is None or order.pop_time_ms != pop_time_ms:
            return Outcome.GONE
        outcome = Outcome.GONE
        for offset in [each for each in order.due if each in offsets]:
            if not self.log.write_order_ack(order, offset):
                outcome = Outcome.UNWRITABLE
                break
            order.end_lease(offset)
            outcome = Outcome.DONE
        self._offsets.commit(*key, order.committed)
        if not order.times:
            del self.orders[key]
        if not order.due:
            self.on_unblocked(key.topic, key.queue_id)
        return outcome

    def change_invisible(
        self,
        key: QueueKey,
        handle: Handle,
        offset: int,
        invisible_ms: int,
        *,
        is_suspended: bool = False,
    ) -> ChangeResult:
        """Make a lease end `invisible_ms` from now; if suspended, its delivery isn't counted.

        Raises as `acknowledge` does.
        """
        self._require_leases()
        checkpoint = self.leases.find(key, handle)
        if checkpoint is None or not checkpoint.is_leased(offset):
            return ChangeResult(Outcome.GONE)
        invisible_ms = max(0, min(invisible_ms, INVISIBLE_MS_MAX))
        # A new handle, so that the holder of the old one can't end the new lease.
        pop_time_ms = max(self._clock.now_ms(), checkpoint.pop_time_ms + 1)
        while self.leases.find(key, Handle(offset, pop_time_ms)) is not None:
            pop_time_ms += 1
        due = self._clock.monotonic() + invisible_ms / 1000
        changed = Checkpoint(key, offset, [offset], pop_time_ms, invisible_ms, due)
        changed.is_suspended = is_suspended
        if not self.log.write_checkpoint(changed):
            return ChangeResult(Outcome.UNWRITABLE)
        # After a restart, the log alone must show which lease of a message is newer.
        self.leases.add(changed)
        self.log.write_acks(checkpoint, [offset])
        self.on_due_sooner(due)
        return ChangeResult(Outcome.DONE, pop_time_ms, invisible_ms)

    def change_invisible_ordered(
        self,
        key: QueueKey,
        pop_time_ms: int,
        offset: int,
        invisible_ms: int,
        *,
        is_suspended: bool = False,
    ) -> ChangeResult:
        """Like `change_invisible`, for an ordered message, which keeps its handle."""
        self._require_leases()
        order = self._order(key)
        if order is None or order.pop_time_ms != pop_time_ms or offset not in order.due:
            return ChangeResult(Outcome.GONE)
        invisible_ms = max(0, min(invisible_ms, INVISIBLE_MS_MAX))
        now_ms = self._clock.now_ms()
        before = order.due[offset], order.suspended
        order.due[offset] = self._clock.monotonic() + invisible_ms / 1000
        order.suspended = order.suspended - {offset} | ({offset} if is_suspended else set())
        if not self.log.write_order(order):
            order.due[offset], order.suspended = before
            return ChangeResult(Outcome.UNWRITABLE)
        self.on_due_sooner(self.orders.schedule(order))
        return ChangeResult(Outcome.DONE, pop_time_ms, max(0, now_ms + invisible_ms - pop_time_ms))

    def has_message(self, request: PopRequest) -> bool:
        """Return whether a pop may find a message, regardless of its filter.

        Always true for a topic with more queues than one pop reads.
        """
        if self._has_more_queues(request):
            return True
        if not request.is_ordered:
            retry = pop_retry_topic(request.group, request.topic)
            if any(
                self._backlog(QueueKey(request.group, retry, each)) for each in self._ids(retry)
            ):
                return True
        return any(
            self._backlog(key) and not self._is_blocked(key, request) for key in self._keys(request)
        )

    def leased_by(self, key: QueueKey, handle: Handle, *, is_ordered: bool) -> list[int]:
        """Return the offsets of a handle that are still leased."""
        if is_ordered:
            order = self._order(key)
            is_current = order is not None and order.pop_time_ms == handle.pop_time_ms
            return list(order.due) if order is not None and is_current else []
        checkpoint = self.leases.find(key, handle)
        return [] if checkpoint is None else checkpoint.leased()

    def in_flight(self) -> Iterator[tuple[QueueKey, InFlight]]:
        """Yield the leased messages of each group by queue, omitting queues without leases.

        The leases may change during the iteration.
        """
        for key in self.leases.queues():
            if key not in self.orders and (held := self.leases.in_flight_of(key)).message_count:
                yield key, held
        for key, order in list(self.orders.items()):
            if (held := self._in_flight(order)).message_count:
                yield key, held

    def in_flight_of(self, group: str, topic: str, queue_id: int) -> InFlight:
        """Return a group's leased messages in a queue."""
        key = QueueKey(group, topic, queue_id)
        order = self.orders.get(key)
        return self.leases.in_flight_of(key) if order is None else self._in_flight(order)

    def _in_flight(self, order: Order) -> InFlight:
        now = self._clock.monotonic()
        return InFlight(sum(due > now for due in order.due.values()), order.pop_time_ms)

    def clear(self) -> None:
        """Drop all leases, before this broker becomes a slave or reads them from the log."""
        self.log.forget()
        self.orders.clear()
        self.leases.clear()

    def forget_topic(self, topic: str) -> None:
        """End the leases in a deleted topic."""
        self._drop_orders(lambda key: key.topic == topic)
        self.leases.drop_queues(topics=frozenset({topic}))

    def forget_group(self, group: str) -> None:
        """End the leases of a deleted group; kept offsets return to its first leased messages."""
        ended = self._drop_orders(lambda key: key.group == group)
        self.log.return_offsets(group)
        ended += self.leases.drop_queues(group=group)
        if ended:
            # Ordered leases, too, mustn't delete kept offsets when the record is read again.
            self.log.write_group_end(group, keeps_offsets=bool(self._offsets.topics_of(group)))

    def _drop_orders(self, is_deleted: Callable[[QueueKey], bool]) -> int:
        """Drop ordered leases; a pop that is reading one of the queues leases nothing."""
        self._reading = {key for key in self._reading if not is_deleted(key)}
        return self.orders.drop_queues(is_deleted)

    def _require_leases(self) -> None:
        if not self.log.is_read:
            raise RequestRefusedError(
                SYSTEM_BUSY,
                "this broker has just become master and is reading its leases; try again in a "
                "second",
            )

    def _steps(self, request: PopRequest, popped: PopResult) -> Steps:
        """Read the queues one after another; yield each read that must be awaited."""
        self._turn += 1
        retries_first = self._turn % RETRIES_FIRST_EVERY == 0
        if not request.is_ordered and retries_first:
            yield from self._retries(request, popped)
        popped_from = self._ordered if request.is_ordered else self._concurrent
        for key in self._keys(request):
            yield from popped_from(key, request, popped)
        popped.is_partial = popped.is_partial or self._has_more_queues(request)
        if not request.is_ordered and not retries_first:
            yield from self._retries(request, popped)

    def _peek_steps(self, request: PopRequest, popped: PopResult) -> Steps:
        retry = pop_retry_topic(request.group, request.topic)
        retries = [QueueKey(request.group, retry, queue_id) for queue_id in self._ids(retry)]
        for key in (*self._keys(request), *retries):
            room = request.count - popped.count
            if room <= 0:
                break
            is_retry = key.topic == retry
            offset = self._offset(key, request, is_retry=is_retry)
            result = self._get(key, offset, room, request)
            if not isinstance(result, GetMessageResult):
                result = yield result
            popped.rest_count += self._backlog(key)
            if result.status is GetMessageStatus.FOUND:
                found = list(records_of(result))
                offsets = [queue_offset_of(each) for each in found]
                popped.count += len(found)
                popped.batches.append(
                    LeasedBatch(key, is_retry, offset, offsets, found, [0] * len(found))
                )

    def _retries(self, request: PopRequest, popped: PopResult) -> Steps:
        topic = pop_retry_topic(request.group, request.topic)
        for queue_id in self._ids(topic):
            key = QueueKey(request.group, topic, queue_id)
            yield from self._concurrent(key, request, popped, is_retry=True)

    def _keys(self, request: PopRequest) -> list[QueueKey]:
        """Return up to QUEUES_MAX queues to read; each pop starts one queue further."""
        if request.queue_id >= 0:
            return [QueueKey(request.group, request.topic, request.queue_id)]
        ids = self._ids(request.topic)
        first = self._turn % len(ids) if ids else 0
        in_turn = itertools.chain(ids[first:], ids[:first])
        return [
            QueueKey(request.group, request.topic, queue_id)
            for queue_id in itertools.islice(in_turn, QUEUES_MAX)
        ]

    def _has_more_queues(self, request: PopRequest) -> bool:
        return request.queue_id < 0 and len(self._ids(request.topic)) > QUEUES_MAX

    def _ids(self, topic: str) -> range:
        found = self._topics.find(topic)
        return range(0 if found is None else found.read_queue_nums)

    def _concurrent(
        self, key: QueueKey, request: PopRequest, popped: PopResult, *, is_retry: bool = False
    ) -> Steps:
        """Lease messages of one queue."""
        room = min(request.count - popped.count, OFFSETS_MAX)
        rounds = 0
        while room > 0 and rounds < FILTERED_ROUNDS and not popped.is_unwritable:
            rounds += 1
            if key in self._reading:
                break
            may = self.leases.room(key.group)
            if not may:
                popped.is_full = True
                break
            offset = self._offset(key, request, is_retry=is_retry)
            result = self._get(key, offset, min(room, may), request)
            if not isinstance(result, GetMessageResult):
                read = yield from self._wait_for(key, result)
                if read is None:
                    break
                result = read
                if self._offsets.query(*key) not in (offset, -1):
                    continue  # An administrator reset it during the read.
            if result.status in OFFSET_INVALID or result.status in NO_MATCH:
                self._offsets.commit(*key, result.next_begin_offset)
                continue
            if result.status is not GetMessageStatus.FOUND:
                break
            before = popped.count
            self._lease(key, offset, result, popped, is_retry=is_retry)
            if popped.count > before:
                break
        else:
            popped.is_partial = popped.is_partial or rounds == FILTERED_ROUNDS
        popped.rest_count += self._backlog(key)

    def _lease(
        self,
        key: QueueKey,
        start: int,
        result: GetMessageResult,
        popped: PopResult,
        *,
        is_retry: bool,
    ) -> None:
        leased = self.leases.leased_offsets(key)
        found = [
            (offset, each)
            for each in records_of(result)
            if (offset := queue_offset_of(each)) not in leased
        ]
        # The table of offsets may refuse a new group; then nothing is leased.
        self._offsets.commit(*key, start)
        if found:
            offsets = [offset for offset, _ in found]
            due = self._clock.monotonic() + popped.invisible_ms / 1000
            checkpoint = Checkpoint(
                key, start, offsets, popped.pop_time_ms, popped.invisible_ms, due
            )
            if self.leases.find(key, checkpoint.handle) is not None:
                return  # A reset and a second pop in the same millisecond would repeat the handle.
            if not self.log.write_checkpoint(checkpoint):
                popped.is_unwritable = True
                return
            self.leases.add(checkpoint)
            self.on_due_sooner(due)
            popped.count += len(offsets)
            popped.batches.append(
                LeasedBatch(
                    key, is_retry, start, offsets, [each for _, each in found], [0] * len(offsets)
                )
            )
        self._offsets.commit(*key, result.next_begin_offset)

    def _ordered(self, key: QueueKey, request: PopRequest, popped: PopResult) -> Steps:
        """Lease messages of one queue to an ordered group, unless it still has a batch leased."""
        room = min(request.count - popped.count, OFFSETS_MAX)
        rounds = 0
        while room > 0 and rounds < FILTERED_ROUNDS and not popped.is_unwritable:
            rounds += 1
            if key in self._reading or self._is_blocked(key, request):
                return
            if not self.leases.room(key.group):
                popped.is_full = True
                break
            offset = self._offset(key, request, is_retry=False)
            result = self._get(key, offset, room, request)
            if not isinstance(result, GetMessageResult):
                read = yield from self._wait_for(key, result)
                if read is None:
                    return
                result = read
                if self._offsets.query(*key) not in (offset, -1) or self._is_blocked(key, request):
                    continue
            if result.status in OFFSET_INVALID or result.status in NO_MATCH:
                self._offsets.commit(*key, result.next_begin_offset)
                continue
            if result.status is not GetMessageStatus.FOUND:
                break
            before = popped.count
            if self._lease_ordered(key, offset, result, request, popped):
                popped.rest_count -= popped.count - before
                break
        else:
            popped.is_partial = popped.is_partial or rounds == FILTERED_ROUNDS
        popped.rest_count += self._backlog(key)

    def _lease_ordered(
        self,
        key: QueueKey,
        start: int,
        result: GetMessageResult,
        request: PopRequest,
        popped: PopResult,
    ) -> bool:
        """Lease a batch; return False if all messages became dead letters and others may follow."""
        self._offsets.commit(*key, start)
        order = self._order(key)
        is_new = order is None
        if order is None:
            order = Order(key, start)
        found: list[tuple[int, memoryview]] = []
        for each in records_of(result):
            offset = queue_offset_of(each)
            if offset < order.committed or offset in order.acked:
                continue
            if order.is_dead(offset, request.attempt_id, request.retries_max):
                if found:
                    break  # The messages before it come first.
                if not self.bury(decode(each), key.group):
                    popped.is_unwritable = True
                    break
                order.skip(offset)
                continue
            found.append((offset, each))
        self._offsets.commit(*key, order.committed)
        if not found:
            # All are dead letters or acknowledged, so continue after them.
            if is_new or popped.is_unwritable:
                return True
            if not order.times:
                order.committed = max(order.committed, result.next_begin_offset)
                del self.orders[key]
            self._offsets.commit(*key, order.committed)
            return not self.log.write_order(order)
        if popped.is_unwritable:
            return True
        offsets = [offset for offset, _ in found]
        is_whole = offsets[-1] == queue_offset_of(last_record(result))
        end = result.next_begin_offset if is_whole else offsets[-1] + 1
        due = self._clock.monotonic() + popped.invisible_ms / 1000
        attempt_id = None
        if request.attempt_id and len(request.attempt_id) <= ATTEMPT_ID_CHARS_MAX:
            attempt_id = request.attempt_id
        order.lease(offsets, end, popped.pop_time_ms, popped.invisible_ms, due, attempt_id)
        if not self.log.write_order(order):
            # The next pop leases them.
            order.due.clear()
            popped.is_unwritable = True
            return True
        self.orders[key] = order
        self.orders.move_to_end(key)
        self.on_due_sooner(self.orders.schedule(order))
        popped.count += len(offsets)
        popped.batches.append(
            LeasedBatch(
                key,
                False,
                start,
                offsets,
                [each for _, each in found],
                [order.times[offset] for offset in offsets],
            )
        )
        return True

    def _order(self, key: QueueKey) -> Order | None:
        """Return an ordered group's last batch, or None if its offset was reset."""
        order = self.orders.get(key)
        if order is not None and order.committed != self._offsets.query(*key):
            del self.orders[key]
            return None
        return order

    def _is_blocked(self, key: QueueKey, request: PopRequest) -> bool:
        if not request.is_ordered:
            return False
        order = self._order(key)
        if order is None:
            return not self.orders.has_room(key.group, self.leases.ordered_queues_max)
        until = order.blocked_until(request.attempt_id)
        return until > self._clock.monotonic() or order.repeats_handles(
            self._clock.now_ms(), request.attempt_id
        )

    def _offset(self, key: QueueKey, request: PopRequest, *, is_retry: bool) -> int:
        """Return the offset from which a group reads a queue."""
        offset = self._offsets.query(*key)
        if offset >= 0:
            return offset
        _, topic, queue_id = key
        low = self._store.min_offset_in_queue(topic, queue_id)
        if is_retry or request.init_mode != TO_END:
            return low
        if low == 0 and self._store.is_in_memory(topic, queue_id, 0) is not False:
            return 0
        # As in RocketMQ, start with the last message.
        return max(low, self._store.max_offset_in_queue(topic, queue_id) - 1)

    def _backlog(self, key: QueueKey) -> int:
        offset = self._offsets.query(*key)
        low = self._store.min_offset_in_queue(key.topic, key.queue_id)
        return max(0, self._store.max_offset_in_queue(key.topic, key.queue_id) - max(offset, low))

    def _get(
        self, key: QueueKey, offset: int, count: int, request: PopRequest
    ) -> GetMessageResult | Awaitable[GetMessageResult]:
        return self._store.get_message(
            key.topic, key.queue_id, offset, count, request.message_filter
        )

    def _wait_for(
        self, key: QueueKey, result: Awaitable[GetMessageResult]
    ) -> Generator[Awaitable[GetMessageResult], GetMessageResult, GetMessageResult | None]:
        """Keep other pops out of the queue during a read; both would find the same messages.

        Return None if the topic or the group was deleted during the read.
        """
        self._reading.add(key)
        try:
            read = yield result
            return read if key in self._reading else None
        finally:
            self._reading.discard(key)
