"""Hold calls of a FaultyStorage, and wait for the work of a thread."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.faulty_storage import FaultyStorage


async def until(condition: Callable[[], object]) -> None:
    """Run the loop until another thread's work is visible."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


class Gate:
    """Holds every call of one kind until it's opened."""

    def __init__(self, storage: FaultyStorage, held_call: str) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self._held_call = held_call
        storage.on_call = self._hold

    def _hold(self, call: str) -> None:
        if call == self._held_call:
            self.entered.set()
            assert self.open.wait(10)

    async def until_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 10)
