"""The bridge between brokers and viewers: one watch a broker, one bounded queue a viewer.

Brokers are watched only while somebody looks. Nothing here touches Redis, a channel layer or the
database; a viewer that does not keep up loses its oldest events and is told how many.

    broker --TRACE_EVENTS--> TraceBridge --filter--> Viewer queue --batch--> WebSocket
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from broker_core.errors import BrokerError, RequestRefusedError
from console.tracing.filters import Event, TraceFilter, union

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

logger = logging.getLogger(__name__)

QUEUE_EVENTS_MAX = 2_000
BATCH_EVENTS_MAX = 100
BATCH_EVERY_S = 0.1
VIEWERS_PER_USER_MAX = 20
TEXT_CHARS_MAX = 240

DISCOVER_EVERY_S = 10.0
BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 8.0


class TooManyViewersError(Exception):
    """This user watches in VIEWERS_PER_USER_MAX windows already."""


class WatchLink(Protocol):
    """One connection to one broker that carries a watch."""

    async def watch(self, body: bytes) -> None:
        """Ask for events, or change what was asked for.

        Raises:
            BrokerError: no connection, no answer, or a refusal.
        """
        ...

    async def until_closed(self) -> None:
        """Return when the connection has ended."""
        ...

    async def close(self) -> None:
        """End the connection; safe to call twice."""
        ...


class EventBatch(msgspec.Struct):
    """The body of TRACE_EVENTS."""

    events: list[Event]
    watch_id: str = msgspec.field(default="", name="watchId")
    dropped: str = "0"


decode_batch = msgspec.json.Decoder(EventBatch).decode


class Viewer:
    """One open Live page. Event loop only.

    `seen` events matched its filter; `dropped` of them never reached the page, since the queue
    overflowed; `broker_dropped` were lost before the filter, in the broker's own ring. `round` is
    the page's number of its last filter or clearing: what is under way from before has another.
    """

    def __init__(self, user_id: object) -> None:
        self.user_id = user_id
        self.filter = TraceFilter()
        self.paused = False
        self.round = 0
        self.seen = 0
        self.dropped = 0
        self.broker_dropped = 0
        self._queue: deque[Event] = deque()
        self._status: dict[str, Any] | None = None
        self._news = asyncio.Event()

    def offer(self, event: Event) -> None:
        self.seen += 1
        if len(self._queue) >= QUEUE_EVENTS_MAX:
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(event)
        self._news.set()

    def offer_status(self, status: dict[str, Any]) -> None:
        self._status = status
        self._news.set()

    def broker_lost(self, count: int) -> None:
        self.broker_dropped += count
        self._news.set()

    def clear(self, number: int = 0) -> None:
        """Forget what waits, as if the page had just been opened."""
        self.round = number
        self._queue.clear()
        self.seen = self.dropped = self.broker_dropped = 0
        self._news.set()

    def resume(self) -> None:
        self.paused = False
        self._news.set()

    async def until_news(self) -> None:
        await self._news.wait()

    def take(self) -> list[bytes]:
        """Return the frames to send now: a changed status, then at most one batch with counters."""
        self._news.clear()
        frames = []
        if self._status is not None:
            frames.append(msgspec.json.encode(self._status))
            self._status = None
        events = []
        if not self.paused:
            events = [
                shown(self._queue.popleft()) for _ in range(min(BATCH_EVENTS_MAX, len(self._queue)))
            ]
            if self._queue:
                self._news.set()
        frames.append(
            msgspec.json.encode(
                {
                    "type": "events",
                    "round": self.round,
                    "events": events,
                    "seen": self.seen,
                    "dropped": self.dropped,
                    "brokerDropped": self.broker_dropped,
                    "waiting": len(self._queue),
                }
            )
        )
        return frames


@dataclass(slots=True)
class WatchedBroker:
    """One broker, and how its watch is."""

    name: str
    address: str
    state: str = "connecting"
    message: str = ""
    watch_id: str = ""
    dropped: int = 0
    refilter: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class TraceBridge:
    """Watches every broker while there are viewers. Event loop only.

    `find_brokers` answers name -> address of each master; it may raise BrokerError.
    """

    def __init__(
        self,
        find_brokers: Callable[[], Awaitable[Mapping[str, str]]],
        open_link: Callable[[str, Callable[[bytes], None]], WatchLink],
        *,
        batch_every_s: float = BATCH_EVERY_S,
        backoff_first_s: float = BACKOFF_FIRST_S,
        discover_every_s: float = DISCOVER_EVERY_S,
    ) -> None:
        self.batch_every_s = batch_every_s
        self._find_brokers = find_brokers
        self._open_link = open_link
        self._backoff_first_s = backoff_first_s
        self._discover_every_s = discover_every_s
        self._viewers: set[Viewer] = set()
        self._brokers: dict[str, WatchedBroker] = {}
        self._discovery: asyncio.Task[None] | None = None
        self._problem = ""
        self._wanted = TraceFilter()

    def join(self, viewer: Viewer) -> None:
        """Let a viewer see events from now on.

        Raises:
            TooManyViewersError: its user has too many.
        """
        if self.viewers_of(viewer.user_id) >= VIEWERS_PER_USER_MAX:
            raise TooManyViewersError
        self._viewers.add(viewer)
        viewer.offer_status(self._status())
        if self._discovery is None:
            self._discovery = asyncio.get_running_loop().create_task(
                self._discover(), name="trace discovery"
            )
        self.refilter()

    async def leave(self, viewer: Viewer) -> None:
        """Let go of a viewer; without viewers no broker is watched."""
        self._viewers.discard(viewer)
        if self._viewers:
            self.refilter()
        else:
            await self.shutdown()

    def viewers_of(self, user_id: object) -> int:
        return Counter(viewer.user_id for viewer in self._viewers)[user_id]

    def refilter(self) -> None:
        """Ask the brokers for what the viewers want now, if that changed."""
        wanted = union(viewer.filter for viewer in self._viewers)
        if wanted != self._wanted:
            self._wanted = wanted
            for broker in self._brokers.values():
                broker.refilter.set()

    async def shutdown(self) -> None:
        """End every watch."""
        tasks = [broker.task for broker in self._brokers.values() if broker.task is not None]
        if self._discovery is not None:
            tasks.append(self._discovery)
        self._brokers, self._discovery, self._problem = {}, None, ""
        self._wanted = TraceFilter()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _discover(self) -> None:
        """Keep one watch for each broker that the name server knows."""
        while True:
            wait_s = self._discover_every_s
            try:
                found = await self._find_brokers()
            except BrokerError as error:
                self._problem = str(error)
                wait_s = min(wait_s, 2.0)
                self._tell()
            else:
                self._problem = "" if found else "The name server knows no broker yet."
                self._follow_exactly(found)
                wait_s = wait_s if found else min(wait_s, 2.0)
            await asyncio.sleep(wait_s)

    def _follow_exactly(self, found: Mapping[str, str]) -> None:
        for name, broker in list(self._brokers.items()):
            if found.get(name) != broker.address and broker.state != "watching":
                # A broker that stopped leaves the name server; one that still answers stays.
                del self._brokers[name]
                if broker.task is not None:
                    broker.task.cancel()
        for name, address in found.items():
            if name not in self._brokers:
                broker = self._brokers[name] = WatchedBroker(name, address)
                broker.task = asyncio.get_running_loop().create_task(
                    self._follow(broker), name=f"trace watch {name}"
                )
        self._tell()

    async def _follow(self, broker: WatchedBroker) -> None:
        """Hold the watch of one broker; after a loss try again, ever more slowly."""
        backoff_s = self._backoff_first_s
        while True:
            link = self._open_link(broker.address, lambda body: self._arrived(broker, body))
            try:
                await self._watch(broker, link)
                backoff_s = self._backoff_first_s
                self._set(broker, "watching", "")
                await self._hold(broker, link)
                self._set(broker, "away", "The connection to the broker ended; trying again.")
            except RequestRefusedError as refusal:
                # Another make of broker, or one with too many watchers: it answers, but not this.
                backoff_s = BACKOFF_MAX_S
                self._set(broker, "away", f"The broker does not let itself be watched: {refusal}")
            except BrokerError as error:
                self._set(broker, "away", f"The broker does not answer, trying again: {error}")
            finally:
                await link.close()
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _watch(self, broker: WatchedBroker, link: WatchLink) -> None:
        broker.refilter.clear()
        await link.watch(self._wanted.request_body())

    async def _hold(self, broker: WatchedBroker, link: WatchLink) -> None:
        """Renew the watch whenever the filter changes; return when the connection has ended."""
        closed = asyncio.get_running_loop().create_task(link.until_closed())
        try:
            while not closed.done():
                changed = asyncio.get_running_loop().create_task(broker.refilter.wait())
                try:
                    await asyncio.wait({closed, changed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                if not closed.done():
                    await self._watch(broker, link)
        finally:
            closed.cancel()

    def _arrived(self, broker: WatchedBroker, body: bytes) -> None:
        """Hand one TRACE_EVENTS on; a body that is not what was agreed is passed over."""
        try:
            batch = decode_batch(body)
            dropped = int(batch.dropped)
        except ValueError as error:
            logger.warning("trace events cannot be read: broker=%s error=%s", broker.name, error)
            return
        if batch.watch_id != broker.watch_id:
            # A new watch counts from zero.
            broker.watch_id, broker.dropped = batch.watch_id, 0
        lost = max(0, dropped - broker.dropped)
        broker.dropped = dropped
        for viewer in self._viewers:
            if lost:
                viewer.broker_lost(lost)
            matches = viewer.filter.matches
            for event in batch.events:
                if matches(event):
                    viewer.offer(event)

    def _set(self, broker: WatchedBroker, state: str, message: str) -> None:
        if (state, message) != (broker.state, broker.message):
            if state == "away":
                logger.warning("trace watch lost: broker=%s %s", broker.name, message)
            broker.state, broker.message = state, message
            self._tell()

    def _tell(self) -> None:
        status = self._status()
        for viewer in self._viewers:
            viewer.offer_status(status)

    def _status(self) -> dict[str, Any]:
        return {
            "type": "status",
            "problem": self._problem,
            "brokers": [
                {
                    "name": broker.name,
                    "address": broker.address,
                    "state": broker.state,
                    "message": broker.message,
                }
                for broker in self._brokers.values()
            ],
        }


def shown(event: Event) -> Event:
    """Return an event with long texts cut: a page shows the beginning, the message page all."""
    return {
        name: value[:TEXT_CHARS_MAX] + "…"
        if isinstance(value, str) and len(value) > TEXT_CHARS_MAX
        else value
        for name, value in event.items()
    }
