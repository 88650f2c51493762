"""Wait for other processes, which run on real time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S = 0.05
SECONDS = 120.0
"""Far longer than anything here takes, because machines stall; a wait ends as soon as its condition
holds.
"""


def until(
    condition: Callable[[], bool], what: str, *, seconds: float = SECONDS, every_s: float = POLL_S
) -> None:
    """Wait until `condition` holds; after `seconds`, fail and name what didn't happen.

    Set `every_s` to check an expensive condition less often.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s without success for {what}")
        time.sleep(every_s)


async def until_async(
    condition: Callable[[], bool], what: str, *, seconds: float = SECONDS
) -> None:
    """Wait like `until` without blocking the loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s without success for {what}")
        await asyncio.sleep(POLL_S)
