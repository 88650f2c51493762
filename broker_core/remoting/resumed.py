"""Resumed: a coroutine whose first step has run, for a task that goes on with it."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

T = TypeVar("T")


@types.coroutine
def resumed(coroutine: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Return an awaitable that goes on with a coroutine which waits for something already.

    asyncio has no way to give a task a coroutine whose first step has run.
    """
    while True:
        try:
            try:
                result = yield waits_for
            except BaseException as error:  # noqa: BLE001
                # A task that is cancelled.
                waits_for = coroutine.throw(error)
            else:
                waits_for = coroutine.send(result)
        except StopIteration as end:
            value: T = end.value
            return value
