"""Followed: messages that were stored while somebody watched, and of which more is to come.

A flush and a slave's report are offsets of the log on the wire and in the store; which messages
they cover is looked up here.
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
    from broker_core.trace.filter import Properties
    from broker_core.trace.takers import ToldOfPuts
    from broker_core.trace.tracer import Tracer

FOLLOWED_MAX = 50_000
"""Messages that wait for a flush, and as many for each slave."""
STORED_MAX = 50_000
"""Messages of which is known when they were stored."""
FORGOTTEN = STORED_MAX // 10
"""So many go at once: a dict goes by all that was deleted to find its first entry."""
AT_ONCE = 500
"""Events about flushes and replicas in one turn of the loop."""
SLAVES_MAX = 16
FLUSHED, REPLICATED = "flushed", "replicated"


class Stored(NamedTuple):
    """A message as it was stored."""

    commit_log_offset: int
    end: int
    """Where its record ends in the log."""
    at_s: float
    event: TraceEvent
    properties: Properties


class Put(Protocol):
    """A message as the native turn stored and told of it: its twin of Stored."""

    commit_log_offset: int
    end: int
    at_s: float
    topic: str
    event: TraceEvent
    properties: Properties

    def moved(self, waiting: deque[Stored | Put], messages: deque[Stored | Put], end: int) -> None:
        """Move what ends at or before an offset of the log, of which this one is the first.

        Up to the first that is no Put.
        """

    def covered(
        self,
        messages: deque[Stored | Put],
        count: int,
        takers_of_puts: Mapping[str, ToldOfPuts | None],
        stage: str,
        client: str | None,
        at_s: float,
        together: int,
    ) -> int:
        """Tell that the disk or a slave has some messages, of which this one is the first.

        Takes up to `count` of them off the beginning, and returns how many: up to the first that
        is no Put, or whose topic has somebody who holds events against filters.
        """


class _Reach:
    """Whom the log reaches later: the disk or a slave, and what it has not yet."""

    __slots__ = ("client", "stage", "waiting")

    def __init__(self, stage: str, client: str | None) -> None:
        self.stage = stage
        self.client = client
        self.waiting: deque[Stored | Put] = deque()


class _Covered:
    """Messages that a flush or a report covers."""

    __slots__ = ("at_s", "messages", "reach", "together")

    def __init__(
        self, messages: deque[Stored | Put], at_s: float, together: int, reach: _Reach
    ) -> None:
        self.messages = messages
        self.at_s = at_s
        self.together = together
        self.reach = reach


class Followed:
    """Emits "flushed" and "replicated". Event loop only.

    Attributes:
        stored_at: when messages were stored, by their offsets in the log.
        unflushed: those that wait for a flush, in the log's order.
        slaves: what each slave has not yet, by its address.

    The native turn looks at all of them, and adds as long as there is room and no slave.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._disk = _Reach(FLUSHED, None)
        self.unflushed = self._disk.waiting
        self.slaves: dict[str, _Reach] = {}
        self.stored_at: dict[int, float] = {}
        self._backlog: Backlog[_Covered] = Backlog(self._tell_some, AT_ONCE)

    def __len__(self) -> int:
        """Return how many flushes and reports are not told of yet."""
        return len(self._backlog)

    def stored(self, stored: Stored | Put) -> None:
        """Follow a message that somebody asks about."""
        self._tracer.tell_noted()
        if len(self.stored_at) >= STORED_MAX:
            for each in list(islice(self.stored_at, FORGOTTEN)):
                del self.stored_at[each]
        self.stored_at[stored.commit_log_offset] = stored.at_s
        for reach in (self._disk, *self.slaves.values()):
            if len(reach.waiting) >= FOLLOWED_MAX:
                reach.waiting.popleft()
                self._tracer.lose(reach.stage)
            reach.waiting.append(stored)

    def stored_s(self, commit_log_offset: int) -> float | None:
        """Return when a message was stored, by the monotonic clock, if that is known."""
        self._tracer.tell_noted()
        return self.stored_at.get(commit_log_offset)

    def flushed(self, commit_log_offset: int, at_s: float, together: int) -> None:
        """Emit "flushed" for what ends at or before an offset of the log."""
        self._tracer.tell_noted()
        self._reach(self._disk, commit_log_offset, at_s, together)

    def replicated(self, address: str, commit_log_offset: int, at_s: float) -> None:
        """Emit "replicated" for what a slave has by now; an offset below 0: it is gone."""
        self._tracer.tell_noted()
        if commit_log_offset < 0:
            self.slaves.pop(address, None)
            return
        reach = self.slaves.get(address)
        if reach is None:
            if len(self.slaves) >= SLAVES_MAX:
                return
            # What was stored before its first report is nobody's to tell.
            self.slaves[address] = _Reach(REPLICATED, address)
        else:
            self._reach(reach, commit_log_offset, at_s, 0)

    def clear(self) -> None:
        self._tracer.tell_noted()
        self._disk.waiting.clear()
        self.slaves.clear()
        self.stored_at.clear()

    def _reach(self, reach: _Reach, commit_log_offset: int, at_s: float, together: int) -> None:
        waiting, messages = reach.waiting, deque[Stored | Put]()
        while waiting and (first := waiting[0]).end <= commit_log_offset:
            if isinstance(first, Stored):
                messages.append(waiting.popleft())
            else:
                first.moved(waiting, messages, commit_log_offset)
        if messages:
            self._backlog.add(_Covered(messages, at_s, together, reach))

    def _tell_some(self, covered: _Covered) -> int:
        """Emit the events of some messages; the others have their turn later."""
        messages, reach = covered.messages, covered.reach
        count = room = min(len(messages), AT_ONCE)
        while room > 0:
            first = messages[0]
            told = 0
            if not isinstance(first, Stored):
                told = first.covered(
                    messages,
                    room,
                    self._tracer.takers.of_puts,
                    reach.stage,
                    reach.client,
                    covered.at_s,
                    covered.together,
                )
            if not told:
                self._tell(messages.popleft(), covered)
                told = 1
            room -= told
        if messages:
            self._backlog.add(covered)
        return count

    def _tell(self, stored: Stored | Put, covered: _Covered) -> None:
        reach = covered.reach
        latency_us = max(0, round((covered.at_s - stored.at_s) * 1_000_000))
        event = msgspec.structs.replace(
            stored.event,
            stage=reach.stage,
            time_ms=str(int(stored.event.time_ms) + latency_us // 1000),
            at_us=str(round(covered.at_s * 1_000_000)),
            client=reach.client,
            latency_us=latency_us,
            total_us=latency_us,
            together=covered.together or None,
            steps=None,
        )
        self._tracer.offer(event, stored.properties, covered.at_s)
