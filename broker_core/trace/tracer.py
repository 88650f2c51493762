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
from broker_core.message.names import (
    PROPERTY_KEYS,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
)
from broker_core.service import Service
from broker_core.trace.deliveries import Deliveries
from broker_core.trace.event import TraceBatch, TraceEvent
from broker_core.trace.filter import STAGES, Properties, TraceWatch, compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from broker_core.clock import Clock
    from broker_core.config.limits import LimitsConfig

logger = logging.getLogger(__name__)

PUSH_SECONDS = 0.05
RING_EVENTS = 20_000
BATCH_EVENTS_MAX = 2_000
"""Events in one push; with PUSH_SECONDS this limits the events a second."""


class _Watcher:
    __slots__ = ("dropped", "host", "matchers", "push", "ring", "seq", "watch_id")

    def __init__(
        self, watch_id: str, wanted: TraceWatch, push: Callable[[bytes], bool], host: str
    ) -> None:
        self.host = host
        self.watch_id = watch_id
        filters = {"": wanted} if wanted.filters is None else wanted.filters
        self.matchers = [(name, compiled(each)) for name, each in filters.items()]
        self.push = push
        self.ring: deque[TraceEvent] = deque()
        self.dropped = 0
        self.seq = itertools.count(1)

    def offer(self, event: TraceEvent, properties: Properties) -> None:
        matched = tuple([name for name, match in self.matchers if match(event, properties)])
        if matched:
            names = () if matched == ("",) else matched
            self.take(msgspec.structs.replace(event, seq=str(next(self.seq)), matched=names))

    def take(self, event: TraceEvent) -> None:
        if len(self.ring) >= RING_EVENTS:
            self.ring.popleft()
            self.dropped += 1
        self.ring.append(event)


class Tracer(Service):
    """Takes events from the send and pull paths and pushes them to watchers. Event loop only.

    Attributes:
        watching: whether anybody watches.
        deliveries: what acknowledgements are of; empty while nobody watches.
    """

    def __init__(self, clock: Clock, limits: LimitsConfig = LIMITS) -> None:
        super().__init__()
        self._limits = limits
        self._clock = clock
        self._watchers: dict[Hashable, _Watcher] = {}
        self._watch_ids = itertools.count(1)
        self.watching = False
        self.deliveries = Deliveries()
        self._is_pushing = False

    def watch(
        self,
        connection: Hashable,
        wanted: TraceWatch,
        push: Callable[[bytes], bool],
        host: str = "",
    ) -> str | None:
        """Begin to push a connection what its filters match, in place of its watch so far.

        `push` sends one encoded TraceBatch and returns whether the peer keeps up; while it does
        not, events stay in the ring. Returns the watch's id, None when there are too many watchers
        at this host or in all.
        """
        if connection not in self._watchers and not self._has_room(host):
            return None
        watch_id = str(next(self._watch_ids))
        self._watchers[connection] = _Watcher(watch_id, wanted, push, host)
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
        if not self.watching:
            self.deliveries.clear()
        return watcher is not None

    def emit(
        self,
        stage: str,
        topic: str,
        queue_id: int | None,
        queue_offset: int | None,
        properties: Properties | None = None,
        *,
        offset_msg_id: str | None = None,
        **more: Any,
    ) -> None:
        """Offer an event to every watcher; call only while `watching`.

        Properties are matched; of them only tags, keys and ids leave the broker.
        """
        assert stage in STAGES
        table = {} if properties is None else properties
        uniq_key = table.get(PROPERTY_UNIQ_KEY)
        event = TraceEvent(
            time_ms=str(self._clock.now_ms()),
            stage=stage,
            topic=topic,
            queue_id=queue_id,
            queue_offset=None if queue_offset is None else str(queue_offset),
            message_id=uniq_key or table.get(PROPERTY_ORIGIN_MESSAGE_ID) or offset_msg_id,
            tags=table.get(PROPERTY_TAGS),
            keys=table.get(PROPERTY_KEYS),
            uniq_key=uniq_key,
            offset_msg_id=offset_msg_id,
            **more,
        )
        for watcher in self._watchers.values():
            watcher.offer(event, table)

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
