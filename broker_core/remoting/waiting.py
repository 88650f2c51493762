"""Waiting with a deadline on a Clock, which asyncio's own timeouts do not know."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_core.clock import Clock


async def wait_within(clock: Clock, future: asyncio.Future[Any], timeout_s: float) -> bool:
    """Wait until the future is done; return False when the time is over first.

    The future is not cancelled, neither by the end of the time nor by a cancelled waiter.
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
