"""Waiting with a time-out on a Clock; asyncio's own time-outs use the loop's clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_core.clock import Clock


async def wait_within(clock: Clock, future: asyncio.Future[Any], timeout_s: float) -> bool:
    """Wait until the future is done; return False after a time-out.

    Neither a time-out nor a cancelled waiter cancels the future.
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
