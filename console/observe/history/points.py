"""Points: the known values of columns in a row of time slots, and how to combine them.

A point is three integers: its weight (ms that a counter covers; number of samples of a gauge), its
sum, and its maximum (for a counter, the largest increase in 10 s). Weight 0 means unknown. Points
of one slot can be added up in any order, so sums and maxima are the same on every time scale, even
if a clock that is set back repeats a slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from console.observe.history.metrics import COUNTER_CODES, Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

NOMINAL_MS = 10_000
"""The sampling interval, and the unit of a counter's maximum."""
MISSING = -(1 << 63)
"""Stands for an unknown value, and for the maximum of no values."""
VALUE_MAX = 1 << 50
"""Limit of a figure: a petabyte, or the messages that a broker stores in centuries. With this limit
the sums of a block fit into 64 bits, whatever brokers report.
"""
WEIGHT, SUM, MAX = range(3)


@dataclass(slots=True)
class Points:
    """Columns in slots `first` to `first + n`; `table` is [WEIGHT | SUM | MAX, column, slot]."""

    first: int
    columns: tuple[Column, ...]
    table: Ints

    @property
    def slots(self) -> int:
        return int(self.table.shape[2])

    def weight(self, column: Column) -> Ints | None:
        return self._row(WEIGHT, column)

    def sum(self, column: Column) -> Ints | None:
        return self._row(SUM, column)

    def max(self, column: Column) -> Ints | None:
        return self._row(MAX, column)

    def _row(self, which: int, column: Column) -> Ints | None:
        if column not in self.columns:
            return None
        row: Ints = self.table[which, self.columns.index(column)]
        return row


def bounded(values: Ints) -> Ints:
    """Limit figures to VALUE_MAX, because brokers may report any number; keep MISSING."""
    found: Ints = np.where(values == MISSING, MISSING, np.clip(values, -VALUE_MAX, VALUE_MAX))
    return found


def ints_of(numbers: Sequence[int]) -> Ints:
    """Return integers of any size as an array, clipped to 64 bits."""
    try:
        return np.array(numbers, dtype=np.int64)
    except OverflowError:
        low, high = MISSING + 1, (1 << 63) - 1
        return np.array([max(low, min(each, high)) for each in numbers], dtype=np.int64)


def nothing(first: int, slots: int, columns: Sequence[Column]) -> Points:
    """Return points without known values."""
    table = np.zeros((3, len(columns), slots), dtype=np.int64)
    table[MAX] = MISSING
    return Points(first, tuple(columns), table)


def of_samples(
    columns: Sequence[Column], values: Ints, covered_ms: Ints, slots: Ints
) -> Points | None:
    """Return the points of samples: `values` is [sample, column], `slots` can be in any order.

    MISSING values yield no points, nor do counters whose coverage is unknown (0).
    """
    if not len(slots):
        return None
    values = bounded(values)
    is_counter = np.array([column.code in COUNTER_CODES for column in columns], dtype=bool)
    covered = covered_ms[:, None]
    weight = np.where(is_counter[None, :], covered, 1)
    weight = np.where(values == MISSING, 0, weight)
    known = weight > 0
    total = np.where(known, values, 0)
    per_nominal = np.rint(total * (NOMINAL_MS / np.maximum(covered, 1))).astype(np.int64)
    peak = np.where(is_counter[None, :] & (covered != NOMINAL_MS), per_nominal, total)
    peak = np.where(known, peak, MISSING)
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    first = int(ordered[0])
    made = nothing(first, int(ordered[-1]) - first + 1, columns)
    at = ordered[starts] - first
    made.table[WEIGHT][:, at] = np.add.reduceat(weight[order], starts, axis=0).T
    made.table[SUM][:, at] = np.add.reduceat(total[order], starts, axis=0).T
    made.table[MAX][:, at] = np.maximum.reduceat(peak[order], starts, axis=0).T
    return made


def part_of(points: Points, low: int, high: int) -> Points:
    """Return the columns from `low` to `high` as a view."""
    return Points(points.first, points.columns[low:high], points.table[:, low:high])


def add(into: Points, more: Points) -> Points:
    """Return the sum over the slots of `into`; points of `more` outside them are dropped."""
    if more.columns == into.columns:
        new = []
    else:
        new = [column for column in more.columns if column not in into.columns]
    if new:
        wider = nothing(into.first, into.slots, (*into.columns, *new))
        wider.table[:, : len(into.columns)] = into.table
        into = wider
    low, high = max(into.first, more.first), min(into.first + into.slots, more.first + more.slots)
    if low >= high:
        return into
    places: Any = (
        slice(None)
        if more.columns == into.columns
        else [into.columns.index(column) for column in more.columns]
    )
    here = slice(low - into.first, high - into.first)
    there = slice(low - more.first, high - more.first)
    for which in (WEIGHT, SUM):
        into.table[which, places, here] += more.table[which][:, there]
    into.table[MAX, places, here] = np.maximum(
        into.table[MAX, places, here], more.table[MAX][:, there]
    )
    return into


def coarser(points: Points, factor: int) -> Points:
    """Return the points on a scale with slots `factor` times as long."""
    first = points.first // factor
    last = (points.first + points.slots - 1) // factor
    made = nothing(first, last - first + 1, points.columns)
    slots = np.arange(points.first, points.first + points.slots) // factor
    starts = np.flatnonzero(np.r_[True, slots[1:] != slots[:-1]])
    for which in (WEIGHT, SUM):
        made.table[which] = np.add.reduceat(points.table[which], starts, axis=1)
    made.table[MAX] = np.maximum.reduceat(points.table[MAX], starts, axis=1)
    return made


def together(parts: Iterable[Points], first: int, slots: int) -> Points:
    """Return the sum of all parts in these slots."""
    parts = list(parts)
    made = nothing(first, slots, parts[0].columns if parts else ())
    for part in parts:
        made = add(made, part)
    return made
