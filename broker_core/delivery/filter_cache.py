"""Cache of compiled filters, because every pull repeats its expression."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.store.results import MessageFilter

    Compile = Callable[[str, str, str | None], MessageFilter | None]

CHARS_MAX = 512 * 1024
"""Limit for all cached expressions together; a tag filter takes up to 25 bytes per character."""


class FilterCache:
    """Caches the recently used filters, up to a total length of expressions. Event loop only."""

    def __init__(self, compiled: Compile, chars_max: int = CHARS_MAX) -> None:
        self._compiled = compiled
        self._chars_max = chars_max
        self._chars = 0
        self._filters: OrderedDict[tuple[str, str | None], MessageFilter | None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._filters)

    def __call__(
        self, topic: str, expression: str, expression_type: str | None
    ) -> MessageFilter | None:
        """Return an expression's filter; errors from compiling are raised and not cached."""
        key = (expression, expression_type)
        if key in self._filters:
            self._filters.move_to_end(key)
            return self._filters[key]
        found = self._filters[key] = self._compiled(topic, expression, expression_type)
        self._chars += len(expression)
        while self._chars > self._chars_max:
            (oldest, _), _ = self._filters.popitem(last=False)
            self._chars -= len(oldest)
        return found
