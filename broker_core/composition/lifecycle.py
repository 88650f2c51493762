"""Lifecycle: services in the order of their start, stopped in the reverse order."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Step = Callable[[], Awaitable[None] | None]


def nothing() -> None:
    """A step with nothing to do."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One service: how it starts and how it stops.

    A stop without a start, or after a start that failed, must do no harm.
    """

    start: Step = nothing
    shutdown: Step = nothing


async def start_all(stages: Sequence[Stage]) -> None:
    """Start each stage after the one before it; the first that fails ends the start."""
    for stage in stages:
        await _run(stage.start)


async def shut_down_all(stages: Sequence[Stage]) -> None:
    """Stop all stages, the last one first.

    A stage that fails to stop does not keep the others from it: its error is raised afterwards.
    """
    async with AsyncExitStack() as stack:
        for stage in stages:
            stack.push_async_callback(_run, stage.shutdown)


async def _run(step: Step) -> None:
    awaited = step()
    if awaited is not None:
        await awaited
