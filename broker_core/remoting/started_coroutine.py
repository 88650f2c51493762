"""Wrap a coroutine whose first step has run, so that a task can finish it."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

T = TypeVar("T")


@types.coroutine
def resumed(coroutine: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Return an awaitable that finishes a coroutine which is already waiting for `waits_for`.

    asyncio can't make a task from a coroutine whose first step has run.
    """
    while True:
        try:
            try:
                result = yield waits_for
            except BaseException as error:  # noqa: BLE001
                # The task may have been cancelled.
                waits_for = coroutine.throw(error)
            else:
                waits_for = coroutine.send(result)
        except StopIteration as end:
            value: T = end.value
            return value
