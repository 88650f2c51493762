"""Waits for other processes, whose clock no test drives."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S = 0.05
SECONDS = 120.0
"""Far beyond what anything here takes, since machines stall: a wait that is met costs no time."""


def until(
    condition: Callable[[], bool], what: str, *, seconds: float = SECONDS, every_s: float = POLL_S
) -> None:
    """Return when `condition` holds; fail after `seconds`, naming what did not happen.

    `every_s` is for a condition that takes work: it is looked at no more often.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(every_s)


async def until_async(
    condition: Callable[[], bool], what: str, *, seconds: float = SECONDS
) -> None:
    """Do what `until` does, while the loop goes on."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain for {what}")
        await asyncio.sleep(POLL_S)
