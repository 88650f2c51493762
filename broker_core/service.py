"""Service: the owner of background tasks."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor

    from broker_core.clock import Clock

logger = logging.getLogger(__name__)

AGAIN_S, AGAIN_S_MAX = 1.0, 60.0
"""The pause before a failed task restarts; it doubles with each failure, up to the maximum."""
NO_THREAD = "can't start new thread"
"""Python's error text when the system can't start a thread, usually for lack of memory."""


class Service:
    """Runs tasks: logs each failed task, ends all in `shutdown`.

    Event loop only. Subclasses release their other resources after `await super().shutdown()`.
    """

    def __init__(self) -> None:
        # In start order, so that a run with the same events is reproducible.
        self._tasks: dict[asyncio.Task[None], None] = {}

    def spawn(self, coro: Coroutine[object, object, None], *, name: str) -> asyncio.Task[None]:
        """Run a coroutine until it ends or the service shuts down."""
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def spawn_forever(
        self, clock: Clock, work: Callable[[], Coroutine[object, object, None]], *, name: str
    ) -> asyncio.Task[None]:
        """Run a task that must never end; log an uncaught error and restart the task."""
        return self.spawn(_forever(clock, work, name), name=name)

    async def shutdown(self) -> None:
        """Cancel the running tasks and return when all have ended; may be called twice."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("task stopped name=%s", task.get_name(), exc_info=error)


def begin_thread(executor: Executor) -> None:
    """Start an executor's first thread now, because resources may be short later."""
    executor.submit(lambda: None)


async def _forever(
    clock: Clock, work: Callable[[], Coroutine[object, object, None]], name: str
) -> None:
    pause_s = AGAIN_S
    while True:
        began = clock.monotonic()
        try:
            await work()
        except Exception as error:
            if isinstance(error, MemoryError) or str(error) == NO_THREAD:
                logger.warning("task out of memory, restarting name=%s reason=%s", name, error)
            else:
                logger.exception("task failed, restarting name=%s", name)
        else:
            return
        pause_s = AGAIN_S if clock.monotonic() - began >= AGAIN_S_MAX else pause_s
        await clock.sleep(pause_s)
        pause_s = min(2 * pause_s, AGAIN_S_MAX)
