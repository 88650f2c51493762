"""A clock that a test advances by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Time advances only in `advance_ms`, which runs due callbacks in order of their times.

    It also wakes sleepers, which run when the test next awaits.
    """

    def __init__(self, now_ms: int = 1_795_252_759_675, monotonic: float = 1000.0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = round(monotonic * 1000)
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._order = itertools.count()

    @property
    def waiting(self) -> int:
        """The number of pending callbacks, sleepers included."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_at(self.monotonic() + seconds, lambda: _wake(woken))
        try:
            await woken
        finally:
            timer.cancel()

    def call_at(self, when: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def step_wall_clock_ms(self, milliseconds: int) -> None:
        """Step only the wall clock, in either direction, as an administrator or NTP does."""
        self._now_ms += milliseconds

    def advance_ms(self, milliseconds: int) -> None:
        """Advance the time and run due callbacks."""
        end_ms = self._monotonic_ms + milliseconds
        while self._timers and self._timers[0][0] * 1000 <= end_ms:
            when, _, timer = heapq.heappop(self._timers)
            self._move_to(max(self._monotonic_ms, round(when * 1000)))
            if timer.callback is not None:
                timer.callback()
        self._move_to(end_ms)

    def hold_ms(self, milliseconds: int) -> None:
        """Advance the time while the loop is busy: due callbacks run at the next advance."""
        self._move_to(self._monotonic_ms + milliseconds)

    def _move_to(self, monotonic_ms: int) -> None:
        self._now_ms += monotonic_ms - self._monotonic_ms
        self._monotonic_ms = monotonic_ms


class StillClock(ManualClock):
    """A stopped clock without a Python-level time function, like a broker's clock."""

    def __init__(self) -> None:
        super().__init__()
        still = itertools.repeat(super().monotonic())
        self.monotonic = still.__next__  # type: ignore[method-assign]


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
