"""Time, as a parameter.

Only this module reads a clock or waits, so tests can control time.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A callback scheduled for a time."""

    def cancel(self) -> None:
        """Cancel the callback; does nothing if it has already run."""
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

    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        delay = when - time.monotonic()
        return asyncio.get_running_loop().call_later(max(0, delay), callback)


class SteadyClock:
    """Starts at wall time and advances with monotonic time, so that it can't be stepped.

    Due times and ages use it: a step of the wall clock doesn't shorten or delay anything. A new
    process starts from the wall clock. Any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        # In this order, the result is never ahead of an unstepped wall clock.
        self._origin_ms = clock.now_ms()
        self._origin = clock.monotonic()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        # Floating point may fall just short of a whole millisecond; the added microsecond corrects
        # that.
        return self._origin_ms + int((self._monotonic() - self._origin) * 1000 + 0.001)


def thread_cpu_seconds() -> float:
    """Return this thread's processor time, in seconds."""
    return time.thread_time()


async def wait_within(clock: Clock, future: asyncio.Future[Any], timeout_s: float) -> bool:
    """Wait until the future is done; return False after a time-out.

    asyncio's own time-outs use the loop's clock. Neither a time-out nor a cancelled waiter cancels
    the future.
    """
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    timer = clock.call_at(clock.monotonic() + timeout_s, end)
    try:
        await asyncio.wait({future, over}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        over.cancel()
    return future.done()
