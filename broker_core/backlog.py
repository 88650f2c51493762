"""Backlog: many small pieces of work at once, spread over turns of the event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from broker_core.isolation import isolated

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Backlog(Generic[T]):
    """Serves things at once, until a turn of the loop has done enough; then in their order, later.

    A thing that waits already is served once. `serve` returns how much work a thing was, in units
    of the caller's; a turn ends with the thing that reaches `at_once`. Event loop only.
    """

    def __init__(self, serve: Callable[[T], int], at_once: int) -> None:
        self._serve = serve
        self._at_once = at_once
        self._room = at_once
        self._is_serving = False
        self._is_turn_noted = False
        self._waiting: OrderedDict[T, None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many things wait."""
        return len(self._waiting)

    def add(self, thing: T) -> None:
        """Serve a thing in this turn, or in a later one."""
        self._waiting[thing] = None
        if not self._is_serving:
            self._serve_some()

    def _serve_some(self) -> None:
        self._is_serving = True
        try:
            while self._waiting and self._room > 0:
                thing, _ = self._waiting.popitem(last=False)
                # Count at least one, so that a turn ends even if every item fails.
                work = 1
                with isolated("handling a waiting item", thing):
                    work = self._serve(thing)
                self._room -= work
        finally:
            self._is_serving = False
            if not self._is_turn_noted:
                self._is_turn_noted = True
                asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_turn_noted = False
        self._room = self._at_once
        if self._waiting:
            self._serve_some()
