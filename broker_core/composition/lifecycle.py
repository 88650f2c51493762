"""Lifecycle: starts services in order and stops them in reverse order."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Step = Callable[[], Awaitable[None] | None]


def nothing() -> None:
    """Do nothing; the default step."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One service: how to start and stop it.

    Stopping it without a start, or after a failed start, must be harmless.
    """

    start: Step = nothing
    shutdown: Step = nothing


async def start_all(stages: Sequence[Stage]) -> None:
    """Start the stages one after the other; stop at the first failure."""
    for stage in stages:
        await _run(stage.start)


async def shut_down_all(stages: Sequence[Stage]) -> None:
    """Stop all stages in reverse order.

    If a stage fails to stop, the others are still stopped; the error is raised afterwards.
    """
    async with AsyncExitStack() as stack:
        for stage in stages:
            stack.push_async_callback(_run, stage.shutdown)


async def _run(step: Step) -> None:
    awaited = step()
    if awaited is not None:
        await awaited
