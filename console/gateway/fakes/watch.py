"""WatchGateway without a broker: tests push the events, or send messages that cause them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from console.gateway.answers import TraceBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from console.gateway.answers import TraceEvent, WatchFilter
    from console.gateway.fakes.broker import FakeBroker


class FakeWatches:
    """Remembers the watches it opened. Set `refuses` and every watch raises it when asked."""

    def __init__(self, broker: FakeBroker) -> None:
        self.refuses: Exception | None = None
        self.opened: list[FakeWatch] = []
        self._broker = broker

    def open(self, address: str, on_batch: Callable[[TraceBatch], None]) -> FakeWatch:
        watch = FakeWatch(self, self._broker, on_batch)
        self.opened.append(watch)
        return watch

    @property
    def open_ones(self) -> list[FakeWatch]:
        return [watch for watch in self.opened if not watch.is_closed]

    def push(self, events: list[TraceEvent], *, dropped: int = 0, watch_id: str = "1") -> None:
        """Have the newest open watch bring a batch."""
        self.open_ones[-1].on_batch(TraceBatch(events, watch_id, dropped))


class FakeWatch:
    """One watch. Event loop only."""

    def __init__(
        self, watches: FakeWatches, broker: FakeBroker, on_batch: Callable[[TraceBatch], None]
    ) -> None:
        self.on_batch = on_batch
        self.asked: list[WatchFilter] = []
        self._watches = watches
        self._broker = broker
        self._closed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    async def ask_for(self, wanted: WatchFilter) -> None:
        await asyncio.sleep(0)
        if self._watches.refuses is not None:
            raise self._watches.refuses
        self._broker.check()
        if not self.asked:
            self._broker.watchers.append(self._stored)
        self.asked.append(wanted)

    async def until_closed(self) -> None:
        await self._closed.wait()

    async def close(self) -> None:
        self.lose()

    def lose(self) -> None:
        """End the connection as the broker would."""
        self._closed.set()
        if self._stored in self._broker.watchers:
            self._broker.watchers.remove(self._stored)

    def _stored(self, event: TraceEvent) -> None:
        wanted = self.asked[-1]
        if (
            wanted.topic in {None, event["topic"]}
            and wanted.tag in {None, event["tags"]}
            and wanted.group in {None, event.get("group"), event.get("producerGroup")}
            and (wanted.stages is None or event["stage"] in wanted.stages)
        ):
            self.on_batch(TraceBatch([event], "1", 0))
