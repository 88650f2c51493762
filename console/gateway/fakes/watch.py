"""Fake WatchGateway; tests push events or send messages that cause them."""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from console.gateway.answers import TraceBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from console.gateway.answers import TraceEvent, WatchFilter, WatchPlace
    from console.gateway.fakes.broker import FakeBroker


class FakeWatches:
    """Remembers the watches it opened.

    If `refuses` is set, every watch raises it. If `resumes` is set, a watch continues where an
    earlier one stopped.
    """

    def __init__(self, broker: FakeBroker) -> None:
        self.refuses: Exception | None = None
        self.resumes = False
        self.opened: list[FakeWatch] = []
        self._broker = broker

    def open(self, address: str, on_batch: Callable[[TraceBatch], None]) -> FakeWatch:
        watch = FakeWatch(self, self._broker, on_batch)
        self.opened.append(watch)
        return watch

    @property
    def open_watches(self) -> list[FakeWatch]:
        return [watch for watch in self.opened if not watch.is_closed]

    def push(self, events: list[TraceEvent], **counts: Any) -> None:
        """Deliver a batch to the newest open watch."""
        self.open_watches[-1].bring(events, **counts)


class FakeWatch:
    """A single watch. Event loop only."""

    def __init__(
        self, watches: FakeWatches, broker: FakeBroker, on_batch: Callable[[TraceBatch], None]
    ) -> None:
        self.subscriptions: list[Mapping[str, WatchFilter]] = []
        self.after: WatchPlace | None = None
        self._on_batch = on_batch
        self._watches = watches
        self._broker = broker
        self._closed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    async def set_filters(
        self, filters: Mapping[str, WatchFilter], after: WatchPlace | None = None
    ) -> bool:
        await asyncio.sleep(0)
        if self._watches.refuses is not None:
            raise self._watches.refuses
        self._broker.check()
        if not self.subscriptions:
            self._broker.watchers.append(self._stored)
        self.subscriptions.append(filters)
        self.after = after
        return after is not None and self._watches.resumes

    async def until_closed(self) -> None:
        await self._closed.wait()

    async def close(self) -> None:
        self.lose()

    def lose(self) -> None:
        """End the connection from the broker's side."""
        self._closed.set()
        if self._stored in self._broker.watchers:
            self._broker.watchers.remove(self._stored)

    def bring(
        self,
        events: list[TraceEvent],
        *,
        dropped: int = 0,
        watch_id: str = "1",
        offered: Mapping[str, int] | None = None,
    ) -> None:
        """Deliver the events that match the filters."""
        named = [(event, self._matched(event)) for event in events]
        wanted = [event | {"matched": names} for event, names in named if names]
        self._on_batch(TraceBatch(wanted, watch_id, dropped, offered or {}))

    def _stored(self, event: TraceEvent) -> None:
        self.bring([event])

    def _matched(self, event: TraceEvent) -> list[str]:
        return [
            name
            for name, wanted in self.subscriptions[-1].items()
            if fnmatchcase(event["topic"], wanted.topic or "*")
            and wanted.tag in {None, event.get("tags")}
            and wanted.group in {None, event.get("group"), event.get("producerGroup")}
            and (wanted.stages is None or event["stage"] in wanted.stages)
        ]
