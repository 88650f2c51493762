"""The bridge between brokers and viewers: one watch per broker, one bounded queue per viewer.

The bridge watches brokers only while a Live page is open. It uses neither Redis, nor a channel
layer, nor the database. A viewer that can't keep up loses its oldest events; the page shows how
many.

    broker --TRACE_EVENTS--> TraceBridge --filter--> Viewer queue --batch--> WebSocket
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from asgiref.sync import sync_to_async
from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from broker_core.isolation import FAILURES, isolated
from console.accounts.actions import Action
from console.gateway.answers import WatchFilter, WatchPlace
from console.gateway.errors import GatewayError, RequestFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from console.accounts.rights import Rights
    from console.gateway.answers import TraceBatch, TraceEvent
    from console.gateway.ports import ClusterGateway, Watch, WatchGateway

logger = logging.getLogger(__name__)

QUEUE_EVENTS_MAX = 5_000
BATCH_EVENTS_MAX = 500
BATCH_EVERY_S = 0.1
VIEWERS_PER_USER_MAX = 20
FILTERS_MAX = 256
"""Maximum number of different filters at a time; this is the brokers' limit."""
TEXT_CHARS_MAX = 240

PARKED_S = 30.0
"""How long a page with a lost connection can return to its queued events."""
DISCOVER_EVERY_S = 10.0
BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 8.0


# Lazy, since viewers read it in different languages.
Sentence = str | Promise


class TooManyViewersError(Exception):
    """This user already has VIEWERS_PER_USER_MAX windows open."""


class QueuedEvent(NamedTuple):
    """An event queued for a viewer or sent to it, with its round.

    For pages it holds the text to send, which all pages share: objects take three times the memory,
    and
    a paused page keeps thousands. Viewers that want the event itself have no text.
    """

    round: int
    stage: str
    text: bytes
    event: TraceEvent | None


class Viewer:
    """One open Live page, or an export. Event loop only.

    `seen` events matched its filter. `dropped` of them never reached the page, because the queue
    overflowed or the filter's rate limit was exceeded; `broker_dropped` were lost in the broker's
    ring
    buffer before filtering. `lost` has both by stage, as far as stages are known: a broker reports
    them
    once its queue is empty. `round` numbers the page's filters and clearings: events from before
    the
    last filter have an older number, and the page selects from them itself. Messages of topics that
    the
    viewer may not see are ignored. A page that lost its connection returns with its `token`; the
    last
    events sent are kept until then, because it is unknown how many arrived.
    """

    def __init__(
        self,
        user_id: object,
        rights: Rights | None = None,
        *,
        is_page: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.user_id = user_id
        self.is_page = is_page
        self.rights = rights
        self.token = secrets.token_urlsafe(16)
        self.filter = WatchFilter()
        self.paused = False
        self.round = 0
        self.seen = 0
        self.dropped = 0
        self.broker_dropped = 0
        self.lost: Counter[str] = Counter()
        self._queue: deque[QueuedEvent] = deque()
        self._sent: deque[QueuedEvent] = deque(maxlen=QUEUE_EVENTS_MAX)
        self._sent_count = 0
        self._status: dict[str, Any] | None = None
        self._news = asyncio.Event()
        self._monotonic = monotonic
        self._second = 0
        self._this_second = 0

    def may_see(self, topic: str) -> bool:
        return self.rights is None or self.rights.may(Action.SEE, topic)

    def apply_rights(self, rights: Rights | None) -> None:
        """Apply new rights from now on; drop queued events if the rights changed."""
        if rights == self.rights:
            return
        self.rights = rights
        for kept in self._queue:
            self.lost[kept.stage] += 1
        self.dropped += len(self._queue)
        self._queue.clear()
        self._sent.clear()
        self._news.set()

    def offer(self, event: TraceEvent, text: bytes = b"") -> None:
        """Queue an event; `text` is the page's version of it, if it was already rendered."""
        self.seen += 1
        if self.filter.rate_max and not self._has_room():
            self.dropped += 1
            self.lost[event["stage"]] += 1
            self._news.set()
            return
        if len(self._queue) >= QUEUE_EVENTS_MAX:
            self.dropped += 1
            self.lost[self._queue.popleft().stage] += 1
        if self.is_page:
            kept = QueuedEvent(self.round, event["stage"], text or text_of(event), None)
        else:
            kept = QueuedEvent(self.round, event["stage"], b"", event)
        self._queue.append(kept)
        self._news.set()

    def _has_room(self) -> bool:
        """Count an event in the current second; return whether it is within the rate limit."""
        second = int(self._monotonic())
        if second != self._second:
            self._second, self._this_second = second, 0
        self._this_second += 1
        return self._this_second <= self.filter.rate_max

    def offer_status(self, status: dict[str, Any]) -> None:
        self._status = status
        self._news.set()

    def broker_lost(self, count: int) -> None:
        self.broker_dropped += count
        self._news.set()

    def count_broker_lost(self, stages: Mapping[str, int]) -> None:
        """Record the stages of events that a broker lost."""
        self.lost.update(stages)
        self._news.set()

    def clear(self, number: int = 0) -> None:
        """Drop queued events and reset the counters, as for a new page."""
        self.round = number
        self._queue.clear()
        self.seen = 0
        self._reset_counters()

    def show(self, wanted: WatchFilter, number: int = 0) -> None:
        """Apply another filter from now on; queued events keep their round."""
        self.filter = wanted
        self.round = number
        self.seen = len(self._queue)
        self._reset_counters()

    def _reset_counters(self) -> None:
        self.dropped = self.broker_dropped = 0
        self.lost.clear()
        self._news.set()

    def resend_after(self, count: int) -> None:
        """Resend the events after the first `count`; events already gone count as dropped."""
        missing = max(0, self._sent_count - count)
        again = [self._sent.pop() for _ in range(min(missing, len(self._sent)))]
        self._queue.extendleft(again)
        self.dropped += missing - len(again)
        self._sent_count -= len(again)
        self._news.set()

    def resume(self) -> None:
        self.paused = False
        self._news.set()

    async def wait_for_events(self) -> None:
        await self._news.wait()

    def drain(self) -> list[TraceEvent]:
        """Return all queued events, for a viewer that isn't a page."""
        self._news.clear()
        events = [one.event for one in self._queue if one.event is not None]
        self._queue.clear()
        return events

    def take(self) -> list[bytes]:
        """Return the frames to send now: a changed status, then at most one batch with counters."""
        self._news.clear()
        frames = []
        if self._status is not None:
            # Its sentences are translated lazily, in the language of the sender of the frame.
            frames.append(msgspec.json.encode(self._status, enc_hook=str))
            self._status = None
        number = self.round
        events: list[msgspec.Raw] = []
        if not self.paused and self._queue:
            number = self._queue[0].round
            while self._queue and self._queue[0].round == number and len(events) < BATCH_EVENTS_MAX:
                taken = self._queue.popleft()
                self._sent.append(taken)
                self._sent_count += 1
                events.append(msgspec.Raw(taken.text))
            if self._queue or number != self.round:
                self._news.set()
        frames.append(
            msgspec.json.encode(
                {
                    "type": "events",
                    "round": number,
                    "events": events,
                    "upTo": self._sent_count,
                    "seen": self.seen,
                    "dropped": self.dropped,
                    "brokerDropped": self.broker_dropped,
                    "lost": self.lost,
                    "waiting": len(self._queue),
                }
            )
        )
        return frames


@dataclass(slots=True)
class WatchedBroker:
    """One broker and the state of its watch: its position, and whether it is gapless."""

    name: str
    address: str
    state: str = "connecting"
    message: Sentence = ""
    watch_id: str = ""
    dropped: int = 0
    last_seq: int = 0
    received: int = 0
    come: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    resumed: bool = False
    refilter: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class TraceBridge:
    """Watches every master while there are viewers. Event loop only."""

    def __init__(
        self,
        cluster: ClusterGateway,
        watches: WatchGateway,
        *,
        batch_every_s: float = BATCH_EVERY_S,
        backoff_first_s: float = BACKOFF_FIRST_S,
        discover_every_s: float = DISCOVER_EVERY_S,
        parked_s: float = PARKED_S,
    ) -> None:
        self.batch_every_s = batch_every_s
        self._cluster = cluster
        self._watches = watches
        self._backoff_first_s = backoff_first_s
        self._discover_every_s = discover_every_s
        self._parked_s = parked_s
        self._parked: dict[str, tuple[Viewer, asyncio.TimerHandle]] = {}
        self._viewers: set[Viewer] = set()
        self._brokers: dict[str, WatchedBroker] = {}
        self._discovery: asyncio.Task[None] | None = None
        self._problem: Sentence = ""
        self._names: dict[WatchFilter, str] = {}
        self._numbers = itertools.count(1)
        self._leaving: asyncio.Task[None] | None = None

    def join(self, viewer: Viewer) -> None:
        """Add a viewer.

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
        """Remove a viewer; the last one ends every watch."""
        self._viewers.discard(viewer)
        if self._viewers:
            self.refilter()
        else:
            await self.shutdown()

    def park(self, viewer: Viewer) -> None:
        """Keep a viewer whose connection was lost for a while."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._parked_s, self._give_up, viewer)
        self._parked[viewer.token] = viewer, timer

    def take_parked(self, token: str, user_id: object) -> Viewer | None:
        """Return a user's parked viewer, or None if it is unknown or has expired."""
        viewer, timer = self._parked.get(token, (None, None))
        if viewer is None or timer is None or viewer.user_id != user_id:
            return None
        timer.cancel()
        del self._parked[token]
        viewer.offer_status(self._status())
        return viewer

    def _give_up(self, viewer: Viewer) -> None:
        del self._parked[viewer.token]
        self._leaving = asyncio.get_running_loop().create_task(
            self.leave(viewer), name="trace viewer leaves"
        )

    def viewers_of(self, user_id: object) -> int:
        """Count a user's open pages, not including parked ones."""
        open_ones = (each for each in self._viewers if each.token not in self._parked)
        return Counter(viewer.user_id for viewer in open_ones)[user_id]

    def has_room_for(self, wanted: WatchFilter) -> bool:
        """Return whether the brokers have room for this filter; each one costs time per event."""
        return wanted in self._names or len(self._names) < FILTERS_MAX

    def refilter(self) -> None:
        """Update the brokers' filters if the viewers' filters have changed."""
        names = {
            wanted: self._names.get(wanted) or str(next(self._numbers))
            for wanted in dict.fromkeys(viewer.filter for viewer in self._viewers)
        }
        if names != self._names:
            # Names are never reused, so events still in transit for an old filter reach no viewer.
            self._names = names
            for broker in self._brokers.values():
                broker.refilter.set()

    async def shutdown(self) -> None:
        """End every watch."""
        tasks = [broker.task for broker in self._brokers.values() if broker.task is not None]
        if self._discovery is not None:
            tasks.append(self._discovery)
        for _viewer, timer in self._parked.values():
            timer.cancel()
        self._parked.clear()
        self._brokers, self._discovery, self._problem = {}, None, ""
        self._names = {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _discover(self) -> None:
        """Keep one watch for each broker that is registered with the name server."""
        while True:
            wait_s = self._discover_every_s
            try:
                found = await self._masters()
            except GatewayError as error:
                self._problem = str(error)
                wait_s = min(wait_s, 2.0)
                self._tell()
            except Exception as error:  # noqa: BLE001  the next look is seconds away
                FAILURES.report("looking for brokers to watch", "", error)
            else:
                self._problem = (
                    "" if found else _("No broker is registered with the name server yet.")
                )
                self._follow_exactly(found)
                wait_s = wait_s if found else min(wait_s, 2.0)
            await asyncio.sleep(wait_s)

    async def _masters(self) -> dict[str, str]:
        """Return the address of each master by name."""
        read = sync_to_async(self._cluster.registered, thread_sensitive=False)
        return {node.broker_name: node.address for node in (await read()).masters}

    def _follow_exactly(self, found: Mapping[str, str]) -> None:
        for name, broker in list(self._brokers.items()):
            if found.get(name) != broker.address and broker.state != "watching":
                # Drop a broker that left the name server, unless its watch still works.
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
        """Hold the watch of one broker; after a loss, retry with increasing delays."""
        backoff_s = self._backoff_first_s
        while True:
            watch = self._watches.open(broker.address, lambda batch: self._arrived(broker, batch))
            try:
                place = WatchPlace(broker.watch_id, broker.last_seq, broker.received)
                broker.resumed = await self._ask(broker, watch, place if place.watch_id else None)
                backoff_s = self._backoff_first_s
                self._set(broker, "watching", "")
                await self._hold(broker, watch)
                self._set(broker, "away", _("The connection to the broker was lost. Reconnecting."))
            except RequestFailedError as refusal:
                # A RocketMQ broker, or a broker with too many watchers.
                backoff_s = BACKOFF_MAX_S
                sentence = _("The broker rejected the trace request: {reason}")
                self._set(broker, "away", format_lazy(sentence, reason=str(refusal)))
            except GatewayError as error:
                sentence = _("Tracing failed. Retrying: {reason}")
                self._set(broker, "away", format_lazy(sentence, reason=str(error)))
            except Exception as error:  # noqa: BLE001  one of many brokers; the bridge tries again
                FAILURES.report("watching a broker", broker.name, error)
                sentence = _("Tracing failed. Retrying: {reason}")
                self._set(broker, "away", format_lazy(sentence, reason=type(error).__name__))
            finally:
                await watch.close()
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _ask(
        self, broker: WatchedBroker, watch: Watch, after: WatchPlace | None = None
    ) -> bool:
        broker.refilter.clear()
        return await watch.set_filters(
            {name: wanted for wanted, name in self._names.items()}, after
        )

    async def _hold(self, broker: WatchedBroker, watch: Watch) -> None:
        """Update the watch whenever the filter changes; return when the connection ends."""
        closed = asyncio.get_running_loop().create_task(watch.until_closed())
        try:
            while not closed.done():
                changed = asyncio.get_running_loop().create_task(broker.refilter.wait())
                try:
                    await asyncio.wait({closed, changed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                if not closed.done():
                    await self._ask(broker, watch)
        finally:
            closed.cancel()

    def _arrived(self, broker: WatchedBroker, batch: TraceBatch) -> None:
        """Pass a batch to the viewers whose filters match according to the broker."""
        if batch.watch_id != broker.watch_id:
            # A new watch counts from zero.
            broker.watch_id = batch.watch_id
            broker.dropped = broker.last_seq = broker.received = 0
            broker.come, broker.lost = Counter(), Counter()
        lost = max(0, batch.dropped - broker.dropped)
        broker.dropped = batch.dropped
        broker.received += len(batch.events)
        if batch.events:
            broker.last_seq = int(batch.events[-1].get("seq", 0))
        viewers: dict[str | None, list[Viewer]] = {}
        for viewer in self._viewers:
            if lost:
                viewer.broker_lost(lost)
            viewers.setdefault(self._names.get(viewer.filter), []).append(viewer)
        for event in batch.events:
            with isolated("passing on a broker's event", broker.name):
                self._pass_on(broker, event, viewers)
        self._report_lost_stages(broker, batch)

    @staticmethod
    def _pass_on(
        broker: WatchedBroker, event: TraceEvent, viewers: Mapping[str | None, Sequence[Viewer]]
    ) -> None:
        broker.come[event["stage"]] += 1
        event["brokerName"] = broker.name
        matched = [
            viewer
            for name in event.pop("matched", ())
            for viewer in viewers.get(name, ())
            if viewer.may_see(str(event.get("topic", "")))
        ]
        text = text_of(event) if any(viewer.is_page for viewer in matched) else b""
        for viewer in matched:
            viewer.offer(event, text)

    def _report_lost_stages(self, broker: WatchedBroker, batch: TraceBatch) -> None:
        """Report the stages of lost events, once the broker's queue is empty and they are known."""
        if broker.received + broker.dropped != sum(batch.offered.values()):
            return
        lost = Counter(batch.offered)
        lost.subtract(broker.come)
        news = lost - broker.lost
        if news:
            broker.lost = lost
            for viewer in self._viewers:
                viewer.count_broker_lost(news)

    def _set(self, broker: WatchedBroker, state: str, message: Sentence) -> None:
        if (state, message) != (broker.state, broker.message):
            if state == "away":
                logger.warning("trace watch lost broker=%s reason=%s", broker.name, message)
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
                    "resumed": broker.resumed,
                }
                for broker in self._brokers.values()
            ],
        }


def text_of(event: TraceEvent) -> bytes:
    """Return the page's version of an event, with long texts cut."""
    return msgspec.json.encode(
        {
            name: value[:TEXT_CHARS_MAX] + "…"
            if isinstance(value, str) and len(value) > TEXT_CHARS_MAX
            else value
            for name, value in event.items()
        }
    )
