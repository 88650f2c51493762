"""The background event loop for broker connections."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers in any thread; starts with the first coroutine.

    The thread is a daemon because it owns nothing that outlives the process.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Return the coroutine's result; cancel it on timeout.

        Raises:
            TimeoutError: it didn't finish in time.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._started())
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()

    def stop(self) -> None:
        """End the thread; a later `run` starts another."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._serve, args=(self._loop,), name=self._name, daemon=True
                ).start()
            return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()
