"""The live trace: events about messages, for watchers and the recorder.

Callers test `watching` first, or `recorder.is_on` for what is rare: without a watcher a message
costs one attribute read. Each watch has a bounded ring; events that do not fit are dropped, and the
watcher learns how many.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import structs

from broker_core import allocator
from broker_core.config.limits import LIMITS
from broker_core.isolation import FAILURES, isolated
from broker_core.message.names import (
    PROPERTY_KEYS,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
)
from broker_core.trace.deliveries import Deliveries
from broker_core.trace.event import Emitted, TraceEvent
from broker_core.trace.filter import ERROR_STAGES, STAGES, Properties, TraceWatch
from broker_core.trace.followed import Followed, Stored
from broker_core.trace.picking import Picking
from broker_core.trace.recorder import Recorder
from broker_core.trace.ring import Numbered
from broker_core.trace.takers import Takers
from broker_core.trace.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from broker_core.clock import Clock, Timer
    from broker_core.config.limits import LimitsConfig
    from broker_core.trace.recorder import Span
    from broker_core.trace.ring import Stretch
    from broker_core.trace.watch import Watcher

logger = logging.getLogger(__name__)

PUSH_SECONDS = 0.05
LOST_SECONDS = 60.0
"""How long a watch without a connection is kept."""
PROPERTY_TRACEPARENT = "traceparent"
RECORDER_BYTES = 16 << 20
RECORDER_MINUTES = 10
OFF, WATCHED, RECORDER, FULL = "off", "watched", "recorder", "full"


class Notes(Protocol):
    """What happened, noted by the native turn to be told of later, together."""

    def tell(self) -> None:
        """Tell of all that is noted, in its order."""
        ...


class NoNotes:
    """Without a native turn nothing is noted."""

    def tell(self) -> None:
        """Tell of nothing."""


class Watched(NamedTuple):
    """A watch that has begun."""

    watch_id: str
    is_resumed: bool
    """Whether it goes on with one whose connection was lost."""


class Tracer:
    """Takes events from the paths of messages; pushes them to watchers. Event loop only.

    Attributes:
        watching: whether anybody wants more than the recorder notes by itself.
        on_watching: told when that may have changed.
        recorder: what is kept for later.
        deliveries: what acknowledgements are of; empty while nobody watches.
        followed: messages of which more is to come; empty while nobody watches.
        picking: which plain sends and pulls are wanted.
        takers: whom the native turn tells of pulls without any event. New when picking is.
        notes: what the native turn has noted for them and not told yet.
    """

    def __init__(
        self,
        clock: Clock,
        limits: LimitsConfig = LIMITS,
        *,
        recorder_bytes_max: int = RECORDER_BYTES,
        recorder_minutes: int = RECORDER_MINUTES,
        span_type: Callable[..., Span] | None = None,
        numbered_type: Callable[[int, bytes, list[Emitted]], Stretch] | None = None,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._monotonic = clock.monotonic
        self._watches: dict[Hashable, Watch] = {}
        self._lost: dict[str, Watch] = {}
        # Those of earlier processes have other names.
        self._watch_ids = (f"{secrets.token_hex(4)}-{number}" for number in itertools.count(1))
        self._all: tuple[Watch, ...] = ()
        self.watching = False
        self.on_watching: Callable[[bool], None] = _nobody
        self.recorder = Recorder(clock, recorder_bytes_max, recorder_minutes, span_type)
        self._numbered = numbered_type or Numbered
        self.notes: Notes = NoNotes()
        self.deliveries = Deliveries(self.tell_noted)
        self.followed = Followed(self)
        self.picking = Picking()
        self.takers = Takers()
        self._is_off = False
        self._level_after_full = RECORDER
        self._push_timer: Timer | None = None
        self._full_until_ms: int | None = None
        self._full_timer: Timer | None = None

    @property
    def notes_errors(self) -> bool:
        """Whether errors are noted, if nobody watches as well."""
        return self.recorder.is_on or self.watching

    @property
    def level(self) -> str:
        """What is noted: OFF, WATCHED, RECORDER or FULL."""
        if self._is_off:
            return OFF
        recorder = self.recorder
        return FULL if recorder.is_full else RECORDER if recorder.is_on else WATCHED

    @property
    def full_until_ms(self) -> int | None:
        """When the level FULL ends, in wall time."""
        return self._full_until_ms

    @property
    def watchers(self) -> int:
        """How many watch."""
        return len(self._watches)

    def set_level(self, level: str, minutes: int = 0) -> None:
        """Note nothing, what who watches wants, besides what the recorder affords, or everything.

        The last one for some minutes: then it is again what it was before.
        """
        if self.level != FULL:
            self._level_after_full = self.level
        if self._full_timer is not None:
            self._full_timer.cancel()
            self._full_timer = None
        self._is_off = level == OFF
        self._full_until_ms = None
        self.recorder.is_full = level == FULL
        self.recorder.is_on = level in (RECORDER, FULL)
        if level == FULL:
            self._full_until_ms = self._clock.now_ms() + minutes * 60_000
            when = self._monotonic() + minutes * 60
            self._full_timer = self._clock.call_at(
                when, lambda: self.set_level(self._level_after_full)
            )
        elif not self.recorder.is_on:
            self.recorder.clear()
        logger.info("live trace: level=%s minutes=%d", level, minutes)
        self._settle()

    def watch(self, connection: Hashable, wanted: TraceWatch, watcher: Watcher) -> Watched | None:
        """Begin to push a connection what its filters match, in place of its watch so far.

        While the peer does not keep up, events stay in the ring. Returns None when there are too
        many watchers at this host or in all.
        """
        watch = self._resumable(wanted, watcher.owner)
        is_resumed = watch is not None
        if connection not in self._watches and watch is None and not self._has_room(watcher.host):
            return None
        before = self._watches.pop(connection, None)
        if before is not None:
            # What it has gathered matched what was asked for until now.
            with isolated("sending trace events to a watcher", before.watch_id):
                before.send()
        if watch is None or wanted.resume is None:
            watch = Watch(
                next(self._watch_ids),
                wanted,
                watcher,
                self._numbered,
                self._push_soon,
                self.tell_noted,
            )
        else:
            self._lost.pop(watch.watch_id)
            watch.resume(watcher, int(wanted.resume.last_seq), int(wanted.resume.received))
        self._watches[connection] = watch
        self._settle()
        logger.info("live trace: watch_id=%s watchers=%d", watch.watch_id, len(self._watches))
        return Watched(watch.watch_id, is_resumed)

    def unwatch(self, connection: Hashable) -> bool:
        """Stop pushing to a connection, and forget its watch; return whether it watched."""
        watch = self._watches.pop(connection, None)
        self._settle()
        return watch is not None

    def connection_lost(self, connection: Hashable) -> None:
        """Keep the watch of a connection that has ended, for its watcher may come again."""
        watch = self._watches.pop(connection, None)
        if watch is not None:
            watch.lose_connection(self._monotonic())
            self._lost[watch.watch_id] = watch
            self._push_soon()

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
    ) -> bool:
        """Offer an event to every watcher; call only while `watching`, errors while `is_on`.

        Properties are matched; of them only tags, keys and ids leave the broker. Returns whether
        anybody asks about the message.
        """
        at_s = self._monotonic()
        table = {} if properties is None else properties
        event = self._event(
            stage, topic, queue_id, queue_offset, table, at_s, offset_msg_id, **more
        )
        return self.offer(event, table, at_s)

    def stored(
        self,
        stage: str,
        topic: str,
        queue_id: int,
        queue_offset: int | None,
        properties: Properties | None,
        *,
        commit_log_offset: int,
        store_size: int,
        offset_msg_id: str,
        **more: Any,
    ) -> None:
        """Offer the event of a message that is in the log, and follow it from there.

        What waits has no offset in the queue that it is for.
        """
        at_s = self._monotonic()
        table = {} if properties is None else properties
        event = self._event(
            stage,
            topic,
            queue_id,
            queue_offset,
            table,
            at_s,
            offset_msg_id,
            commit_log_offset=str(commit_log_offset),
            store_size=store_size,
            **more,
        )
        if self.offer(event, table, at_s):
            self.followed.stored(
                Stored(commit_log_offset, commit_log_offset + store_size, at_s, event, table)
            )

    def keep(
        self,
        stage: str,
        topic: str,
        queue_id: int | None,
        queue_offset: int | None,
        properties: Properties,
        *,
        offset_msg_id: str,
        **more: Any,
    ) -> None:
        """Keep something slow in the recorder, for nobody else."""
        at_s = self._monotonic()
        self.recorder.keep(
            self._event(
                stage, topic, queue_id, queue_offset, properties, at_s, offset_msg_id, **more
            )
        )

    def now_ms(self) -> int:
        """Return the wall time."""
        return self._clock.now_ms()

    def _event(
        self,
        stage: str,
        topic: str,
        queue_id: int | None,
        queue_offset: int | None,
        table: Properties,
        at_s: float,
        offset_msg_id: str | None,
        **more: Any,
    ) -> TraceEvent:
        assert stage in STAGES
        uniq_key = table.get(PROPERTY_UNIQ_KEY)
        return TraceEvent(
            time_ms=str(self._clock.now_ms()),
            at_us=str(round(at_s * 1_000_000)),
            stage=stage,
            topic=topic,
            queue_id=queue_id,
            queue_offset=None if queue_offset is None else str(queue_offset),
            message_id=uniq_key or table.get(PROPERTY_ORIGIN_MESSAGE_ID) or offset_msg_id,
            tags=table.get(PROPERTY_TAGS),
            keys=table.get(PROPERTY_KEYS),
            uniq_key=uniq_key,
            offset_msg_id=offset_msg_id,
            traceparent=table.get(PROPERTY_TRACEPARENT),
            **more,
        )

    def offer(self, event: TraceEvent, properties: Properties, at_s: float) -> bool:
        """Offer an event that is made already; see `emit`."""
        recorder = self.recorder
        if recorder.is_full or (recorder.is_on and event.stage in ERROR_STAGES):
            recorder.keep(event)
        is_wanted = recorder.is_full
        if self.watching:
            emitted = Emitted(event)
            for watch in self._all:
                try:
                    is_wanted |= watch.offer(emitted, event, properties, at_s)
                except MemoryError:
                    raise
                except Exception as error:  # noqa: BLE001  a watcher's error must not affect messages
                    FAILURES.report("offering an event to a trace watch", watch.watch_id, error)
        return is_wanted

    def tell_noted(self) -> None:
        """Have told what the native turn noted: before a push, and whatever needs its traces."""
        self.notes.tell()

    def notes_failed(self, count: int, error: Exception) -> None:
        """Log that some of what was noted could not be told."""
        logger.error("live trace: %d events could not be made", count, exc_info=error)

    def lose(self, stage: str) -> None:
        """Count an event that could not be made."""
        for watch in self._all:
            watch.lose(stage)

    def push_all(self) -> None:
        """Send each watcher its gathered events."""
        for watch in list(self._watches.values()):
            with isolated("sending trace events to a watcher", watch.watch_id):
                watch.send()
        if self._lost:
            self._forget_lost()
        for watch in self._lost.values():
            with isolated("packing trace events for a lost watcher", watch.watch_id):
                watch.fold()

    def _resumable(self, wanted: TraceWatch, owner: str | None) -> Watch | None:
        if wanted.resume is None:
            return None
        watch = self._lost.get(wanted.resume.watch_id)
        if (
            watch is None
            or watch.owner != owner
            or watch.wanted != structs.replace(wanted, resume=None)
        ):
            return None
        return watch

    def _has_room(self, host: str) -> bool:
        """Tell whether one more may watch; those without a connection give way."""
        limits = self._limits
        while self._lost and (
            len(self._watches) + len(self._lost) >= limits.watcher_nums_max
            or self._at(host) >= limits.host_watcher_nums_max
        ):
            del self._lost[next(iter(self._lost))]
        return (
            len(self._watches) < limits.watcher_nums_max
            and self._at(host) < limits.host_watcher_nums_max
        )

    def _at(self, host: str) -> int:
        watches = (*self._watches.values(), *self._lost.values())
        return sum(watch.host == host for watch in watches)

    def _forget_lost(self) -> None:
        least_s = self._monotonic() - LOST_SECONDS
        for watch_id, watch in list(self._lost.items()):
            if watch.lost_at < least_s:
                del self._lost[watch_id]
        if len(self._watches) + len(self._lost) < len(self._all):
            self._settle()
            allocator.give_back()

    def _settle(self) -> None:
        """Take note of who wants what."""
        self.tell_noted()
        watches = self._all = (*self._watches.values(), *self._lost.values())
        is_full = self.recorder.is_full
        self.watching = not self._is_off and (bool(watches) or is_full)
        self.picking.take(
            [each for watch in watches for each in watch.wanted.named().values()]
            if self.watching
            else [],
            is_full=is_full,
        )
        self.takers = Takers(watches, is_full=is_full)
        self.on_watching(self.watching)
        if not self.watching:
            self.deliveries.clear()
            self.followed.clear()

    def _push_soon(self) -> None:
        """Have what is gathered by then sent a moment from now.

        A callback, and no task that waits: it runs twenty times a second between messages, and
        costs as much as a hundred of them where nothing of it is in a cache.
        """
        if self._push_timer is None:
            when = self._monotonic() + PUSH_SECONDS
            self._push_timer = self._clock.call_at(when, self._push)

    def _push(self) -> None:
        self._push_timer = None
        try:
            self.push_all()
        finally:
            for watch in self._watches.values():
                if not watch.is_told:
                    self._push_soon()
                    break
            if self._lost:
                self._push_soon()

    async def shutdown(self) -> None:
        """Forget the watches."""
        for timer in (self._full_timer, self._push_timer):
            if timer is not None:
                timer.cancel()


def _nobody(_: bool) -> None:
    """Nobody listens."""
