"""LoopTurns: the CPU time of each turn of the event loop.

CPU time, not wall time, so that a busy machine doesn't lengthen a turn.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class LoopTurns:
    """Measures the turns of the running loop while its block runs.

    It's called once a turn, so the loop never sleeps. Run clients in another thread, or their work
    counts too. Garbage collection is off: its pauses grow with everything in the test process and
    can fall into any turn.

    Attributes:
        longest_s: the CPU seconds of the loop's thread in its longest turn.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle | None = None
        self._last = 0.0
        self.longest_s = 0.0

    def __enter__(self) -> Self:
        gc.collect()
        gc.disable()
        self._last = time.thread_time()
        self._handle = self._loop.call_soon(self._turn)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._handle is not None
        self._handle.cancel()
        gc.enable()

    def _turn(self) -> None:
        now = time.thread_time()
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now
        self._handle = self._loop.call_soon(self._turn)
