"""Redeliver messages whose leases ended, through the retry topic or as dead letters.

The message is in the retry topic within milliseconds, and wakes the waiting pops of its group.

Source: broker/processor/PopReviveService.java (5.3.3).
Differs: RocketMQ checks its records once a second, and a retry doesn't wake waiting pops: a
retry after 1 s arrives 15 to 20 s late. In RocketMQ, only the gRPC proxy creates dead letters.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from broker_core.errors import BrokerError, CorruptRecordError
from broker_core.formats import record
from broker_core.isolation import FAILURES
from broker_core.message import names
from broker_core.message.origins import origin_properties
from broker_core.message.subscription import SubscriptionGroupConfig
from broker_core.pop.checkpoint import QueueKey
from broker_core.service import Service
from broker_core.store.results import GetMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock, Timer
    from broker_core.message.message import MessageExt
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.pop.checkpoint import Checkpoint
    from broker_core.pop.engine import PopEngine
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutMessageResult

    MoveHandler = Callable[[MessageExt, dict[str, str], str, int, PutMessageResult, QueueKey], None]

logger = logging.getLogger(__name__)

CHECKPOINTS_PER_TURN = 16
TURN_S = 0.005
"""Time that one turn of the event loop may spend on ended leases."""
RETRY_QUEUE_NUMS = 1
RETRY_QUEUE_ID = 0
DLQ_QUEUE_NUMS = 1
DLQ_QUEUE_ID = 0
RETRY_S = 0.1
"""Pause after the store refused a message."""
FAILURE_S = 10.0
ILLEGAL = frozenset({PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED})


class Revival(Service):
    """Redelivers messages. Event loop only.

    Attributes:
        revived_times, dead_times: number of messages put to retry topics and to dead letters.
        on_retried, on_dead: called with the message, the properties, topic and queue_id of its
            copy, the result of the put, and the queue of the lease.
        on_unblocked: called with topic and queue_id when the leases of an ordered group end.
    """

    def __init__(
        self,
        engine: PopEngine,
        store: MessageStore,
        topics: Topics,
        groups: SubscriptionGroups,
        clock: Clock,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._wake = asyncio.Event()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._turn_began_at = 0.0
        self._is_started = False
        self.revived_times = 0
        self.dead_times = 0
        self.on_retried: MoveHandler | None = None
        self.on_dead: MoveHandler | None = None
        self.on_unblocked: Callable[[str, int], None] = lambda _topic, _queue_id: None
        engine.on_due_sooner = self.wake_at
        engine.bury = self.bury

    def start(self) -> None:
        self._is_started = True
        self._wake.set()
        self.spawn_forever(self._clock, self._revive_forever, name="pop-revival")

    async def shutdown(self) -> None:
        """Stop; the leases stay in the log."""
        self._is_started = False
        self._cancel_timer()
        await super().shutdown()

    def wake(self) -> None:
        """Look for ended leases now."""
        self._wake.set()

    def wake_at(self, due: float) -> None:
        """Wake up at `due`, in monotonic seconds, or earlier."""
        if self._is_started and (self._timer is None or due < self._timer_at):
            self._cancel_timer()
            self._timer_at = due
            self._timer = self._clock.call_at(due, self._timer_fired)

    async def revive_due(self) -> bool:
        """Redeliver messages whose leases have ended; return whether more may be due."""
        now = self._turn_began_at = self._clock.monotonic()
        if not self._engine.log.is_read:
            return False  # The acknowledgements may follow; see Takeover.
        for key in self._engine.orders.pop_unblocked(now):
            self.on_unblocked(key.topic, key.queue_id)
        for _ in range(CHECKPOINTS_PER_TURN):
            checkpoint = self._engine.leases.pop_due(now)
            if checkpoint is None:
                return False
            await self._revive(checkpoint)
        return True

    def bury(self, message: MessageExt, group: str) -> bool:
        """Put a message to a group's dead letters; return False if the caller must retry."""
        topic = self._topics.create_retry(names.dlq_topic(group), DLQ_QUEUE_NUMS).topic_name
        table = {**message.properties, **origin_properties(message, group)}
        times = message.reconsume_times + 1
        result = self._put_copy(message, topic, DLQ_QUEUE_ID, table, times)
        if result.status in ILLEGAL:
            logger.error(
                "dead letter dropped group=%s topic=%s queue_id=%d queue_offset=%d reason=%s",
                group,
                message.topic,
                message.queue_id,
                message.queue_offset,
                result.status.name,
            )
            return True
        if result.status is not PutMessageStatus.PUT_OK:
            return False
        self.dead_times += 1
        if self.on_dead is not None:
            key = QueueKey(group, message.topic, message.queue_id)
            self.on_dead(message, table, topic, DLQ_QUEUE_ID, result, key)
        return True

    async def _yield_turn(self) -> None:
        """Yield to the event loop after TURN_S of work."""
        if self._clock.monotonic() - self._turn_began_at >= TURN_S:
            await self._clock.sleep(0)
            self._turn_began_at = self._clock.monotonic()

    async def _revive(self, checkpoint: Checkpoint) -> None:
        """Redeliver the messages of a due checkpoint that are still leased."""
        redelivered: list[int] = []
        pause_s = FAILURE_S
        try:
            for offset in checkpoint.leased():
                await self._yield_turn()
                if not await self._redeliver(checkpoint, offset):
                    pause_s = RETRY_S
                    break
                if self._engine.leases.end(checkpoint, offset):
                    redelivered.append(offset)
        except (BrokerError, OSError) as error:
            key = checkpoint.key
            FAILURES.report("redelivery of leased messages", f"{key.topic} {key.queue_id}", error)
        finally:
            if not checkpoint.is_done:
                self._engine.leases.postpone(checkpoint, self._clock.monotonic() + pause_s)
            if redelivered:
                self._engine.log.write_acks(checkpoint, redelivered)

    async def _redeliver(self, checkpoint: Checkpoint, offset: int) -> bool:
        """Redeliver one message; return False if the store refused it."""
        message = await self._read(checkpoint.key, offset)
        if message is None or not checkpoint.is_leased(offset):
            # It was deleted, or acknowledged during the read.
            return True
        # A kill or a promotion may precede the write or the replication of a new group.
        group = self._groups.find(checkpoint.key.group) or SubscriptionGroupConfig(
            group_name=checkpoint.key.group
        )
        if not checkpoint.is_suspended and message.reconsume_times >= group.retry_max_times:
            return self.bury(message, checkpoint.key.group)
        return self._retry(message, checkpoint)

    def _retry(self, message: MessageExt, checkpoint: Checkpoint) -> bool:
        """Put a message to the retry topic; return False if the caller must retry."""
        key = checkpoint.key
        topic = key.topic
        if not names.is_retry_topic(topic):
            topic = names.pop_retry_topic(key.group, topic)
        self._topics.create_retry(topic, RETRY_QUEUE_NUMS)
        table = dict(message.properties)
        table.setdefault(names.PROPERTY_FIRST_POP_TIME, str(checkpoint.pop_time_ms))
        times = message.reconsume_times + (not checkpoint.is_suspended)
        result = self._put_copy(message, topic, RETRY_QUEUE_ID, table, times)
        if result.status in ILLEGAL:
            return self.bury(message, key.group)
        if result.status is not PutMessageStatus.PUT_OK:
            return False
        self.revived_times += 1
        if self.on_retried is not None:
            self.on_retried(message, table, topic, RETRY_QUEUE_ID, result, key)
        return True

    def _put_copy(
        self, message: MessageExt, topic: str, queue_id: int, table: dict[str, str], times: int
    ) -> PutMessageResult:
        """Put a copy with the properties in `table`, or the original ones if those don't fit."""
        result = self._store.put_copy(message, topic, queue_id, table, reconsume_times=times)
        if result.status in ILLEGAL:
            result = self._store.put_copy(
                message, topic, queue_id, message.properties, reconsume_times=times
            )
        return result

    async def _read(self, key: QueueKey, offset: int) -> MessageExt | None:
        """Return a leased message, or None if it was deleted."""
        store = self._store
        units = store.units(key.topic, key.queue_id, offset, 1)
        if not units:
            return None
        if store.is_in_memory(key.topic, key.queue_id, offset) is False:
            # Read in a thread, because a page fault would block the event loop.
            result = store.get_message(key.topic, key.queue_id, offset, 1, None)
            if not isinstance(result, GetMessageResult):
                await result
        view = store.look_message(units[0][0])
        try:
            message = None if view is None else record.decode(view)
        except CorruptRecordError:
            message = None
        if message is None or (message.topic, message.queue_id, message.queue_offset) != (
            key.topic,
            key.queue_id,
            offset,
        ):
            logger.error(
                "leased message lost group=%s topic=%s queue_id=%d queue_offset=%d",
                *key,
                offset,
            )
            return None
        return message

    async def _revive_forever(self) -> None:
        while True:
            self._wake.clear()
            if await self.revive_due():
                await self._clock.sleep(0)
                continue
            self._schedule_next()
            await self._wake.wait()

    def _schedule_next(self) -> None:
        for due in (self._engine.leases.next_due, self._engine.orders.next_end):
            if due is not None:
                self.wake_at(due)

    def _timer_fired(self) -> None:
        self._timer = None
        self._wake.set()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
