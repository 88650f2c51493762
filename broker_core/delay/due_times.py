"""DueTimes: when the messages of a level are due, by a clock that can't be stepped.

A ConsumeQueue unit of SCHEDULE_TOPIC_XXXX has the due time by the wall clock of the put. A broker
that starts later, or another broker, uses it. While this process runs the wall clock may be
stepped; so it records by how much wall time was ahead of steady time (the skew) when messages were
put, in runs of messages with about the same skew.

Invariant: no due time is earlier than steady time at the put + the level's delay.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.clock import SteadyClock

JITTER_MS = 2
"""Two clocks read one after the other, in whole milliseconds, may differ by this."""
RUN_MS = 20
"""Skews in one run differ by at most this; a message may be this late after a step."""
RUNS_KEPT = 1_024
"""Number of runs kept before the requested one, because an administrator may move a level back."""


class DueTimes:
    """Event loop only."""

    def __init__(self, steady: SteadyClock, delay_ms: int) -> None:
        self._steady = steady
        self._delay_ms = delay_ms
        self._started_ms = steady.now_ms()
        self._runs: list[tuple[int, int]] = []
        self._least_ms = self._most_ms = 0

    def note_put(self, queue_offset: int, store_timestamp: int) -> None:
        """Record that a message was put now."""
        skew_ms = store_timestamp - self._steady.now_ms()
        if self._runs and self._least_ms <= skew_ms <= self._most_ms:
            return
        # A store whose clock was set back repeats its last timestamp: the skew shrinks with time.
        slack_ms = RUN_MS if self._runs and skew_ms < self._least_ms else JITTER_MS
        self._least_ms = skew_ms - slack_ms
        self._most_ms = self._least_ms + RUN_MS + JITTER_MS
        self._runs.append((queue_offset, self._least_ms))

    def due_ms(self, queue_offset: int, deliver_time_ms: int) -> int:
        """Return when a message is due, in steady time, from the due time of its unit."""
        runs = self._runs
        at = bisect_left(runs, (queue_offset + 1,)) - 1
        if at >= 0:
            skew_ms = runs[at][1]
            if at >= RUNS_KEPT:
                # Merge the two oldest runs.
                runs[:2] = [(runs[0][0], runs[1][1])]
            return deliver_time_ms - skew_ms
        # The message was put before this process started, so its wall time is trusted, but only up
        # to the level's delay: the clock may have been set back, or the level is now shorter and
        # other messages wait behind it.
        return min(deliver_time_ms, self._started_ms + self._delay_ms)
