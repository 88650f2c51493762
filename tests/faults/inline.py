"""A loop and an executor without threads: they run each call at once, so that a run repeats."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class InlineLoop(asyncio.SelectorEventLoop):
    """An event loop whose executor calls are done at once."""

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
    """An executor that does each call at once."""

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
