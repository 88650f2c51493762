"""MasterEnds: where the master's log ended at each answer, and how far the slave is behind.

The HA protocol doesn't say where the master's log ends, so the slave asks each time it fetches the
master's tables. Messages that the master received since the last answer aren't counted. If the
master no longer answers, the delay is unknown.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

ANSWERS_KEPT = 360
"""An hour of answers; a slave that is further behind is at least an hour behind."""
FRESH_SECONDS = 35.0
"""Three consecutive requests that weren't sent or got no answer."""


class SlaveLag(NamedTuple):
    """How far a slave is behind its master."""

    lag_bytes: int
    lag_seconds: float
    """How long the master has had the data that the slave lacks, according to the answers."""


class MasterEnds:
    """Event loop only. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._answers: deque[tuple[float, int]] = deque(maxlen=ANSWERS_KEPT)

    def clear(self) -> None:
        """Forget everything, because another master has a different log."""
        self._answers.clear()

    def note(self, now: float, end: int) -> None:
        """Record an answer; an offset smaller than before means that the log was cut."""
        if self._answers and end < self._answers[-1][1]:
            self._answers.clear()
        self._answers.append((now, end))

    def behind(self, now: float, own_end: int) -> SlaveLag | None:
        """Return how far a log that ends at own_end is behind; None while unknown."""
        if not self._answers or now - self._answers[-1][0] > FRESH_SECONDS:
            return None
        since = next((at for at, end in self._answers if end > own_end), None)
        if since is None:
            return SlaveLag(0, 0.0)
        return SlaveLag(self._answers[-1][1] - own_end, max(0.0, now - since))
