"""Quantiles from histograms: the maximum duration of the fastest 50 % or 99 % of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BOUNDS_MS = (
    *(0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 200.0, 500.0),
    *(1e3, 2e3, 3e3, 4e3, 5e3, 10e3),
)
"""Upper bounds of the brokers' buckets; one more bucket is above them."""


def quantile_ms(counts: Sequence[int], share: float) -> float | None:
    """Return the milliseconds within which a share of the calls ended, or None without calls.

    Interpolates within the bucket; for the last bucket, returns its lower bound.
    """
    wanted = sum(counts) * share
    if not wanted:
        return None
    seen = 0
    for index, count in enumerate(counts):
        if count and seen + count >= wanted:
            if index >= len(BOUNDS_MS):
                return BOUNDS_MS[-1]
            low = BOUNDS_MS[index - 1] if index else 0.0
            return low + (BOUNDS_MS[index] - low) * (wanted - seen) / count
        seen += count
    return BOUNDS_MS[-1]
