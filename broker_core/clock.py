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
        return int(time.time() * 1000)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        delay = when - time.monotonic()
        return asyncio.get_running_loop().call_later(max(0, delay), callback)
