"""Parked pulls: those that found nothing, and wait for a message or for their timeout.

Source: broker/longpolling/PullRequestHoldService.java (4.9.7).
Differs: a parked pull whose filter skipped the arrivals remembers how far it looked, so that the
next arrival does not make it look at them again. The original scans every five seconds; here one
timer waits for the first deadline.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from typing import TYPE_CHECKING, Protocol

from broker_core.config.limits import LIMITS

if TYPE_CHECKING:
    from collections.abc import Hashable

    from broker_core.clock import Clock, Timer
    from broker_core.config.limits import LimitsConfig

QueueKey = tuple[str, int]
PARKED_PER_CONNECTION_MAX = 10_000
EARLY_S = 0.001
"""The loop's timers count milliseconds."""
ENDED_MAX = 1_000
"""So many deadlines of pulls that wait no more are kept, beside as many as pulls that wait."""
ATTEMPTS_AT_ONCE = 2_000
"""Pulls that are tried again in one turn of the loop: 30 ms."""


class Parkable(Protocol):
    """A pull that can be parked and tried again."""

    @property
    def connection(self) -> Hashable:
        """The connection that it came by."""
        ...

    @property
    def group(self) -> str:
        """The consumer group that it is of."""
        ...

    @property
    def queue_offset(self) -> int:
        """The first queue_offset that it has not looked at."""
        ...

    def attempt(self, *, is_last: bool) -> bool:
        """Pull again; return whether it is answered. The last attempt always answers."""
        ...


class _Parked:
    __slots__ = ("is_last", "is_waiting", "pull", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int, pull: Parkable) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.pull = pull
        self.is_waiting = True
        self.is_last = False


class ParkedPulls:
    """The parked pulls, by queue. Event loop only.

    An arrival only marks a queue. The pulls of marked queues are tried once a turn of the loop, so
    that a burst of sends costs one answer and not one for each message. Very many are tried over
    several turns.

    Attributes:
        parked: what waits, by topic and queue; who puts may pass over the arrivals of others.
    """

    def __init__(self, clock: Clock, limits: LimitsConfig = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._count = 0
        self.parked: dict[str, dict[int, dict[_Parked, None]]] = {}
        self._by_connection: dict[Hashable, set[_Parked]] = {}
        self._ready: dict[QueueKey, int] = {}
        self._due: deque[_Parked] = deque()
        self._is_attempt_due = False
        # A heap. What ends before its deadline stays in it for a while: most do.
        self._deadlines: list[tuple[float, int, _Parked]] = []
        self._numbers = itertools.count()
        self._timer: Timer | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return self._count

    def is_full(self, connection: Hashable) -> bool:
        """Return whether no more pulls may wait, of this connection or of all."""
        return (
            self._count >= self._limits.parked_pull_nums_max
            or len(self._by_connection.get(connection, ())) >= PARKED_PER_CONNECTION_MAX
        )

    def park(self, topic: str, queue_id: int, pull: Parkable, timeout_ms: int) -> None:
        """Park a pull until its queue grows beyond its offset or the timeout passes."""
        parked = _Parked(topic, queue_id, pull)
        self.parked.setdefault(topic, {}).setdefault(queue_id, {})[parked] = None
        self._count += 1
        self._by_connection.setdefault(pull.connection, set()).add(parked)
        when = self._clock.monotonic() + timeout_ms / 1000
        heapq.heappush(self._deadlines, (when, next(self._numbers), parked))
        if self._timer is None or when < self._timer_at:
            self._wait_until(when)

    def on_arrival(self, topic: str, queue_id: int, max_offset_in_queue: int) -> None:
        """Note that a queue has grown. Called for every message: it must stay this short."""
        if topic in self.parked and queue_id in self.parked[topic]:
            if not self._ready:
                asyncio.get_running_loop().call_soon(self._wake_ready)
            self._ready[topic, queue_id] = max_offset_in_queue

    def close(self, connection: Hashable) -> None:
        """Drop the pulls of a lost connection."""
        for parked in self._by_connection.pop(connection, ()):
            self._unpark(parked)

    def end(self, topic: str) -> None:
        """Answer the pulls of a topic that is deleted, read no more, or filtered otherwise."""
        for waiting in self.parked.get(topic, {}).values():
            for parked in waiting:
                self._expire(parked)

    def end_group(self, group: str) -> None:
        """Answer the pulls of a group that may not consume any more: their next ones are refused.

        Differs: the original looks at rights again whenever a parked pull is tried.
        """
        for parked in self._all():
            if parked.pull.group == group:
                self._expire(parked)

    def shutdown(self) -> None:
        """Answer every parked pull."""
        for parked in self._all():
            self._forget(parked)
            parked.pull.attempt(is_last=True)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _all(self) -> list[_Parked]:
        return [
            parked
            for queues in self.parked.values()
            for waiting in queues.values()
            for parked in waiting
        ]

    def _wake_ready(self) -> None:
        ready, self._ready = self._ready, {}
        for (topic, queue_id), max_offset in ready.items():
            self._due.extend(
                parked
                for parked in self.parked.get(topic, {}).get(queue_id, ())
                if parked.pull.queue_offset < max_offset
            )
        if not self._is_attempt_due:
            self._attempt_some()

    def _attempt_some(self) -> None:
        due = self._due
        for _ in range(min(len(due), ATTEMPTS_AT_ONCE)):
            parked = due.popleft()
            if not parked.is_waiting:
                continue  # Its connection is lost, or it was answered meanwhile.
            if parked.is_last:
                self._forget(parked)
                parked.pull.attempt(is_last=True)
            elif parked.pull.attempt(is_last=False):
                self._forget(parked)
        self._is_attempt_due = bool(due)
        if due:
            asyncio.get_running_loop().call_soon(self._attempt_some)

    def _wait_until(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._clock.call_at(when, self._expire_due)

    def _expire_due(self) -> None:
        self._timer = None
        deadlines = self._deadlines
        due = self._clock.monotonic() + EARLY_S
        while deadlines:
            when, _, parked = deadlines[0]
            if parked.is_waiting and when > due:
                self._wait_until(when)
                break
            heapq.heappop(deadlines)
            if parked.is_waiting:
                self._expire(parked)

    def _expire(self, parked: _Parked) -> None:
        parked.is_last = True
        self._due.append(parked)
        if not self._is_attempt_due:
            self._is_attempt_due = True
            asyncio.get_running_loop().call_soon(self._attempt_some)

    def _forget(self, parked: _Parked) -> None:
        self._unpark(parked)
        mine = self._by_connection.get(parked.pull.connection)
        if mine is not None:
            mine.discard(parked)
            if not mine:
                del self._by_connection[parked.pull.connection]

    def _unpark(self, parked: _Parked) -> None:
        if not parked.is_waiting:
            return
        parked.is_waiting = False
        queues = self.parked[parked.topic]
        waiting = queues[parked.queue_id]
        del waiting[parked]
        if not waiting:
            del queues[parked.queue_id]
            if not queues:
                del self.parked[parked.topic]
        self._count -= 1
        if len(self._deadlines) > 2 * self._count + ENDED_MAX:
            self._deadlines = [each for each in self._deadlines if each[2].is_waiting]
            heapq.heapify(self._deadlines)
