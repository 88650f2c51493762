"""Time, as a parameter.

Nothing else in the broker reads a clock or waits for one, so that tests can drive both.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A callback that waits for its time."""

    def cancel(self) -> None:
        """Forget the callback; nothing happens when it has run already."""
        ...


class Clock(Protocol):
    """Wall time, monotonic time, waiting."""

    def now_ms(self) -> int:
        """Return the wall time in milliseconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on the running loop."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call back on the running loop when `monotonic()` reaches `when`."""
        ...


class SystemClock:
    """The machine's clocks. Any thread, except `sleep` and `call_at` (event loop)."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        delay = when - time.monotonic()
        return asyncio.get_running_loop().call_later(max(0, delay), callback)


class SteadyClock:
    """Wall time that nobody steps: it begins at wall time and advances with monotonic time.

    What is due later, or ages, goes by it: a step of the wall clock neither hurries nor holds
    anything. A process that starts anew believes the wall clock. Any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        # In this order, so that it is not ahead of a wall clock that nobody stepped.
        self._origin_ms = clock.now_ms()
        self._origin = clock.monotonic()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        # The added microsecond makes up for what floating point loses of a whole millisecond.
        return self._origin_ms + int((self._monotonic() - self._origin) * 1000 + 0.001)


def thread_cpu_seconds() -> float:
    """Return how long this thread has had a processor."""
    return time.thread_time()
