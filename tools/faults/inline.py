"""A loop, an executor and a flush without threads, for repeatable runs."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from broker_core.store.flush_thread import sync

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.storage import StorageFile


class InlineLoop(asyncio.SelectorEventLoop):
    """An event loop that runs executor calls at once."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except OSError as error:
            done.set_exception(error)
        return done


class InlineExecutor:
    """An executor that runs each call at once."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*args))
        except OSError as error:
            done.set_exception(error)
        return done

    def shutdown(self) -> None:
        pass


class LoopFlushThread:
    """A FlushThread that works on the loop, like the executors."""

    def start(self) -> None:
        pass

    def submit(self, files: list[StorageFile], done: Callable[[Exception | None], None]) -> None:
        flush = asyncio.get_running_loop().run_in_executor(self, sync, files)  # type: ignore[arg-type]
        flush.add_done_callback(lambda flush: done(flush.result()))

    def shutdown(self) -> None:
        pass
