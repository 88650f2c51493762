"""The live trace: events about messages for whoever watches, nothing at all for nobody.

Callers test `watching` first: with no watcher a message costs one attribute read. Each watcher has
a bounded ring; what does not fit is dropped, counted, and the count is told.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.service import Service
from broker_core.trace.filter import STAGES, TraceFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from broker_core.clock import Clock

logger = logging.getLogger(__name__)

PUSH_SECONDS = 0.05
RING_EVENTS = 20_000
BATCH_EVENTS_MAX = 2_000
"""Events in one push; with PUSH_SECONDS this bounds what a watcher can be sent in a second."""
WATCHERS_MAX = 64


class TraceEvent(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    """One stage of one message. 64-bit numbers are decimal strings: JavaScript reads these."""

    seq: str = ""
    time_ms: str
    stage: str
    topic: str
    queue_id: int
    queue_offset: str
    commit_log_offset: str | None = None
    store_size: int | None = None
    body_size: int | None = None
    tags: str | None = None
    keys: str | None = None
    uniq_key: str | None = None
    offset_msg_id: str | None = None
    producer_group: str | None = None
    group: str | None = None
    client: str | None = None
    client_id: str | None = None
    latency_us: int | None = None


class TraceBatch(msgspec.Struct, rename="camel", kw_only=True):
    """The body of a TRACE_EVENTS push."""

    watch_id: str
    dropped: str
    events: list[TraceEvent]


class _Watcher:
    __slots__ = ("dropped", "matched", "push", "ring", "seq", "trace_filter", "watch_id")

    def __init__(
        self, watch_id: str, trace_filter: TraceFilter, push: Callable[[bytes], bool]
    ) -> None:
        self.watch_id = watch_id
        self.trace_filter = trace_filter
        self.push = push
        self.ring: deque[TraceEvent] = deque()
        self.dropped = 0
        self.matched = 0
        self.seq = itertools.count(1)

    def wants(self, event: TraceEvent) -> bool:
        wanted = self.trace_filter
        if (
            (wanted.topic and event.topic != wanted.topic)
            or (wanted.stages and event.stage not in wanted.stages)
            or (wanted.group and event.group != wanted.group)
            or (wanted.tag and event.tags != wanted.tag)
            or (wanted.client_id and event.client_id != wanted.client_id)
            or (wanted.key and not _has_key(event, wanted.key))
            or (wanted.min_latency_ms * 1000 > (event.latency_us or 0))
        ):
            return False
        self.matched += 1
        return self.matched % wanted.sample == 0

    def take(self, event: TraceEvent) -> None:
        if len(self.ring) >= RING_EVENTS:
            self.ring.popleft()
            self.dropped += 1
        self.ring.append(event)


class Tracer(Service):
    """Takes events from the send and pull paths, pushes them to watchers. Event loop only."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._watchers: dict[Hashable, _Watcher] = {}
        self._watch_ids = itertools.count(1)
        self.watching = False
        self._is_pushing = False

    def watch(
        self, connection: Hashable, trace_filter: TraceFilter, push: Callable[[bytes], bool]
    ) -> str | None:
        """Begin to tell a connection what its filter wants; replaces what it watched before.

        `push` sends one encoded TraceBatch and says whether the peer keeps up: while it does not,
        events stay in the ring. Returns the watch's id, None when there are too many watchers.
        """
        if connection not in self._watchers and len(self._watchers) >= WATCHERS_MAX:
            return None
        watch_id = str(next(self._watch_ids))
        self._watchers[connection] = _Watcher(watch_id, trace_filter, push)
        self.watching = True
        if not self._is_pushing:
            self._is_pushing = True
            self.spawn(self._push_while_watched(), name="trace-push")
        logger.info("live trace: watch_id=%s watchers=%d", watch_id, len(self._watchers))
        return watch_id

    def unwatch(self, connection: Hashable) -> bool:
        """Stop telling a connection; False when it did not watch. Also for lost connections."""
        watcher = self._watchers.pop(connection, None)
        self.watching = bool(self._watchers)
        return watcher is not None

    def emit(self, stage: str, topic: str, queue_id: int, queue_offset: int, **more: Any) -> None:
        """Offer an event to every watcher; call only while `watching`."""
        assert stage in STAGES
        event = TraceEvent(
            time_ms=str(self._clock.now_ms()),
            stage=stage,
            topic=topic,
            queue_id=queue_id,
            queue_offset=str(queue_offset),
            **more,
        )
        for watcher in self._watchers.values():
            if watcher.wants(event):
                numbered = msgspec.structs.replace(event, seq=str(next(watcher.seq)))
                watcher.take(numbered)

    def push_all(self) -> None:
        """Send each watcher what has gathered for it."""
        for watcher in list(self._watchers.values()):
            if not watcher.ring:
                continue
            count = min(len(watcher.ring), BATCH_EVENTS_MAX)
            events = [watcher.ring.popleft() for _ in range(count)]
            batch = TraceBatch(
                watch_id=watcher.watch_id, dropped=str(watcher.dropped), events=events
            )
            if not watcher.push(msgspec.json.encode(batch)):
                # The peer does not read: these are lost to it, and it will be told how many.
                watcher.dropped += len(events)

    async def _push_while_watched(self) -> None:
        try:
            while self._watchers:
                await self._clock.sleep(PUSH_SECONDS)
                self.push_all()
        finally:
            self._is_pushing = False


def _has_key(event: TraceEvent, key: str) -> bool:
    return key == event.uniq_key or key in (event.keys or "").split(" ")
