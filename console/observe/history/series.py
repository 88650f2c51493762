"""Series: chart values computed from one subject's points on all its brokers.

Unknown values are None. A sum over brokers is unknown where one broker is unknown, between the
first and last time that this broker is known.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from console.observe.history.latency import quantile_ms
from console.observe.history.metrics import WHOLE, Column, Kind, Metric
from console.observe.history.points import MISSING, NOMINAL_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from console.observe.history.points import Points

MS_A_SECOND = 1_000
PARTS_A_HISTOGRAM = 32
TREND_VALUES_MIN = 10
"""With fewer, a deployment or one burst would look like a trend."""
Values = list[float | None]


class Aspect(Enum):
    """Which aspect of the points a line shows."""

    MEAN = "mean"  # a gauge's mean; a counter's rate per second
    PEAK = "peak"  # a gauge's maximum; a counter's rate per second in its busiest 10 s
    SUM = "sum"  # a counter's sum in a slot
    P50 = "p50"
    P99 = "p99"


SHARES = {Aspect.P50: 0.50, Aspect.P99: 0.99}


class Line(NamedTuple):
    """One line of a chart; `scale` converts to the chart's unit."""

    label: str
    metric: Metric
    aspect: Aspect = Aspect.MEAN
    part: int = WHOLE
    scale: float = 1.0


def values_of(parts: Iterable[Points], line: Line) -> Values:
    """Return a line's value in each slot; all parts have the same slots."""
    found = list(parts)
    if not found:
        return []
    if line.aspect in SHARES:
        return quantiles(found, line)
    rows = [row for row in (one(points, line) for points in found) if row is not None]
    if not rows:
        return [None] * found[0].slots
    if len(rows) == 1:
        return [None if math.isnan(each) else each * line.scale for each in rows[0].tolist()]
    known = np.stack([~np.isnan(row) for row in rows])
    expected = (
        np.maximum.accumulate(known, axis=1)
        & (np.maximum.accumulate(known[:, ::-1], axis=1)[:, ::-1])
    )
    is_known = known.any(axis=0) & ~(expected & ~known).any(axis=0)
    stacked = np.stack(rows)
    total = (
        np.nanmax(np.where(known, stacked, -np.inf), axis=0)
        if is_age(line)
        else (np.where(known, stacked, 0).sum(axis=0))
    )
    return [
        float(value) * line.scale if is_there else None
        for value, is_there in zip(total, is_known, strict=True)
    ]


def is_age(line: Line) -> bool:
    """Whether the figure of several brokers is their maximum rather than their sum."""
    return line.metric.kind is Kind.GAUGE and line.metric.unit == "ms"


def one(points: Points, line: Line) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    column = Column(line.metric.code, line.part)
    weight, total, peak = points.weight(column), points.sum(column), points.max(column)
    if weight is None or total is None or peak is None:
        return None
    unknown = weight == 0
    per = np.where(unknown, 1, weight)
    if line.aspect is Aspect.SUM:
        row = total.astype(np.float64)
    elif line.aspect is Aspect.PEAK:
        row = np.where(peak == MISSING, 0, peak).astype(np.float64)
        if line.metric.kind is Kind.COUNTER:
            row = row * (MS_A_SECOND / NOMINAL_MS)
    else:
        row = total / per
        if line.metric.kind is Kind.COUNTER:
            row = row * MS_A_SECOND
    row[unknown] = np.nan
    return row


def quantiles(parts: Sequence[Points], line: Line) -> Values:
    slots = parts[0].slots
    counts = np.zeros((PARTS_A_HISTOGRAM, slots), dtype=np.int64)
    known = np.zeros(slots, dtype=bool)
    for points in parts:
        for column in points.columns:
            if column.code == line.metric.code and column.part < PARTS_A_HISTOGRAM:
                total, weight = points.sum(column), points.weight(column)
                assert total is not None
                assert weight is not None
                counts[column.part] += total
                known |= weight > 0
    found: Values = []
    for slot in range(slots):
        value = quantile_ms(counts[:, slot].tolist(), SHARES[line.aspect]) if known[slot] else None
        found.append(None if value is None else value * line.scale)
    return found


def trend_of(values: Sequence[float | None]) -> int | None:
    """Return 1 if the last third of the values is clearly above the first, -1 if below, else 0.

    None if there are too few values for a trend.
    """
    known = [value for value in values if value is not None]
    if len(known) < TREND_VALUES_MIN:
        return None
    third = len(known) // 3
    first, last = sum(known[:third]) / third, sum(known[-third:]) / third
    if abs(last - first) <= 0.1 * max(abs(first), abs(last)):
        return 0
    return 1 if last > first else -1
