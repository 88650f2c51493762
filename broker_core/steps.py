"""Steps: work that yields after each piece, so that the caller can pause it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")

STEPS_AT_ONCE = 1_000
STEPS_PER_READING = 16
"""How many steps run per clock reading; a step takes microseconds."""


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Run steps to their end without a pause; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def run_for(
    seconds: float, monotonic: Callable[[], float], steps: Generator[None, None, Any]
) -> StopIteration | None:
    """Run at most STEPS_AT_ONCE steps, fewer if they take long; return their end, if reached."""
    until = monotonic() + seconds
    try:
        for number in range(STEPS_AT_ONCE):
            next(steps)
            if not number % STEPS_PER_READING and monotonic() >= until:
                break
    except StopIteration as end:
        return end
    return None
