"""A store with delayed messages, delivered when the test triggers it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.clock import SteadyClock
from broker_core.counted_log import CountedLog
from broker_core.delay.delay_offsets import DelayOffsets
from broker_core.delay.levels import DelayLevels
from broker_core.delay.schedule import ScheduleService
from broker_core.message import properties as message_properties
from broker_core.metadata.document import Document
from broker_core.store.results import PutMessageStatus
from tests.support.builders import HOST, a_store, read_all, store_config

if TYPE_CHECKING:
    from broker_core.message.message import MessageExt
    from broker_core.store.results import PutMessageResult
    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage

LEVELS = "1s 5s 10s 30s 1m"


class Delayed:
    """One run of a store; a second one on the same storage is a restart."""

    def __init__(
        self,
        clock: ManualClock,
        storage: FaultyStorage,
        *,
        levels: str = LEVELS,
        flush_disk_type: str = "ASYNC_FLUSH",
        log_file_size: int = 64 * 1024,
    ) -> None:
        self.clock = clock
        self.storage = storage
        config = store_config(
            message_delay_level=levels,
            flush_disk_type=flush_disk_type,
            mapped_file_size_commit_log=log_file_size,
            mapped_file_size_consume_queue=20_000,
        )
        self.levels = DelayLevels.of(levels)
        self.store = a_store(clock, storage, config)
        self.document = Document(storage, Path("/store/config/delayOffset.json"))
        self.offsets = DelayOffsets(self.document)
        self.delivered: list[tuple[bytes, float]] = []
        """Bodies with the monotonic times of their deliveries."""
        self.deferred: list[tuple[int, PutMessageResult]] = []
        """Queue ids and puts of the messages that wait."""
        self.schedule: ScheduleService
        self._is_running = False

    async def start(self) -> None:
        self.store.load()
        await self.store.start()
        self.schedule = ScheduleService(
            self.levels,
            self.store,
            self.offsets,
            CountedLog(self.clock),
            self.clock,
            SteadyClock(self.clock),
            flush_interval_ms=10_000,
            on_delivered=self._on_delivered,
            on_deferred=lambda *deferred: self.deferred.append(deferred),
        )
        self.schedule.load()
        self.schedule.begin()
        self._is_running = True

    async def stop(self) -> None:
        if self._is_running:
            self._is_running = False
            await self.schedule.shutdown()
            await self.store.shutdown()

    def send(
        self, level: int, body: bytes = b"later", topic: str = "T", queue_id: int = 0, **more: str
    ) -> PutMessageResult:
        table = {"DELAY": str(level), **more}
        place = self.levels.defer(table, topic, queue_id)
        assert place is not None
        result = self.store.put_message(
            *place,
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
        self.schedule.note_put(place[1], result)
        return result

    async def deliver(self) -> None:
        """Deliver all that is due."""
        for level in range(1, self.levels.max_level + 1):
            while await self.schedule.deliver_due(level) == 0:
                pass

    async def after(self, milliseconds: int) -> list[bytes]:
        """Advance the clock, deliver, and return all bodies delivered so far, in order."""
        self.clock.advance_ms(milliseconds)
        await self.deliver()
        return [body for body, _ in self.delivered]

    def arrived(self, topic: str = "T", queue_id: int = 0) -> list[MessageExt]:
        return read_all(self.store, topic, queue_id)

    def _on_delivered(
        self, message: MessageExt, topic: str, queue_id: int, result: PutMessageResult
    ) -> None:
        self.delivered.append((message.body, self.clock.monotonic()))
