"""Messages stored while a watcher was active, for which more events will follow.

Flushes and slaves' reports are offsets of the log; this module finds the messages that they cover.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from broker_core.backlog import Backlog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.trace.event import TraceEvent
    from broker_core.trace.event_sinks import PutSinks
    from broker_core.trace.filter import Properties
    from broker_core.trace.tracer import Tracer

FOLLOWED_MAX = 50_000
"""Messages that wait for a flush, and the limit for each slave."""
STORED_MAX = 50_000
"""Messages whose store time is kept."""
FORGOTTEN = STORED_MAX // 10
"""Removed together, because a dict scans over its deleted entries to find the first one."""
AT_ONCE = 500
"""Flush and replication events in one turn of the loop."""
SLAVES_MAX = 16
FLUSHED, REPLICATED = "flushed", "replicated"


class Stored(NamedTuple):
    """A stored message."""

    commit_log_offset: int
    end: int
    """End of its record in the log."""
    at_s: float
    event: TraceEvent
    properties: Properties


class Put(Protocol):
    """A message that the native turn stored and reported: its version of Stored."""

    commit_log_offset: int
    end: int
    at_s: float
    topic: str
    event: TraceEvent
    properties: Properties

    def move_until(
        self, waiting: deque[Stored | Put], messages: deque[Stored | Put], end: int
    ) -> None:
        """Move the messages from this one on that end at or before an offset of the log.

        Stops at the first message that isn't a Put.
        """

    def emit_progress(
        self,
        messages: deque[Stored | Put],
        count: int,
        put_sinks: Mapping[str, PutSinks | None],
        stage: str,
        client: str | None,
        at_s: float,
        together: int,
    ) -> int:
        """Report that the disk or a slave has some messages, starting with this one.

        Removes up to `count` messages from the front and returns how many. Stops at the first
        message that isn't a Put or whose topic has a watch that must filter events.
        """


class _Destination:
    """A destination that the log reaches later, the disk or a slave, and the messages it lacks."""

    __slots__ = ("client", "stage", "waiting")

    def __init__(self, stage: str, client: str | None) -> None:
        self.stage = stage
        self.client = client
        self.waiting: deque[Stored | Put] = deque()


class _Progress:
    """Messages that a flush or a report covers."""

    __slots__ = ("at_s", "destination", "messages", "together")

    def __init__(
        self, messages: deque[Stored | Put], at_s: float, together: int, destination: _Destination
    ) -> None:
        self.messages = messages
        self.at_s = at_s
        self.together = together
        self.destination = destination


class WatchedMessages:
    """Emits "flushed" and "replicated". Event loop only.

    Attributes:
        stored_at: when messages were stored, by their offsets in the log.
        unflushed: messages that wait for a flush, in the log's order.
        slaves: the messages that each slave lacks, by its address.

    The native turn reads all of these, and adds messages while there is room and no slave.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._disk = _Destination(FLUSHED, None)
        self.unflushed = self._disk.waiting
        self.slaves: dict[str, _Destination] = {}
        self.stored_at: dict[int, float] = {}
        self._backlog: Backlog[_Progress] = Backlog(self._emit_some, AT_ONCE)

    def __len__(self) -> int:
        """Return the number of flushes and reports that haven't been emitted yet."""
        return len(self._backlog)

    def stored(self, stored: Stored | Put) -> None:
        """Follow a watched message."""
        self._tracer.emit_noted()
        if len(self.stored_at) >= STORED_MAX:
            for each in list(islice(self.stored_at, FORGOTTEN)):
                del self.stored_at[each]
        self.stored_at[stored.commit_log_offset] = stored.at_s
        for destination in (self._disk, *self.slaves.values()):
            if len(destination.waiting) >= FOLLOWED_MAX:
                destination.waiting.popleft()
                self._tracer.lose(destination.stage)
            destination.waiting.append(stored)

    def stored_s(self, commit_log_offset: int) -> float | None:
        """Return when a message was stored, by the monotonic clock, if known."""
        self._tracer.emit_noted()
        return self.stored_at.get(commit_log_offset)

    def flushed(self, commit_log_offset: int, at_s: float, together: int) -> None:
        """Emit "flushed" for messages that end at or before an offset of the log."""
        self._tracer.emit_noted()
        self._advance(self._disk, commit_log_offset, at_s, together)

    def replicated(self, address: str, commit_log_offset: int, at_s: float) -> None:
        """Emit "replicated" for a slave's new messages; a negative offset means that it has
        disconnected.
        """
        self._tracer.emit_noted()
        if commit_log_offset < 0:
            self.slaves.pop(address, None)
            return
        destination = self.slaves.get(address)
        if destination is None:
            if len(self.slaves) >= SLAVES_MAX:
                return
            # Messages stored before the slave's first report can't be reported.
            self.slaves[address] = _Destination(REPLICATED, address)
        else:
            self._advance(destination, commit_log_offset, at_s, 0)

    def clear(self) -> None:
        self._tracer.emit_noted()
        self._disk.waiting.clear()
        self.slaves.clear()
        self.stored_at.clear()

    def _advance(
        self, destination: _Destination, commit_log_offset: int, at_s: float, together: int
    ) -> None:
        waiting, messages = destination.waiting, deque[Stored | Put]()
        while waiting and (first := waiting[0]).end <= commit_log_offset:
            if isinstance(first, Stored):
                messages.append(waiting.popleft())
            else:
                first.move_until(waiting, messages, commit_log_offset)
        if messages:
            self._backlog.add(_Progress(messages, at_s, together, destination))

    def _emit_some(self, progress: _Progress) -> int:
        """Emit the events of some messages; the rest follow later."""
        messages, destination = progress.messages, progress.destination
        count = room = min(len(messages), AT_ONCE)
        while room > 0:
            first = messages[0]
            emitted = 0
            if not isinstance(first, Stored):
                emitted = first.emit_progress(
                    messages,
                    room,
                    self._tracer.event_sinks.of_puts,
                    destination.stage,
                    destination.client,
                    progress.at_s,
                    progress.together,
                )
            if not emitted:
                self._emit(messages.popleft(), progress)
                emitted = 1
            room -= emitted
        if messages:
            self._backlog.add(progress)
        return count

    def _emit(self, stored: Stored | Put, progress: _Progress) -> None:
        destination = progress.destination
        latency_us = max(0, round((progress.at_s - stored.at_s) * 1_000_000))
        event = msgspec.structs.replace(
            stored.event,
            stage=destination.stage,
            time_ms=str(int(stored.event.time_ms) + latency_us // 1000),
            at_us=str(round(progress.at_s * 1_000_000)),
            client=destination.client,
            latency_us=latency_us,
            total_us=latency_us,
            together=progress.together or None,
            steps=None,
        )
        self._tracer.offer(event, stored.properties, progress.at_s)
