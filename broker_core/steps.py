"""Steps: work that yields after each piece, so that the caller can pause it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")


def finished(steps: Generator[None, None, T]) -> T:
    """Run steps to their end without a pause; return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
