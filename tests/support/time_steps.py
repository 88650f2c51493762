"""Advance the time for a broker in this loop, on a clock that the test controls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.clock import ManualClock

TURNS = 20
STEP_MS = 1_000


async def pass_time(clock: ManualClock, milliseconds: int) -> None:
    """Advance step by step, so that woken tasks can sleep again."""
    while milliseconds > 0:
        step = min(milliseconds, STEP_MS)
        clock.advance_ms(step)
        milliseconds -= step
        await settle()


async def settle() -> None:
    """Run every ready task until it waits."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
