"""Selects the log lines that the terminal shows: lines that need attention, and a count of the
rest.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING

from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Callable

SUMMARY_EVERY_S = 60.0
LABEL = "logs"
# Our processes' lines begin with date, time and level, as text or JSON; Redis's with its pid, a
# date and a sign.
QUIET = re.compile(
    r"\d{4}-\d\d-\d\d \S+ (DEBUG|INFO) |\d+:\w \d\d? \w+ \d{4} \S+ [*.-] "
    r'|\{"time":"[^"]+","level":"(DEBUG|INFO)"'
)
LOUD = re.compile(
    r"\d{4}-\d\d-\d\d \S+ [A-Z]+ |\d+:\w \d\d? \w+ \d{4} \S+ # "
    r'|\{"time":"[^"]+","level":"'
)


class Digest:
    """Counts lines that don't need attention and reports their number, at most once a minute.

    Otherwise the summary with address and password, which is printed once, would scroll away.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_at = clock()
        self._counts: Counter[str] = Counter()
        self._was_shown: dict[str, bool] = {}

    def shows(self, name: str, line: str) -> bool:
        """Return whether the terminal shows a process's line; count it if not.

        A line without a level belongs to the previous line.
        """
        if QUIET.match(line):
            is_shown = False
        elif LOUD.match(line):
            is_shown = True
        else:
            is_shown = self._was_shown.get(name, True)
        self._was_shown[name] = is_shown
        if not is_shown:
            self._counts[name] += 1
        return is_shown

    def summary(self) -> str | None:
        """Return the summary of hidden lines, or None before a minute is over."""
        now = self._clock()
        if now - self._told_at < SUMMARY_EVERY_S:
            return None
        self._told_at = now
        if not self._counts:
            return None
        counted = ", ".join(f"{name} {count}" for name, count in sorted(self._counts.items()))
        self._counts.clear()
        return translated(
            "log lines hidden in the last minute: {counted} (--verbose shows them)",
            counted=counted,
        )
