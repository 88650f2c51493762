"""PutWatch: says which put took long, and what it waited for."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock
    from broker_core.store.put_state import PutState

logger = logging.getLogger(__name__)

SLOW_PUT_S = 0.5
NOTED_PUT_S = 0.01
"""Whoever notes slow puts is told of these."""
WRITING = "pages of the mapped files"


class PutWatch:
    """Times puts by one clock reading each, and the making of room by one for each step.

    All puts that begin in one millisecond share the time from which on they are slow. Event loop
    only.

    Attributes:
        on_noted: called with the offset and the seconds of a put that took NOTED_PUT_S, after the
            loop's turn; None for nobody.
    """

    def __init__(self, state: PutState, clock: Clock) -> None:
        self._state = state
        self._monotonic = clock.monotonic
        self._at = 0.0
        self._room_waits: dict[str, float] = {}
        self._waits: dict[str, float] = {}
        self.on_noted: Callable[[int, float], None] | None = None

    def start_room(self) -> None:
        """A put begins to make room."""
        self._room_waits = {}
        self._at = self._monotonic()

    def waited_for(self, what: str) -> None:
        """A step of making room has ended; it waited for this."""
        before, self._at = self._at, self._monotonic()
        self._room_waits[what] = self._at - before

    def begin(self) -> None:
        """The first put of a millisecond begins to write; the room it made counts as its time."""
        self._waits, self._room_waits = self._room_waits, {}
        self._state.slow_at = self._monotonic() + NOTED_PUT_S - sum(self._waits.values())

    def tell(self, topic: str, queue_id: int, size: int) -> None:
        """Log a put of more than SLOW_PUT_S, and tell who notes one that ended after `slow_at`."""
        now = self._monotonic()
        took_s = now - self._state.slow_at + NOTED_PUT_S
        # What this one waited for is not held against the next of its millisecond.
        self._state.slow_at = now + NOTED_PUT_S
        if self.on_noted is not None:
            state = self._state
            offset = state.file_from_offset + state.position - size
            asyncio.get_running_loop().call_soon(self.on_noted, offset, took_s)
        # In the milliseconds that would be told: a sum of times is not exact.
        if round(took_s * 1000) <= SLOW_PUT_S * 1000:
            return
        waits = self._waits | {WRITING: took_s - sum(self._waits.values())}
        longest = sorted(waits.items(), key=lambda item: -item[1])
        logger.warning(
            "slow put: topic=%s queue_id=%d size=%d took_ms=%d waited_for=%s",
            topic,
            queue_id,
            size,
            round(took_s * 1000),
            ", ".join(f"{what} {s * 1000:.0f} ms" for what, s in longest if s >= 0.001),
        )
