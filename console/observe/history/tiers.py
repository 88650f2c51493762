"""The time scales of stored points, and their retention."""

from __future__ import annotations

from typing import NamedTuple

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
SLOTS_A_BLOCK = 360
"""One hour of 10 s, six hours of 1 min, two and a half days of 10 min."""
POINTS_TARGET = 1_500
"""A chart with more points uses a coarser scale, if there is one."""


class Tier(NamedTuple):
    """A scale: the length and retention of its slots, in ms."""

    number: int
    step_ms: int
    kept_ms: int

    @property
    def block_ms(self) -> int:
        return self.step_ms * SLOTS_A_BLOCK


FINE = Tier(0, 10_000, DAY_MS)
MIDDLE = Tier(1, MINUTE_MS, 14 * DAY_MS)
COARSE = Tier(2, 10 * MINUTE_MS, 366 * DAY_MS)
TIERS = (FINE, MIDDLE, COARSE)


def tier_for(from_ms: int, to_ms: int, now_ms: int) -> Tier:
    """Return the finest scale that still covers the range without too many points."""
    for tier in TIERS:
        is_kept = now_ms - from_ms <= tier.kept_ms
        if is_kept and (to_ms - from_ms) // tier.step_ms <= POINTS_TARGET:
            return tier
    return COARSE
