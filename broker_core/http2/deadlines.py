"""End calls that are still open at their deadline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from broker_core.http2.codes import GrpcStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock, Timer
    from broker_core.http2.call import Call

TICK_S = 0.1
"""Coarse on purpose: the client enforces its deadline precisely, and the server only frees
resources.
"""


class Deadlines:
    """Open calls, by the tick in which they expire. Event loop only.

    Only waiting calls are stored here; most calls are answered in the turn in which they arrive.
    """

    def __init__(self, clock: Clock, give_up: Callable[[Call, int, str], None]) -> None:
        self._clock = clock
        self._give_up = give_up
        self._ticks: dict[int, dict[Call, None]] = {}
        self._timer: Timer | None = None
        self._timer_tick = 0

    def add(self, call: Call) -> None:
        """End a call at its deadline unless `remove` is called first."""
        assert call.deadline is not None
        tick = math.ceil(call.deadline / TICK_S)
        self._ticks.setdefault(tick, {})[call] = None
        if self._timer is None or tick < self._timer_tick:
            self._wait_for(tick)

    def remove(self, call: Call) -> None:
        """Remove a call that has a deadline."""
        assert call.deadline is not None
        tick = math.ceil(call.deadline / TICK_S)
        calls = self._ticks.get(tick)
        if calls is not None:
            calls.pop(call, None)
            if not calls:
                del self._ticks[tick]

    def shutdown(self) -> None:
        """Stop ending calls."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ticks.clear()

    def _wait_for(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_tick = tick
        self._timer = self._clock.call_at(tick * TICK_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        # A loop timer may fire slightly early.
        now = math.floor(self._clock.monotonic() / TICK_S + 0.1)
        for tick in sorted(tick for tick in self._ticks if tick <= now):
            for call in self._ticks.pop(tick, ()):
                self._give_up(call, GrpcStatus.DEADLINE_EXCEEDED, "the deadline has passed")
        if self._ticks and self._timer is None:
            self._wait_for(min(self._ticks))
