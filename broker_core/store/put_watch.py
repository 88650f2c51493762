"""PutWatch: reports slow puts and the cause of each delay."""

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
"""`on_noted` is called for puts that take longer than this."""
WRITING = "pages of the mapped files"


class PutWatch:
    """Times a put with one clock reading, and making room with one per step.

    All puts that begin in the same millisecond share one deadline, `slow_at`. Event loop only.

    Attributes:
        on_noted: called after the loop's turn with the offset and the seconds of a put that took
            more than NOTED_PUT_S; None if unused.
    """

    def __init__(self, state: PutState, clock: Clock) -> None:
        self._state = state
        self._monotonic = clock.monotonic
        self._at = 0.0
        self._room_waits: dict[str, float] = {}
        self._waits: dict[str, float] = {}
        self.on_noted: Callable[[int, float], None] | None = None

    def start_room(self) -> None:
        """Record that a put begins to make room."""
        self._room_waits = {}
        self._at = self._monotonic()

    def end_step(self, what: str) -> None:
        """Record that a step of making room has ended; `what` names the step."""
        before, self._at = self._at, self._monotonic()
        self._room_waits[what] = self._at - before

    def begin(self) -> None:
        """Record that a millisecond's first put starts to write; its time includes making room."""
        self._waits, self._room_waits = self._room_waits, {}
        self._state.slow_at = self._monotonic() + NOTED_PUT_S - sum(self._waits.values())

    def report(self, topic: str, queue_id: int, size: int) -> None:
        """Report a put that ended after `slow_at`; log it if it took more than SLOW_PUT_S."""
        now = self._monotonic()
        took_s = now - self._state.slow_at + NOTED_PUT_S
        # Don't count this put's delay against the next put of the same millisecond.
        self._state.slow_at = now + NOTED_PUT_S
        if self.on_noted is not None:
            state = self._state
            offset = state.file_from_offset + state.position - size
            asyncio.get_running_loop().call_soon(self.on_noted, offset, took_s)
        # Compare in whole milliseconds, as logged: a sum of times is inexact.
        if round(took_s * 1000) <= SLOW_PUT_S * 1000:
            return
        waits = self._waits | {WRITING: took_s - sum(self._waits.values())}
        longest = sorted(waits.items(), key=lambda item: -item[1])
        logger.warning(
            "slow put topic=%s queue_id=%d size=%d took_ms=%d waited_for=%s",
            topic,
            queue_id,
            size,
            round(took_s * 1000),
            ", ".join(f"{what} {s * 1000:.0f} ms" for what, s in longest if s >= 0.001),
        )
