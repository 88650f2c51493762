"""Waiting for other processes, which have no clock of ours."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S = 0.05


def until(condition: Callable[[], bool], what: str, *, seconds: float = 30.0) -> None:
    """Return when `condition` holds; a test that waits longer fails with what it waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(POLL_S)
