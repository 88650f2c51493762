"""Deadlines of requests that wait for a message.

One timer waits for the first deadline. Most requests are answered early and leave their entry in
the heap, because removing it from the middle costs more than keeping it.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from broker_core.isolation import FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock, Timer

EARLY_S = 0.001
"""The event loop's timers have a resolution of a millisecond."""
ENDED_MAX = 1_000
"""Entries of answered requests that the heap may hold, plus one for each waiting request."""


class Waiting(Protocol):
    """A request with a deadline."""

    @property
    def is_waiting(self) -> bool:
        """Whether the request hasn't been answered or dropped."""
        ...


class Attemptable(Protocol):
    """A request that can be tried again."""

    def attempt(self, *, is_last: bool) -> bool:
        """Try again; return whether the request is finished. The last attempt always answers."""
        ...


def attempt(request: Attemptable, what: str, topic: str, queue_id: int, *, is_last: bool) -> bool:
    """Try one request; a failure is logged and finishes it, so that the others go on."""
    try:
        return request.attempt(is_last=is_last)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  one request of thousands
        FAILURES.report(what, f"{topic} {queue_id}", error)
        return True


W = TypeVar("W", bound=Waiting)


class Deadlines(Generic[W]):
    """A heap of deadlines. Event loop only.

    Args:
        clock: monotonic seconds and the timer.
        expire: called once with each request that still waits at its deadline.
    """

    def __init__(self, clock: Clock, expire: Callable[[W], None]) -> None:
        self._clock = clock
        self._expire = expire
        self._heap: list[tuple[float, int, W]] = []
        self._numbers = itertools.count()
        self._timer: Timer | None = None
        self._timer_at = 0.0

    def add(self, waiting: W, timeout_s: float) -> None:
        """Let a request expire after so many seconds."""
        when = self._clock.monotonic() + timeout_s
        heapq.heappush(self._heap, (when, next(self._numbers), waiting))
        if self._timer is None or when < self._timer_at:
            self._start_timer(when)

    def trim(self, count: int) -> None:
        """Drop the entries of answered requests once they outnumber the `count` waiting ones."""
        if len(self._heap) > 2 * count + ENDED_MAX:
            self._heap = [entry for entry in self._heap if entry[2].is_waiting]
            heapq.heapify(self._heap)

    def shutdown(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._clock.call_at(when, self._expire_due)

    def _expire_due(self) -> None:
        self._timer = None
        due = self._clock.monotonic() + EARLY_S
        # Read the attribute each time, because an expiring request may trim the heap.
        while self._heap:
            when, _, waiting = self._heap[0]
            if waiting.is_waiting and when > due:
                self._start_timer(when)
                break
            heapq.heappop(self._heap)
            if waiting.is_waiting:
                self._expire(waiting)
