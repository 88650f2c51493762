"""Broker internals prepared for display: histograms with bounds, threads with CPU shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.gateway.internals import Internals, Thread


@dataclass(frozen=True, slots=True)
class Bucket:
    """Calls that took more than `least_ms` and up to `most_ms`; None is beyond all bounds."""

    least_ms: float | None
    most_ms: float | None
    recent: int
    count: int
    percent: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """The latencies of one kind of call, without empty buckets at both ends."""

    name: str
    buckets: tuple[Bucket, ...]
    count: int
    recent: int
    median_ms: float | None
    """The upper bounds of 50% and 99% of all calls; None if beyond the largest bound."""
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread and its share of the broker's CPU time."""

    thread: Thread
    percent: float


def histograms_of(internals: Internals) -> list[Histogram]:
    bounds = internals.latency_bounds_ms
    return [
        histogram_of(name, bounds, internals.latencies[name], internals.recent[name])
        for name in ("put", "get", "flush")
        if name in internals.latencies and name in internals.recent
    ]


def histogram_of(
    name: str, bounds: Sequence[float], counts: Sequence[int], recent: Sequence[int]
) -> Histogram:
    total, most = sum(counts), max(counts, default=0)
    known = [index for index, count in enumerate(counts) if count]
    shown = range(known[0], known[-1] + 1) if known else range(0)
    buckets = tuple(
        Bucket(
            least_ms=bounds[index - 1] if index else None,
            most_ms=bounds[index] if index < len(bounds) else None,
            recent=recent[index],
            count=counts[index],
            percent=100 * counts[index] / most,
        )
        for index in shown
    )
    return Histogram(
        name,
        buckets,
        total,
        sum(recent),
        bound_of(bounds, counts, 0.5),
        bound_of(bounds, counts, 0.99),
    )


def bound_of(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Return the upper bound for a share of all calls; None without calls or beyond all bounds."""
    wanted, seen = sum(counts) * share, 0
    if not wanted:
        return None
    for bound, count in zip(bounds, counts, strict=False):
        seen += count
        if seen >= wanted:
            return bound
    return None


def threads_of(internals: Internals) -> list[ThreadRow]:
    """Return the threads, busiest first."""
    total = internals.cpu_ms
    return [
        ThreadRow(each, 100 * each.cpu_ms / total if total else 0.0) for each in internals.threads
    ]
