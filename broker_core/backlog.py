"""Backlog: spreads many small pieces of work over turns of the event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from broker_core.isolation import isolated

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Backlog(Generic[T]):
    """Processes items immediately until a loop turn has done enough work, and the rest in later
    turns.

    An item that is already waiting is processed once. `serve` returns how much work an item was, in
    the caller's units; a turn ends with the item that reaches `at_once`. Event loop only.
    """

    def __init__(self, serve: Callable[[T], int], at_once: int) -> None:
        self._serve = serve
        self._at_once = at_once
        self._room = at_once
        self._is_serving = False
        self._is_turn_noted = False
        self._waiting: OrderedDict[T, None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._waiting)

    def add(self, thing: T) -> None:
        """Process an item in this turn, or in a later one."""
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
