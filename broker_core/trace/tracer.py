"""The live trace: events about messages, for watchers only.

Callers test `watching` first: without a watcher a message costs one attribute read. Each watcher
has a bounded ring; events that do not fit are dropped, and the watcher learns how many.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.config.limits import LIMITS
from broker_core.service import Service
from broker_core.trace.filter import STAGES, TracedMessage, TraceFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from broker_core.clock import Clock
    from broker_core.config.limits import LimitsConfig

logger = logging.getLogger(__name__)

PUSH_SECONDS = 0.05
RING_EVENTS = 20_000
BATCH_EVENTS_MAX = 2_000
"""Events in one push; with PUSH_SECONDS this limits the events a second."""


class TraceEvent(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    """One stage of one message. 64-bit numbers are decimal strings, for JavaScript."""

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
    acknowledged_from: str | None = None
    """Of an acknowledgement: it covers the queue offsets from here up to `queue_offset`."""
    reconsume_times: int | None = None


class TraceBatch(msgspec.Struct, rename="camel", kw_only=True):
    """The body of a TRACE_EVENTS push."""

    watch_id: str
    dropped: str
    events: list[TraceEvent]


class _Watcher:
    __slots__ = ("dropped", "host", "matched", "push", "ring", "seq", "trace_filter", "watch_id")

    def __init__(
        self, watch_id: str, trace_filter: TraceFilter, push: Callable[[bytes], bool], host: str
    ) -> None:
        self.host = host
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
            or (wanted.group and wanted.group not in (event.group, event.producer_group))
            or (wanted.tag and event.tags != wanted.tag)
            or (wanted.client_id and event.client_id != wanted.client_id)
            or (wanted.key and not _has_key(event, wanted.key))
            or (wanted.message and not _is_of(event, wanted.message))
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
    """Takes events from the send and pull paths and pushes them to watchers. Event loop only."""

    def __init__(self, clock: Clock, limits: LimitsConfig = LIMITS) -> None:
        super().__init__()
        self._limits = limits
        self._clock = clock
        self._watchers: dict[Hashable, _Watcher] = {}
        self._watch_ids = itertools.count(1)
        self.watching = False
        self._is_pushing = False

    def watch(
        self,
        connection: Hashable,
        trace_filter: TraceFilter,
        push: Callable[[bytes], bool],
        host: str = "",
    ) -> str | None:
        """Begin to push a connection what its filter matches, in place of its watch so far.

        `push` sends one encoded TraceBatch and returns whether the peer keeps up; while it does
        not, events stay in the ring. Returns the watch's id, None when there are too many watchers
        at this host or in all.
        """
        if connection not in self._watchers and not self._has_room(host):
            return None
        watch_id = str(next(self._watch_ids))
        self._watchers[connection] = _Watcher(watch_id, trace_filter, push, host)
        self.watching = True
        if not self._is_pushing:
            self._is_pushing = True
            self.spawn(self._push_while_watched(), name="trace-push")
        logger.info("live trace: watch_id=%s watchers=%d", watch_id, len(self._watchers))
        return watch_id

    def _has_room(self, host: str) -> bool:
        here = sum(watcher.host == host for watcher in self._watchers.values())
        return (
            len(self._watchers) < self._limits.watcher_nums_max
            and here < self._limits.host_watcher_nums_max
        )

    def unwatch(self, connection: Hashable) -> bool:
        """Stop pushing to a connection, also a lost one; return whether it watched."""
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
        """Send each watcher its gathered events."""
        for watcher in list(self._watchers.values()):
            if not watcher.ring:
                continue
            count = min(len(watcher.ring), BATCH_EVENTS_MAX)
            events = [watcher.ring.popleft() for _ in range(count)]
            batch = TraceBatch(
                watch_id=watcher.watch_id, dropped=str(watcher.dropped), events=events
            )
            if not watcher.push(msgspec.json.encode(batch)):
                # The peer does not read: it loses these events and will learn how many.
                watcher.dropped += len(events)

    async def _push_while_watched(self) -> None:
        try:
            while self._watchers:
                await self._clock.sleep(PUSH_SECONDS)
                self.push_all()
        finally:
            self._is_pushing = False


def _has_key(event: TraceEvent, key: str) -> bool:
    return key in (event.uniq_key, event.offset_msg_id) or key in (event.keys or "").split(" ")


def _is_of(event: TraceEvent, message: TracedMessage) -> bool:
    """Return whether an event belongs to a message: at its place, or to a copy with its id."""
    if message.uniq_key is not None and event.uniq_key == message.uniq_key:
        return True
    if event.topic != message.topic or event.queue_id != message.queue_id:
        return False
    if event.acknowledged_from is None:
        return event.queue_offset == message.queue_offset
    return int(event.acknowledged_from) <= int(message.queue_offset) < int(event.queue_offset)
