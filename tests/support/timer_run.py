"""A store with timer messages that a test delivers step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.clock import SteadyClock
from broker_core.config.limits import LIMITS
from broker_core.counted_log import CountedLog
from broker_core.message import properties as message_properties
from broker_core.store.results import PutMessageStatus
from broker_core.timers.checkpoint import Checkpoint
from broker_core.timers.events import Events
from broker_core.timers.service import TimerService
from tests.support.builders import HOST, a_store, read_all, store_config

if TYPE_CHECKING:
    from broker_core.message.message import MessageExt
    from broker_core.store.results import PutMessageResult
    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage

NO_CHECKPOINT = Checkpoint(0, 0)


class Delivery(NamedTuple):
    """A delivered message, with its delivery time by the monotonic and the wall clock."""

    body: bytes
    at_ms: float
    wall_ms: int


class TimerRun:
    """One run of a store; a second run on the same storage is a restart."""

    def __init__(
        self,
        clock: ManualClock,
        storage: FaultyStorage,
        *,
        flush_disk_type: str = "ASYNC_FLUSH",
        log_file_size: int = 64 * 1024,
        timers_max: int = 1_000,
        checkpoint: Checkpoint = NO_CHECKPOINT,
        **changes: int | bool,
    ) -> None:
        self.clock = clock
        self.storage = storage
        self.config = store_config(
            flush_disk_type=flush_disk_type,
            mapped_file_size_commit_log=log_file_size,
            mapped_file_size_consume_queue=20_000,
            **changes,
        )
        self.store = a_store(clock, storage, self.config)
        self.delivered: list[Delivery] = []
        self.timers = TimerService(
            self.store,
            self.config,
            replace(LIMITS, pending_timer_nums_max=timers_max),
            CountedLog(clock),
            clock,
            SteadyClock(clock),
            HOST,
            lambda: checkpoint,
            Events(on_delivered=self._on_delivered),
        )
        self.store.retention.may_delete_before = self.timers.may_delete_before
        self._is_running = False
        self._read: list[int] = []

    @property
    def first_read(self) -> int:
        """The lowest queue offset in the timer queue that recovery read."""
        return min(self._read)

    async def start(self) -> None:
        units = self.store.units

        def recorded(topic: str, queue_id: int, queue_offset: int, count: int) -> list[Any]:
            if (topic, queue_id) == ("rmq_sys_wheel_timer", 0):
                self._read.append(queue_offset)
            return units(topic, queue_id, queue_offset, count)

        self.store.units = recorded
        self.store.load()
        await self.store.start()
        self.timers.begin()
        await self.timers.load()
        self.store.units = units
        self._is_running = True

    async def stop(self) -> None:
        if self._is_running:
            self._is_running = False
            await self.timers.shutdown()
            await self.store.shutdown()

    def send(
        self, body: bytes = b"later", topic: str = "T", queue_id: int = 0, **properties: object
    ) -> PutMessageResult:
        table = {name: str(value) for name, value in properties.items()}
        place = self.timers.defer(table, topic, queue_id)
        result = self.store.put_message(
            *(place or (topic, queue_id)),
            body,
            message_properties.encode(table),
            tags=table.get("TAGS"),
            keys=table.get("KEYS"),
            uniq_key=table.get("UNIQ_KEY"),
            flag=7,
            sys_flag=0,
            born_timestamp=1,
            born_host=HOST,
        )
        assert result.status is PutMessageStatus.PUT_OK
        if place is not None:
            self.timers.note_put(result, table)
        return result

    async def deliver(self) -> int | None:
        """Deliver all due timers; return the milliseconds until the next step, or None."""
        while (wait_ms := await self.timers.deliver_due()) == 0:
            pass
        return wait_ms

    async def advance(self, milliseconds: int) -> list[bytes]:
        """Advance the clock, deliver, and return the bodies of all deliveries so far, in order."""
        self.clock.advance_ms(milliseconds)
        await self.deliver()
        return [each.body for each in self.delivered]

    def received(self, topic: str = "T", queue_id: int = 0) -> list[MessageExt]:
        return read_all(self.store, topic, queue_id)

    def _on_delivered(
        self, message: MessageExt, topic: str, queue_id: int, result: PutMessageResult
    ) -> None:
        at_ms = self.clock.monotonic() * 1000
        self.delivered.append(Delivery(message.body, at_ms, self.clock.now_ms()))
