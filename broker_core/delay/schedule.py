"""Delivery of delayed messages: from SCHEDULE_TOPIC_XXXX to their real topics.

Each level is a queue ordered by due time, with a separate task, so that a failure delays only that
level. A delivered message is a copy with all properties of the delayed one, including DELAY,
REAL_TOPIC and REAL_QID, as in RocketMQ.

Invariant: an offset is written to delayOffset.json after the copies before it are durable.
Source: store/schedule/ScheduleMessageService.java (4.9.7).
Differs: a level sleeps until its next message is due; RocketMQ checks ten times a second.
Messages of a level that messageDelayLevel no longer has are also delivered. A message that can
never be put is skipped; RocketMQ retries forever.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker_core.delay.due_times import DueTimes
from broker_core.errors import BrokerError, CorruptRecordError
from broker_core.formats import record
from broker_core.formats.cq_unit import FILLER_SIZE
from broker_core.isolation import FAILURES, isolated
from broker_core.message.names import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
)
from broker_core.service import Service
from broker_core.store.results import GetMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker_core.clock import Clock, SteadyClock
    from broker_core.counted_log import CountedLog
    from broker_core.delay.delay_offsets import DelayOffsets
    from broker_core.delay.levels import DelayLevels
    from broker_core.message.message import MessageExt
    from broker_core.store.availability import Availability
    from broker_core.store.results import MessageFilter, PutMessageResult

    DeliveryCallback = Callable[[MessageExt, str, int, PutMessageResult], None]
    DeferralCallback = Callable[[int, PutMessageResult], None]

logger = logging.getLogger(__name__)

UNITS_PER_TURN = 32
"""Messages of one level that are delivered before other levels get their turn."""
RETRY_MS = 100
FAILURE_MS = 10_000
FAILURES_MAX = 10
"""The schedule skips a message after this many unexpected failures in a row."""
IDLE_MS_MIN = 10
ILLEGAL = frozenset({PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED})


class DelayStore(Protocol):
    """The part of the store that the schedule needs."""

    availability: Availability

    def units(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]: ...

    def look_message(self, commit_log_offset: int) -> memoryview | None: ...

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool | None: ...

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult | Awaitable[GetMessageResult]: ...

    def put_copy(
        self, message: MessageExt, topic: str, queue_id: int, properties: Mapping[str, str]
    ) -> PutMessageResult: ...

    def queue_ids(self, topic: str) -> list[int]: ...

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int: ...

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int: ...

    async def flush(self) -> bool: ...


class ScheduleService(Service):
    """One task per level. Event loop only.

    `on_delivered` is called with the delayed message, its destination topic and queue_id, and the
    result of the put; `on_deferred` with the queue_id and the result of the put of each message
    that is delayed.
    """

    def __init__(
        self,
        levels: DelayLevels,
        store: DelayStore,
        offsets: DelayOffsets,
        counted_log: CountedLog,
        clock: Clock,
        steady: SteadyClock,
        *,
        flush_interval_ms: int,
        on_delivered: DeliveryCallback | None = None,
        on_deferred: DeferralCallback | None = None,
    ) -> None:
        super().__init__()
        self._on_delivered = on_delivered
        self._on_deferred = on_deferred
        self._levels = levels
        self._store = store
        self._offsets = offsets
        self._counted_log = counted_log
        self._clock = clock
        self._steady = steady
        self._flush_interval_s = flush_interval_ms / 1000
        self._due_times: dict[int, DueTimes] = {}
        self._moved: dict[int, asyncio.Event] = {}
        self._failed: dict[int, tuple[int, int]] = {}
        """The last failed message of each level, and how often it failed in a row."""
        self._followed: Mapping[int, int] = {}
        # An older text must not be written after a newer one.
        self._persisting = asyncio.Lock()

    def load(self) -> None:
        """Read the offsets.

        Raises:
            StoreError: delayOffset.json can't be read.
        """
        self._offsets.load()

    def begin(self) -> None:
        """Start with the current queues, and correct the offsets outside them.

        A master calls it before it starts, a slave when it becomes one: messages from its master
        are due by the wall time in their units.
        """
        levels = {queue_id + 1 for queue_id in self._store.queue_ids(RMQ_SYS_SCHEDULE_TOPIC)}
        self._due_times = {
            level: DueTimes(self._steady, self._levels.delay_ms(level))
            for level in sorted(levels.union(range(1, self._levels.max_level + 1)))
        }
        for level in sorted(levels):
            self._correct(level)

    async def follow(self, table: Mapping[int, int]) -> None:
        """Copy the offsets of the master and write them.

        An offset moves back only if the master's own moved back since the last call.
        """
        before, self._followed = self._followed, table
        for level, queue_offset in table.items():
            is_moved_back = queue_offset < before.get(level, 0)
            own = 0 if is_moved_back else self._offsets.get(level)
            self._offsets.move(level, max(queue_offset, own))
        async with self._persisting:
            if self._offsets.is_dirty:
                await self._offsets.write(self._offsets.writing())

    def start(self) -> None:
        self._moved = {level: asyncio.Event() for level in self._due_times}
        for level in self._due_times:
            self.spawn_forever(
                self._clock, partial(self._deliver_forever, level), name=f"delay-level-{level}"
            )
        self.spawn_forever(self._clock, self._persist_forever, name="delay-offsets")

    async def shutdown(self) -> None:
        """Stop delivering; write the offsets."""
        await super().shutdown()
        await self.persist()

    def note_put(self, queue_id: int, result: PutMessageResult) -> None:
        """Record that a message was just put into a queue of the schedule topic."""
        due_times = self._due_times.get(queue_id + 1)
        if due_times is not None and result.queue_offset >= 0:
            due_times.note_put(result.queue_offset, result.store_timestamp)
        if self._on_deferred is not None:
            self._on_deferred(queue_id, result)

    def range_of(self, level: int) -> tuple[int, int] | None:
        """Return the ends of a level's queue, which bound its offset; None: no such level."""
        if level not in self._due_times:
            return None
        return (
            self._store.min_offset_in_queue(RMQ_SYS_SCHEDULE_TOPIC, level - 1),
            self._store.max_offset_in_queue(RMQ_SYS_SCHEDULE_TOPIC, level - 1),
        )

    async def go_to(self, level: int, queue_offset: int) -> bool:
        """Set a level's next offset, within `range_of`; return whether it is stored.

        Messages in between are skipped, or delivered again. An offset that isn't stored yet is
        retried, and applies in this process meanwhile.
        """
        self._offsets.put(level, queue_offset)
        moved = self._moved.get(level)
        if moved is not None:
            moved.set()
        return await self.persist()

    def offset_of(self, level: int) -> int:
        """Return the queue_offset that a level delivers next."""
        return self._offsets.get(level)

    def document(self) -> dict[str, dict[int, int]]:
        """Return delayOffset.json's content."""
        return self._offsets.document()

    def runtime_info(self) -> dict[str, str]:
        """Return the rows of GET_BROKER_RUNTIME_INFO: for each level its offset and queue end."""
        return {
            f"scheduleMessageOffset_{level}": (
                f"{offset},{self._store.max_offset_in_queue(RMQ_SYS_SCHEDULE_TOPIC, level - 1)}"
            )
            for level, offset in sorted(self._offsets.table.items())
        }

    async def deliver_due(self, level: int) -> int:
        """Deliver some due messages of a level; return in how many milliseconds to call again."""
        store, queue_id = self._store, level - 1
        queue_offset = self._offsets.get(level)
        units = store.units(RMQ_SYS_SCHEDULE_TOPIC, queue_id, queue_offset, UNITS_PER_TURN)
        if not units:
            # A message put from now on is due only after the whole delay of the level.
            return 0 if self._correct(level) else max(self._levels.delay_ms(level), IDLE_MS_MIN)
        due_times, now_ms = self._due_times[level], self._steady.now_ms()
        if store.is_in_memory(RMQ_SYS_SCHEDULE_TOPIC, queue_id, queue_offset) is False:
            # It is no longer in memory: a thread reads it, so that no page fault blocks the loop.
            result = store.get_message(
                RMQ_SYS_SCHEDULE_TOPIC, queue_id, queue_offset, len(units), None
            )
            if not isinstance(result, GetMessageResult):
                await result
                if self._offsets.get(level) != queue_offset:
                    return 0  # The offset was moved meanwhile.
        for commit_log_offset, size, deliver_time_ms in units:
            due_ms = due_times.due_ms(queue_offset, deliver_time_ms)
            if due_ms > now_ms:
                return due_ms - now_ms
            if size != FILLER_SIZE and not self._deliver_one(
                level, queue_offset, commit_log_offset
            ):
                return RETRY_MS
            queue_offset += 1
            self._offsets.move(level, queue_offset)
        return 0

    async def persist(self) -> bool:
        """Write the offsets if they have moved, after the copies before them are durable.

        Returns whether they are in the file.
        """
        async with self._persisting:
            if not self._offsets.is_dirty:
                return True
            writing = self._offsets.writing()
            is_flushed = False
            try:
                is_flushed = await self._store.flush()
            finally:
                self._offsets.is_dirty |= not is_flushed
            return is_flushed and await self._offsets.write(writing)

    def _deliver_one(self, level: int, queue_offset: int, commit_log_offset: int) -> bool:
        """Deliver a message, or skip it after FAILURES_MAX failures so that others don't wait."""
        try:
            return self._deliver(level, queue_offset, commit_log_offset)
        except (BrokerError, OSError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  one message of a level
            place = f"level={level} queue_offset={queue_offset}"
            FAILURES.report("delivering a delayed message", place, error)
            before, count = self._failed.get(level, (queue_offset, 0))
            count = count + 1 if before == queue_offset else 1
            self._failed[level] = queue_offset, count
            if count < FAILURES_MAX:
                return False
            del self._failed[level]
            return self._pass_over(level, queue_offset, commit_log_offset, repr(error))

    def _deliver(self, level: int, queue_offset: int, commit_log_offset: int) -> bool:
        """Put a message to its real topic; False when the put has to be retried."""
        view = self._store.look_message(commit_log_offset)
        if view is None:
            if self._store.availability.failure is not None:
                # The record isn't flushed yet: a restart can read it, and a slave has it.
                return False
            return self._pass_over(level, queue_offset, commit_log_offset, "it cannot be read")
        try:
            message = record.decode(view)
            if (message.topic, message.queue_offset) != (RMQ_SYS_SCHEDULE_TOPIC, queue_offset):
                raise ValueError("its unit leads to another message")
            topic = message.properties[PROPERTY_REAL_TOPIC]
            queue_id = int(message.properties[PROPERTY_REAL_QUEUE_ID])
        except (CorruptRecordError, KeyError, ValueError) as error:
            return self._pass_over(level, queue_offset, commit_log_offset, repr(error))
        if topic == RMQ_SYS_TRANS_HALF_TOPIC:
            return self._pass_over(level, queue_offset, commit_log_offset, "a half message")
        result = self._store.put_copy(message, topic, queue_id, message.properties)
        if result.status in ILLEGAL:
            # Every retry would be refused, and block the messages behind it.
            return self._pass_over(level, queue_offset, commit_log_offset, result.status.name)
        if result.status is not PutMessageStatus.PUT_OK:
            self._counted_log.report(
                logger,
                logging.WARNING,
                "delayed message not delivered, will retry",
                f"level={level}",
                "queue_offset=%d status=%s",
                queue_offset,
                result.status.name,
            )
            return False
        if self._on_delivered is not None:
            # The message is delivered: an error in a listener must not deliver it again.
            with isolated("reporting a delivery", f"level={level} queue_offset={queue_offset}"):
                self._on_delivered(message, topic, queue_id, result)
        return True

    def _pass_over(
        self, level: int, queue_offset: int, commit_log_offset: int, reason: str
    ) -> bool:
        logger.error(
            "delayed message skipped level=%d queue_offset=%d commit_log_offset=%d reason=%s",
            level,
            queue_offset,
            commit_log_offset,
            reason,
        )
        return True

    def _correct(self, level: int) -> bool:
        """Move an offset into the range of its queue; return whether it was outside."""
        low = self._store.min_offset_in_queue(RMQ_SYS_SCHEDULE_TOPIC, level - 1)
        high = self._store.max_offset_in_queue(RMQ_SYS_SCHEDULE_TOPIC, level - 1)
        offset = self._offsets.get(level)
        corrected = min(max(offset, low), high)
        if corrected == offset:
            return False
        logger.warning(
            "delay offset corrected level=%d offset=%d corrected=%d", level, offset, corrected
        )
        self._offsets.move(level, corrected)
        return True

    async def _deliver_forever(self, level: int) -> None:
        while True:
            try:
                wait_ms = await self.deliver_due(level)
            except (BrokerError, OSError):
                logger.exception("delayed delivery failed, will retry level=%d", level)
                wait_ms = FAILURE_MS
            await self._wait(level, wait_ms)

    async def _wait(self, level: int, wait_ms: int) -> None:
        """Wait for a time, or until the level is moved."""
        if wait_ms <= 0:
            await self._clock.sleep(0)
            return
        moved = self._moved[level]
        timer = self._clock.call_at(self._clock.monotonic() + wait_ms / 1000, moved.set)
        try:
            await moved.wait()
        finally:
            timer.cancel()
        moved.clear()

    async def _persist_forever(self) -> None:
        while True:
            await self._clock.sleep(self._flush_interval_s)
            await self.persist()
