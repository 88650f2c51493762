"""Node: a host with a disk, and the process that runs on it until it's killed."""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Timer
    from tools.faults.simulation.loop import SimulatedLoop

EPOCH_MS = 1_795_252_759_675


class Process:
    """Everything that runs under one process ID, and stops running once it's dead.

    Callbacks and tasks of the loop belong to the process in whose context they were created.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self.is_alive = True
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    def run(self, call: Callable[..., object], *arguments: object) -> None:
        """Call within the process, if it's alive."""
        if self.is_alive:
            self.context.run(call, *arguments)


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)
NOBODY = copy_context()
"""The context of callbacks that belong to no process."""


class HostClock:
    """The clocks of a host: `broker_core.clock.Clock` on the loop's time."""

    def __init__(self, loop: SimulatedLoop, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms
        """How far the wall clock is ahead of true time."""
        self.monotonic = loop.time
        self._loop = loop

    def now_ms(self) -> int:
        return EPOCH_MS + self.ahead_ms + int(self._loop.time() * 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0))

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_at(max(when, self._loop.time()), callback)
