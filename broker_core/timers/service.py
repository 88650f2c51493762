"""Store timer messages and deliver each one when it is due.

A pending message is in queue 0 of rmq_sys_wheel_timer. The properties contain its due time
(TIMER_OUT_MS) and its destination (REAL_TOPIC, REAL_QID). The delivered message is a copy with the
same properties plus TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS, as in RocketMQ.

Each turn writes a completion record after its copies (`completions`), so the log alone shows which
timers are pending, after any crash and on any slave. Before retention deletes a log file, the
service moves the file's pending timers to the end of the queue. It also moves a timer that many
finished timers follow, because a restart would have to read them all.

Source: store/timer/TimerMessageStore.java (5.3.3).
Differs: a message is delivered in its millisecond, never early; RocketMQ uses slots of one
second. A timer that outlives the log's retention is moved; RocketMQ loses it. A recalled message is
removed immediately; RocketMQ stores a second message that cancels the first one when both are due.
The broker doesn't read or write RocketMQ's timerwheel and timerlog, but it reads its
config/timercheck.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from broker_core.errors import BrokerError, RequestRefusedError
from broker_core.formats import record
from broker_core.message.names import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    RMQ_SYS_TIMER_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    TIMER_COMPLETION_QUEUE_ID,
    TIMER_QUEUE_ID,
)
from broker_core.protocol.codes import ResponseCode
from broker_core.service import Service
from broker_core.store.results import GetMessageResult, PutMessageStatus
from broker_core.timers import completions
from broker_core.timers.completions import NO_COPY, Completion, FinishedTimer
from broker_core.timers.delivery_time import DeliveryTime, delivery_time_of
from broker_core.timers.pending import PendingTimers, TimerClock
from broker_core.timers.recovery import (
    HASH_MAX,
    CompletionRecords,
    TimerRecovery,
    due_ms_of,
    read_message,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker_core.clock import Clock, SteadyClock
    from broker_core.config.limits import LimitsConfig
    from broker_core.config.store import StoreConfig
    from broker_core.counted_log import CountedLog
    from broker_core.message.message import MessageExt
    from broker_core.store.results import PutMessageResult
    from broker_core.timers.checkpoint import Checkpoint
    from broker_core.timers.events import Events
    from broker_core.timers.recall_handle import RecallHandle
    from broker_core.timers.store import TimerStore

    Place = tuple[str, int]

logger = logging.getLogger(__name__)

TIMERS_PER_TURN = 32
TURN_S = 0.004
"""Maximum length of a turn, so that timers with large bodies don't block the event loop."""
RETRY_MS = 100
UNREADABLE_RETRY_MS = 5
FAILURE_MS = 1_000
CLOCK_CHECK_MS = 200
"""How often to read the wall clock, which someone may set, while a timer depends on it."""
FLUSH_CHECK_MS = 1_000
"""How often to check whether delivered copies are flushed."""
SPAN_MIN = 100_000
SPAN_PER_TIMER = 2
"""The oldest timers are moved when a restart would have to read more queue offsets than this."""
MATCHES_MAX = 16
"""Messages returned for one key."""
ILLEGAL = frozenset({PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED})


class TimerService(Service):
    """Delivers timer messages. Event loop only.

    Attributes:
        is_loaded: whether the pending timers are known; a master reads them after it starts.
    """

    def __init__(
        self,
        store: TimerStore,
        config: StoreConfig,
        limits: LimitsConfig,
        counted_log: CountedLog,
        clock: Clock,
        steady: SteadyClock,
        store_host: bytes,
        checkpoint: Callable[[], Checkpoint],
        events: Events,
    ) -> None:
        super().__init__()
        self.is_loaded = False
        self._store = store
        self._config = config
        self._limits = limits
        self._counted_log = counted_log
        self._clock = clock
        self._steady = steady
        self._store_host = store_host
        self._checkpoint = checkpoint
        self._events = events
        self._pending = PendingTimers()
        self._unrecorded: list[FinishedTimer] = []
        """Finished timers that aren't in a completion record yet."""
        self._unflushed: deque[tuple[int, int]] = deque()
        """The log offset of each unflushed completion record, and the lowest queue offset in it.
        The copies precede the record in the log."""
        self._recorded_first = 0
        """The first queue offset in the last completion record."""
        self._put_end = 0
        """The queue offset after the last put; timers before it may not be readable yet."""
        self._move_before = 0
        """Timers before this log offset must be moved."""
        self._wake_up = asyncio.Event()

    def begin(self) -> None:
        """Forget all timers; a master that starts, or a promoted slave, then reads its store."""
        self.is_loaded = False
        self._pending = PendingTimers()
        self._unrecorded = []
        self._unflushed.clear()
        self._recorded_first = 0
        self._put_end = self._move_before = 0

    def start(self) -> None:
        """Read the pending timers, then deliver them in the background."""
        self._wake_up = asyncio.Event()
        self.spawn_forever(self._clock, self._deliver_forever, name="timers")

    async def shutdown(self) -> None:
        """Stop delivering, and record the finished timers."""
        await super().shutdown()
        if self.is_loaded:
            self._record_finished()
        self.is_loaded = False

    @property
    def count(self) -> int:
        """Number of pending timers."""
        return self._pending.count

    @property
    def next_due_ms(self) -> int | None:
        """The next due time by the wall clock, or None if no timer is pending."""
        now_ms = self._clock.now_ms()
        wait_ms = self._pending.wait_ms(now_ms, self._steady.now_ms())
        return None if wait_ms is None else now_ms + wait_ms

    def upcoming(self, count: int) -> list[tuple[int, int]]:
        """Return (due_ms by the wall clock, queue_offset) of the next timers, soonest first."""
        now_ms = self._clock.now_ms()
        found = self._pending.upcoming(count, now_ms, self._steady.now_ms())
        return [(now_ms + wait_ms, queue_offset) for wait_ms, queue_offset in found]

    def message_at(self, queue_offset: int) -> MessageExt | None:
        """Return a pending message, or None if it isn't pending or not readable yet."""
        found = self._read(queue_offset) if self._pending.is_pending(queue_offset) else None
        return None if isinstance(found, int) else found

    def find_by_key(self, key: str) -> list[tuple[int, MessageExt]]:
        """Return (due_ms, message) of the pending messages with a key, soonest first."""
        views = self._store.query_message(RMQ_SYS_TIMER_TOPIC, key, MATCHES_MAX, 0, 1 << 62)
        found = [
            (due_ms_of(message.properties) or 0, message)
            for message in map(record.decode, views)
            if message.queue_id == TIMER_QUEUE_ID and self._pending.is_pending(message.queue_offset)
        ]
        return sorted(found, key=lambda each: each[0])

    def defer(self, properties: dict[str, str], topic: str, queue_id: int) -> Place | None:
        """Return the topic and queue where a timer message is stored until it is due.

        None if the message requests no delivery time, or a time in the past. Adds the due time and
        the destination to `properties`.

        Raises:
            RequestRefusedError: the time isn't a number or is too far ahead, timers are disabled,
                or too many are pending.
        """
        now_ms = self._clock.now_ms()
        try:
            wanted = delivery_time_of(properties, now_ms)
        except ValueError as error:
            raise self._illegal() from error
        if wanted is None:
            return None
        if not self._config.timer_wheel_enable:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false",
            )
        if PROPERTY_TIMER_DEL_UNIQKEY in properties:
            # Differs: RocketMQ lets any producer cancel any topic's message this way.
            raise self._illegal()
        if wanted.due_ms <= now_ms:
            return None
        if wanted.due_ms - now_ms > self._config.timer_max_delay_sec * 1000:
            raise self._illegal()
        limit = self._limits.pending_timer_nums_max
        if self._pending.size >= limit:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control, max num limit is {limit}: "
                "pendingTimerNumsMax",
            )
        properties[PROPERTY_TIMER_OUT_MS] = str(wanted.due_ms)
        properties[PROPERTY_REAL_TOPIC] = topic
        properties[PROPERTY_REAL_QUEUE_ID] = str(queue_id)
        return RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID

    def note_put(self, result: PutMessageResult, properties: Mapping[str, str]) -> None:
        """Add a message that was deferred and then put."""
        if self._events.on_deferred is not None:
            self._events.on_deferred(TIMER_QUEUE_ID, result)
        due_ms = int(properties[PROPERTY_TIMER_OUT_MS])
        requested = {k: v for k, v in properties.items() if k != PROPERTY_TIMER_OUT_MS}
        wanted = delivery_time_of(requested, 0)
        self._add(result.queue_offset, DeliveryTime(due_ms, wanted is None or wanted.is_delay))

    def recall(self, handle: RecallHandle) -> PutMessageResult | None:
        """Remove a pending message; return the put of its completion record.

        None if no pending message has the topic, time and unique key of the handle.
        """
        found = self._find(handle)
        if found is None:
            return None
        # The record is written first: then a failed put changes nothing.
        result = self._put_completion((FinishedTimer(found),))
        if result.status is PutMessageStatus.PUT_OK:
            self._pending.remove(found)
            self._wake_up.set()
            logger.info("timer message recalled topic=%s uniq_key=%s", handle[0], handle[3])
        return result

    def may_delete_before(self, commit_log_offset: int) -> bool:
        """Return whether the log before an offset can be deleted; if not, move its timers soon."""
        if not self.is_loaded and not self._store.availability.is_slave:
            return False
        first = self._first_offset()
        units = self._store.units(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID, first, 1)
        if not units or units[0][0] >= commit_log_offset:
            return True
        self._move_before = max(self._move_before, commit_log_offset)
        self._wake_up.set()
        return False

    async def load(self) -> None:
        """Read the pending timers in small steps that don't block the event loop.

        They stay unloaded if another service can't store the messages that it claimed.
        """
        recovery = TimerRecovery(self._store, self._checkpoint(), self._events.claim)
        while recovery.step():
            await self._clock.sleep(0)
        if not await self._events.store_claimed():
            await self._clock.sleep(RETRY_MS / 1000)
            return
        self._pending = recovery.finish()
        self._recorded_first = recovery.first_offset
        first = self._pending.first_offset
        self._unrecorded = [FinishedTimer(each) for each in recovery.unrecorded if each >= first]
        self.is_loaded = True
        self._events.on_loaded()
        if self._pending.count:
            logger.info(
                "timers loaded pending=%d first_offset=%d next_offset=%d",
                self._pending.count,
                first,
                self._pending.next_offset,
            )

    async def deliver_due(self) -> int | None:
        """Deliver some due messages; return the milliseconds until the next call.

        None means that no call is needed until a message is put.
        """
        # A move frees space on a full disk, so it must not wait for space.
        if not self._record_finished() and not await self._move_some():
            return RETRY_MS
        pending, again_ms = self._pending, None
        if pending.next_offset < self._put_end and not self._catch_up():
            again_ms = UNREADABLE_RETRY_MS
        wall_ms, steady_ms = self._clock.now_ms(), self._steady.now_ms()
        end_s = self._clock.monotonic() + TURN_S
        for _ in range(TIMERS_PER_TURN):
            queue_offset = pending.due(wall_ms, steady_ms)
            if queue_offset is None:
                break
            await self._page_in(queue_offset)
            if pending.is_pending(queue_offset):
                failed_ms = self._deliver(queue_offset)
                if failed_ms is not None:
                    again_ms = failed_ms
                    break
            if self._clock.monotonic() > end_s:
                break
        is_recorded = self._record_finished()
        if await self._move_some():
            return 0
        if not is_recorded:
            return RETRY_MS
        if again_ms is not None:
            return again_ms
        self._record_first()
        wait_ms = pending.wait_ms(self._clock.now_ms(), self._steady.now_ms())
        if wait_ms is not None and pending.next_due(TimerClock.WALL) is not None:
            wait_ms = min(wait_ms, CLOCK_CHECK_MS)
        if self._unflushed:
            wait_ms = FLUSH_CHECK_MS if wait_ms is None else min(wait_ms, FLUSH_CHECK_MS)
        return wait_ms

    def _first_offset(self) -> int:
        """Return the lowest queue offset that the log still needs; a slave's may be lower.

        A slave gets it from its master's completion records. A RocketMQ master writes no such
        records, so its slave keeps no file for timers.
        """
        if self.is_loaded:
            return self._first_unfinished()
        last = CompletionRecords(self._store).last()
        if last is None:
            return self._store.max_offset_in_queue(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID)
        low = self._store.min_offset_in_queue(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID)
        return max(low, last.first_offset)

    def _add(self, queue_offset: int, when: DeliveryTime) -> None:
        self._put_end = max(self._put_end, queue_offset + 1)
        if not self.is_loaded or queue_offset != self._pending.next_offset:
            # _catch_up adds it in order.
            self._wake_up.set()
            return
        clock = TimerClock.STEADY if when.is_delay else TimerClock.WALL
        due_ms = when.due_ms
        if when.is_delay:
            # Both clocks are read in whole milliseconds; rounding must not shorten a delay.
            due_ms += self._steady.now_ms() - self._clock.now_ms() + 1
        self._pending.add(queue_offset, due_ms, clock)
        if self._pending.next_due(clock) == (due_ms, queue_offset):
            self._wake_up.set()

    def _catch_up(self) -> bool:
        """Add timers that weren't readable when they were put; return whether all are added."""
        units = self._store.units(
            RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID, self._pending.next_offset, TIMERS_PER_TURN
        )
        for _, _, code in units:
            queue_offset = self._pending.next_offset
            if code > HASH_MAX:
                self._pending.add(queue_offset, code, TimerClock.WALL)
            else:
                self._pending.skip(1)
                self._unrecorded.append(FinishedTimer(queue_offset))
        return self._pending.next_offset >= self._put_end

    def _find(self, handle: RecallHandle) -> int | None:
        """Return the queue offset of the pending message that a handle identifies."""
        for due_ms, message in self.find_by_key(handle.uniq_key):
            if (
                message.uniq_key == handle.uniq_key
                and message.properties.get(PROPERTY_REAL_TOPIC) == handle.topic
                and due_ms == handle.due_ms
            ):
                return message.queue_offset
        return None

    async def _page_in(self, queue_offset: int) -> None:
        """Let a thread read a message from the disk, so that no page fault blocks the loop."""
        store = self._store
        if store.is_in_memory(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID, queue_offset) is False:
            result = store.get_message(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID, queue_offset, 1, None)
            if not isinstance(result, GetMessageResult):
                await result

    def _read(self, queue_offset: int) -> MessageExt | int | None:
        """Return a pending message, the milliseconds until a retry may find it, or None."""
        units = self._store.units(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID, queue_offset, 1)
        if not units:
            end = self._store.max_offset_in_queue(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID)
            # It was put, but isn't readable before the flush.
            return UNREADABLE_RETRY_MS if queue_offset >= end else None
        message = read_message(self._store, *units[0][:2])
        if message is None and self._store.availability.failure is not None:
            # The copy isn't flushed: a restart may read it, and a slave may have it.
            return RETRY_MS
        place = RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID, queue_offset
        if message is None or (message.topic, message.queue_id, message.queue_offset) != place:
            return None
        return message

    def _deliver(self, queue_offset: int) -> int | None:
        """Put a copy into the destination; return the milliseconds until a retry, or None."""
        message = self._read(queue_offset)
        if isinstance(message, int):
            return message
        if message is None:
            self._discard(queue_offset, "the message can't be read")
            return None
        try:
            topic = message.properties[PROPERTY_REAL_TOPIC]
            queue_id = int(message.properties[PROPERTY_REAL_QUEUE_ID])
        except (KeyError, ValueError) as error:
            self._discard(queue_offset, repr(error))
            return None
        if topic in (RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TIMER_TOPIC):
            self._discard(queue_offset, f"the destination is {topic}")
            return None
        properties = {
            **message.properties,
            PROPERTY_TIMER_ENQUEUE_MS: str(message.store_timestamp),
            PROPERTY_TIMER_DEQUEUE_MS: str(self._clock.now_ms()),
        }
        result = self._store.put_copy(message, topic, queue_id, properties)
        if result.status in ILLEGAL:
            # Every retry would be refused, and would block the messages after it.
            self._discard(queue_offset, result.status.name)
            return None
        if result.status is not PutMessageStatus.PUT_OK:
            self._counted_log.report(
                logger,
                logging.WARNING,
                "timer message not delivered, will retry",
                f"topic={topic}",
                "queue_offset=%d status=%s",
                queue_offset,
                result.status.name,
            )
            return RETRY_MS
        self._finish(queue_offset, result.commit_log_offset)
        if self._events.on_delivered is not None:
            self._events.on_delivered(message, topic, queue_id, result)
        return None

    def _finish(self, queue_offset: int, copy_offset: int = NO_COPY) -> None:
        if self._pending.remove(queue_offset):
            self._unrecorded.append(FinishedTimer(queue_offset, copy_offset))

    def _discard(self, queue_offset: int, reason: str) -> None:
        logger.error("timer message discarded queue_offset=%d reason=%s", queue_offset, reason)
        self._finish(queue_offset)

    def _record_finished(self) -> bool:
        """Put completion records for the finished timers; return whether all were put."""
        for batch in completions.batches(self._unrecorded):
            result = self._put_completion(tuple(batch))
            if result.status is not PutMessageStatus.PUT_OK:
                return False
            lowest = min(each.queue_offset for each in batch)
            self._unflushed.append((result.commit_log_offset, lowest))
        self._unrecorded.clear()
        return True

    def _record_first(self) -> None:
        """Put a record once all copies are flushed, so that slaves and restarts read less."""
        first = self._first_unfinished()
        if first > self._recorded_first and not self._unflushed:
            self._put_completion(())

    def _first_unfinished(self) -> int:
        """Return the lowest queue offset that is pending, or whose copy a power cut could lose."""
        unflushed, flushed_where = self._unflushed, self._store.flushed_where
        while unflushed and unflushed[0][0] <= flushed_where:
            unflushed.popleft()
        unrecorded = (each.queue_offset for each in self._unrecorded)
        return min([self._pending.first_offset, *(lowest for _, lowest in unflushed), *unrecorded])

    def _put_completion(self, timers: tuple[FinishedTimer, ...]) -> PutMessageResult:
        completion = Completion(self._first_unfinished(), self._pending.next_offset, timers)
        result = self._store.put_message(
            RMQ_SYS_TIMER_TOPIC,
            TIMER_COMPLETION_QUEUE_ID,
            completions.encode(completion),
            "",
            tags=None,
            keys=None,
            uniq_key=None,
            flag=0,
            sys_flag=0,
            born_timestamp=self._clock.now_ms(),
            born_host=self._store_host,
        )
        if result.status is PutMessageStatus.PUT_OK:
            self._recorded_first = completion.first_offset
        return result

    async def _move_some(self) -> bool:
        """Move timers from the front of the queue to its end if needed; return if any moved."""
        pending, moved = self._pending, False
        end_s = self._clock.monotonic() + TURN_S
        for _ in range(TIMERS_PER_TURN):
            first = pending.first_offset
            if first == pending.next_offset or not self._must_move(first):
                break
            await self._page_in(first)
            # On a full disk the move is needed to delete a file and free its space.
            with self._store.availability.override_full_disk():
                is_moved = not pending.is_pending(first) or self._move(first)
                if not is_moved or not self._record_finished():
                    break
            moved = True
            if self._clock.monotonic() > end_s:
                break
        return moved

    def _move(self, queue_offset: int) -> bool:
        """Copy a timer to the end of the queue and finish the old one; return success."""
        message = self._read(queue_offset)
        if isinstance(message, int):
            return False
        due_ms = None if message is None else due_ms_of(message.properties)
        if message is None or due_ms is None:
            self._discard(queue_offset, "the message can't be read")
            return True
        times = message.properties.get(PROPERTY_TIMER_ROLL_TIMES, "")
        properties = {
            **message.properties,
            PROPERTY_TIMER_ROLL_TIMES: str(int(times) + 1 if times.isdecimal() else 1),
        }
        result = self._store.put_copy(message, RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID, properties)
        if result.status is not PutMessageStatus.PUT_OK:
            return False
        self._add(result.queue_offset, DeliveryTime(due_ms, is_delay=False))
        self._finish(queue_offset, result.commit_log_offset)
        return True

    def _must_move(self, first: int) -> bool:
        if self._pending.span > SPAN_MIN + SPAN_PER_TIMER * self._pending.count:
            return True
        if not self._move_before:
            return False
        units = self._store.units(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID, first, 1)
        if units and units[0][0] < self._move_before:
            return True
        self._move_before = 0
        return False

    async def _deliver_forever(self) -> None:
        while not self.is_loaded:
            await self._retry_on_error(self.load)
        while True:
            await self._wait(await self._retry_on_error(self.deliver_due))

    async def _retry_on_error(self, step: Callable[[], Awaitable[int | None]]) -> int | None:
        try:
            return await step()
        except (BrokerError, OSError):
            logger.exception("timer step failed, will retry")
            await self._clock.sleep(FAILURE_MS / 1000)
            return 0

    async def _wait(self, wait_ms: int | None) -> None:
        """Wait for a time, or until an event wakes the service up."""
        if wait_ms is not None and wait_ms <= 0:
            await self._clock.sleep(0)
            return
        wake_up = self._wake_up
        timer = None
        if wait_ms is not None:
            timer = self._clock.call_at(self._clock.monotonic() + wait_ms / 1000, wake_up.set)
        try:
            await wake_up.wait()
        finally:
            if timer is not None:
                timer.cancel()
        wake_up.clear()

    def _illegal(self) -> RequestRefusedError:
        return RequestRefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{self._config.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time "
            "should be bigger than the current time",
        )
