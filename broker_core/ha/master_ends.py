"""MasterEnds: where a slave's master said that its log ends, and how far the slave is behind that.

The HA protocol does not tell a slave where its master's log ends, so that the slave asks each time
it takes over the master's tables. What the master has got since the last answer is not counted. A
master that does not answer any more may have got anything.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

ANSWERS_KEPT = 360
"""An hour of answers; a slave that is further behind is at least an hour behind."""
FRESH_SECONDS = 35.0
"""Three times in a row the master was not asked, or did not answer."""


class Behind(NamedTuple):
    """How far a slave is behind its master."""

    lag_bytes: int
    lag_seconds: float
    """How long the master has had what the slave lacks, as far as the answers say it."""


class MasterEnds:
    """Event loop only. Times are seconds of the clock that only goes forward."""

    def __init__(self) -> None:
        self._answers: deque[tuple[float, int]] = deque(maxlen=ANSWERS_KEPT)

    def clear(self) -> None:
        """Forget everything: another master has another log."""
        self._answers.clear()

    def note(self, now: float, end: int) -> None:
        """Take an answer; a smaller one than before is of a log that was cut."""
        if self._answers and end < self._answers[-1][1]:
            self._answers.clear()
        self._answers.append((now, end))

    def behind(self, now: float, own_end: int) -> Behind | None:
        """Return how far a log that ends at own_end is behind, None while that is not known."""
        if not self._answers or now - self._answers[-1][0] > FRESH_SECONDS:
            return None
        since = next((at for at, end in self._answers if end > own_end), None)
        if since is None:
            return Behind(0, 0.0)
        return Behind(self._answers[-1][1] - own_end, max(0.0, now - since))
