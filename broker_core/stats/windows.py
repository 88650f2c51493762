"""Windows over counters: the last minute, hour and day.

A counter only grows; a window keeps snapshots of it and subtracts them.

Source: common/stats/StatsItem.java, StatsItemSet.java (4.9.7).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

SAMPLE_SECONDS = 10
MINUTE_SAMPLES = 7
"""Seven samples enclose six intervals of ten seconds."""
HOUR_EVERY = 60
"""Every 60th ten-second sample is also an hour sample."""
HOUR_SAMPLES = 7
DAY_EVERY = 360
DAY_SAMPLES = 25


class StatsSnapshot(NamedTuple):
    """A window's sum, its rate per second, and its average per call."""

    sum: int
    tps: float
    avgpt: float


NOTHING = StatsSnapshot(0, 0.0, 0.0)


class StatsItem:
    """One counter with its windows. The hot path adds to `value` and `times` directly."""

    __slots__ = ("_day", "_hour", "_minute", "_samples", "times", "value")

    def __init__(self, now: float) -> None:
        self.value = 0
        self.times = 0
        self._samples = 0
        self._minute: deque[tuple[float, int, int]] = deque([(now, 0, 0)], MINUTE_SAMPLES)
        self._hour: deque[tuple[float, int, int]] = deque([(now, 0, 0)], HOUR_SAMPLES)
        self._day: deque[tuple[float, int, int]] = deque([(now, 0, 0)], DAY_SAMPLES)

    def add(self, count: int) -> None:
        """Count one call."""
        self.value += count
        self.times += 1

    def sample(self, now: float) -> None:
        """Take the ten-second snapshot; now is monotonic seconds."""
        snapshot = (now, self.value, self.times)
        self._samples += 1
        self._minute.append(snapshot)
        if self._samples % HOUR_EVERY == 0:
            self._hour.append(snapshot)
        if self._samples % DAY_EVERY == 0:
            self._day.append(snapshot)

    def minute(self, now: float) -> StatsSnapshot:
        return self._over(self._minute, now)

    def hour(self, now: float) -> StatsSnapshot:
        return self._over(self._hour, now)

    def day(self, now: float) -> StatsSnapshot:
        return self._over(self._day, now)

    def _over(self, samples: deque[tuple[float, int, int]], now: float) -> StatsSnapshot:
        """Return the change from the oldest sample until now, so that a young counter isn't 0."""
        began, value, times = samples[0]
        total = self.value - value
        calls = self.times - times
        seconds = now - began
        if seconds <= 0:
            return NOTHING
        return StatsSnapshot(total, total / seconds, total / calls if calls else 0.0)
