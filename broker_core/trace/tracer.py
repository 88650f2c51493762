"""The live trace: send message events to watchers and the recorder.

Callers check `watching` first, or `recorder.is_on` for rare events, so that without a watcher a
message costs one attribute read. Each watch has a bounded ring; events that don't fit are dropped,
and the watcher is sent their number.
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
from broker_core.trace.event import PROPERTY_TRACEPARENT, TraceEvent, WatchedEvent
from broker_core.trace.event_sinks import EventSinks
from broker_core.trace.filter import ERROR_STAGES, STAGES, Properties, TraceWatch
from broker_core.trace.recorder import Recorder
from broker_core.trace.ring import Numbered
from broker_core.trace.selection import EventSelection
from broker_core.trace.watch import Watch
from broker_core.trace.watched_messages import Stored, WatchedMessages

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
RECORDER_BYTES = 16 << 20
RECORDER_MINUTES = 10
OFF, WATCHED, RECORDER, FULL = "off", "watched", "recorder", "full"


class Notes(Protocol):
    """The native turn's notes of what happened, emitted later in batches."""

    def emit(self) -> None:
        """Emit all notes in order."""
        ...


class NoNotes:
    """The notes without a native turn: always empty."""

    def emit(self) -> None:
        """Do nothing."""


class WatchStart(NamedTuple):
    """A watch that has started."""

    watch_id: str
    is_resumed: bool
    """Whether it continues a watch whose connection was lost."""


class Tracer:
    """Collects events on the paths of messages and pushes them to watchers. Event loop only.

    Attributes:
        watching: whether any watcher wants events that the recorder doesn't need.
        on_watching: called when `watching` may have changed.
        recorder: events kept for later.
        deliveries: deliveries waiting for acknowledgement; empty without watchers.
        watched_messages: messages that will have more events; empty without watchers.
        selection: the plain sends and pulls that are wanted.
        event_sinks: watches to which the native turn reports directly. Replaced together with
            `selection`.
        notes: the native turn's notes for these watches that haven't been emitted yet.
    """

    def __init__(
        self,
        clock: Clock,
        limits: LimitsConfig = LIMITS,
        *,
        recorder_bytes_max: int = RECORDER_BYTES,
        recorder_minutes: int = RECORDER_MINUTES,
        span_type: Callable[..., Span] | None = None,
        numbered_type: Callable[[int, bytes, list[WatchedEvent]], Stretch] | None = None,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._monotonic = clock.monotonic
        self._watches: dict[Hashable, Watch] = {}
        self._lost: dict[str, Watch] = {}
        # Prefixed at random, to differ from the IDs of earlier processes.
        self._watch_ids = (f"{secrets.token_hex(4)}-{number}" for number in itertools.count(1))
        self._all: tuple[Watch, ...] = ()
        self.watching = False
        self.on_watching: Callable[[bool], None] = _ignore
        self.recorder = Recorder(clock, recorder_bytes_max, recorder_minutes, span_type)
        self._numbered = numbered_type or Numbered
        self.notes: Notes = NoNotes()
        self.deliveries = Deliveries(self.emit_noted)
        self.watched_messages = WatchedMessages(self)
        self.selection = EventSelection()
        self.event_sinks = EventSinks()
        self._is_off = False
        self._level_after_full = RECORDER
        self._push_timer: Timer | None = None
        self._full_until_ms: int | None = None
        self._full_timer: Timer | None = None

    @property
    def notes_errors(self) -> bool:
        """Whether errors are recorded even without viewers."""
        return self.recorder.is_on or self.watching

    @property
    def level(self) -> str:
        """The trace level: OFF, WATCHED, RECORDER or FULL."""
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
        """Number of watchers."""
        return len(self._watches)

    def set_level(self, level: str, minutes: int = 0) -> None:
        """Set the level: record nothing, only watched events, the recorder's events as well, or
        everything.

        FULL lasts for some minutes; then the previous level returns.
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
        logger.info("trace level changed level=%s minutes=%d", level, minutes)
        self._settle()

    def watch(
        self, connection: Hashable, wanted: TraceWatch, watcher: Watcher
    ) -> WatchStart | None:
        """Start pushing the matching events to a connection, replacing its previous watch.

        While the peer doesn't keep up, events stay in the ring. Returns None when there are too
        many watchers at this host or in total.
        """
        watch = self._resumable(wanted, watcher.owner)
        is_resumed = watch is not None
        if connection not in self._watches and watch is None and not self._has_room(watcher.host):
            return None
        before = self._watches.pop(connection, None)
        if before is not None:
            # The events gathered so far matched the previous request.
            with isolated("sending trace events to a watcher", before.watch_id):
                before.send()
        if watch is None or wanted.resume is None:
            watch = Watch(
                next(self._watch_ids),
                wanted,
                watcher,
                self._numbered,
                self._push_soon,
                self.emit_noted,
            )
        else:
            self._lost.pop(watch.watch_id)
            watch.resume(watcher, int(wanted.resume.last_seq), int(wanted.resume.received))
        self._watches[connection] = watch
        self._settle()
        logger.info(
            "trace watch started watch_id=%s watchers=%d", watch.watch_id, len(self._watches)
        )
        return WatchStart(watch.watch_id, is_resumed)

    def unwatch(self, connection: Hashable) -> bool:
        """Stop pushing to a connection and remove its watch; return whether it had one."""
        watch = self._watches.pop(connection, None)
        self._settle()
        return watch is not None

    def connection_lost(self, connection: Hashable) -> None:
        """Keep the watch of a lost connection, because its watcher may reconnect."""
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
        """Offer an event to every watcher; call only while `watching`, for errors while `is_on`.

        Filters can match all properties; only tags, keys and IDs leave the broker. Returns whether
        any watcher follows the message.
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
        """Offer the event of a message that is in the log, and follow the message from there.

        A deferred message has no offset in its destination queue yet.
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
            self.watched_messages.stored(
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
        """Keep a slow event in the recorder only."""
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
        """Offer an existing event; see `emit`."""
        recorder = self.recorder
        if recorder.is_full or (recorder.is_on and event.stage in ERROR_STAGES):
            recorder.keep(event)
        is_wanted = recorder.is_full
        if self.watching:
            emitted = WatchedEvent(event)
            for watch in self._all:
                try:
                    is_wanted |= watch.offer(emitted, event, properties, at_s)
                except MemoryError:
                    raise
                except Exception as error:  # noqa: BLE001  a watcher's error must not affect messages
                    FAILURES.report("offering an event to a trace watch", watch.watch_id, error)
        return is_wanted

    def emit_noted(self) -> None:
        """Emit the native turn's notes; call this before a push or before reading results."""
        self.notes.emit()

    def notes_failed(self, count: int, error: Exception) -> None:
        """Log that some of the native turn's notes couldn't be emitted."""
        logger.error("trace events lost count=%d", count, exc_info=error)

    def lose(self, stage: str) -> None:
        """Count an event that couldn't be created."""
        for watch in self._all:
            watch.lose(stage)

    def push_all(self) -> None:
        """Push the gathered events to each watcher."""
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
        """Return whether one more watch is allowed, dropping disconnected watches if needed."""
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
            allocator.release_free_memory()

    def _settle(self) -> None:
        """Apply the current watches."""
        self.emit_noted()
        watches = self._all = (*self._watches.values(), *self._lost.values())
        is_full = self.recorder.is_full
        self.watching = not self._is_off and (bool(watches) or is_full)
        self.selection.take(
            [each for watch in watches for each in watch.wanted.named().values()]
            if self.watching
            else [],
            is_full=is_full,
        )
        self.event_sinks = EventSinks(watches, is_full=is_full)
        self.on_watching(self.watching)
        if not self.watching:
            self.deliveries.clear()
            self.watched_messages.clear()

    def _push_soon(self) -> None:
        """Schedule a push of the events gathered until then.

        A callback instead of a waiting task: it runs twenty times a second between messages, and
        with cold caches a task costs as much as a hundred messages.
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
                if not watch.is_up_to_date:
                    self._push_soon()
                    break
            if self._lost:
                self._push_soon()

    async def shutdown(self) -> None:
        """Drop all watches."""
        for timer in (self._full_timer, self._push_timer):
            if timer is not None:
                timer.cancel()


def _ignore(_: bool) -> None:
    """Do nothing."""
