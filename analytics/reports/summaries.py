"""Summaries of all rows of a result for a page: a sentence, sums by a column, chart points.

Computed here, because the page receives only some of the rows.

    {"breakdown": {"rows": [{"by": "orders", "sums": ["12", "3400"]}, ...], "count": 1},
     "chart": {"stepSeconds": 60, "times": [1795251420, ...],
               "series": [{"label": "orders", "values": [12, ...]}, {"label": null, ...}]},
     "bars": {"rows": [{"by": "orders", "value": "12"}, ...], "count": 40, "others": "7"},
     "finding": {"text": "... %(topic)s ...", "figures": {"topic": {"value": ..., "unit": ""}}}}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.reports.report import POINTS_MAX, STEPS_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from analytics.reports.report import Bars, Breakdown, Chart, Report

    Ints = NDArray[np.int64]

BREAKDOWN_ROWS_MAX = 1_000
CHART_SERIES_MAX = 5
BARS_MAX = 12


def summaries_of(report: Report, table: pa.Table, step_seconds: int) -> dict[str, Any]:
    """Return the sentence, breakdown and charts that the report defines."""
    found: dict[str, Any] = {}
    if report.breakdown is not None:
        found["breakdown"] = breakdown_of(report.breakdown, table)
    if report.chart is not None:
        found["chart"] = chart_of(report.chart, table, step_seconds)
    if report.bars is not None:
        found["bars"] = bars_of(report.bars, table)
    if report.find is not None and table.num_rows:
        finding = report.find(table)
        found["finding"] = {
            "text": finding.text,
            "figures": {
                name: {"value": str(figure.value), "unit": figure.unit}
                for name, figure in finding.figures.items()
            },
        }
    return found


def bars_of(wanted: Bars, table: pa.Table) -> dict[str, Any]:
    """Return up to BARS_MAX sums, the number of all sums, and the total of those left out."""
    values, codes = _encoded(table[wanted.by])
    sums = _sums(codes, _whole(table[wanted.value]), len(values))
    order = list(range(len(values)))
    if wanted.ranked:
        order.sort(key=lambda code: (-int(sums[code]), values[code]))
    return {
        "rows": [{"by": values[code], "value": str(int(sums[code]))} for code in order[:BARS_MAX]],
        "count": len(values),
        "others": str(sum(int(sums[code]) for code in order[BARS_MAX:])),
    }


def breakdown_of(wanted: Breakdown, table: pa.Table) -> dict[str, Any]:
    """Return the sums for each value, largest first, and the number of values."""
    values, codes = _encoded(table[wanted.by])
    sums = [_sums(codes, _whole(table[name]), len(values)) for name in wanted.sums]
    ranked = sorted(
        range(len(values)), key=lambda code: ([-int(of[code]) for of in sums], values[code])
    )
    return {
        "rows": [
            {"by": values[code], "sums": [str(int(of[code])) for of in sums]}
            for code in ranked[:BREAKDOWN_ROWS_MAX]
        ],
        "count": len(values),
    }


def chart_of(wanted: Chart, table: pa.Table, step_seconds: int) -> dict[str, Any]:
    """Return the times in seconds since the epoch, and values for each series; gaps are zeros.

    Readings are null at times when no series has any. The last series has a null label and sums up
    all series beyond CHART_SERIES_MAX. The step is `step_seconds`, or longer if that would need
    more than POINTS_MAX points.
    """
    table = table.filter(pc.is_valid(table[wanted.time]))
    if not table.num_rows:
        return {"stepSeconds": step_seconds, "times": [], "series": []}
    times = pc.cast(table[wanted.time], pa.timestamp("s", tz="UTC"), safe=False)
    at = _whole(pc.cast(times, pa.int64()))
    numbers = _whole(table[wanted.value])
    labels, codes = _encoded(table[wanted.series])
    totals = _sums(codes, numbers, len(labels))
    ranked = sorted(range(len(labels)), key=lambda code: (-int(totals[code]), labels[code]))
    first, last = int(at.min()), int(at.max())
    steps = [step_seconds, *(step for step in STEPS_S if step > step_seconds)]
    step = next((step for step in steps if (last - first) // step < POINTS_MAX), steps[-1])
    start = first // step * step
    length = min((last - start) // step + 1, POINTS_MAX)
    shown: list[str | None] = [labels[code] for code in ranked[:CHART_SERIES_MAX]]
    if len(labels) > CHART_SERIES_MAX:
        shown.append(None)
    place = np.full(len(labels), len(shown) - 1, dtype=np.int64)
    place[ranked[:CHART_SERIES_MAX]] = np.arange(min(len(labels), CHART_SERIES_MAX))
    steps_of = np.minimum((at - start) // step, length - 1)
    cells = place[codes] * length + steps_of
    values = _sums(cells, numbers, len(shown) * length).reshape(len(shown), length).astype(object)
    if wanted.is_reading:
        values[:, np.bincount(steps_of, minlength=length) == 0] = None
    return {
        "stepSeconds": step,
        "times": [start + index * step for index in range(length)],
        "series": [
            {"label": label, "values": row.tolist()}
            for label, row in zip(shown, values, strict=True)
        ],
    }


def _encoded(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """Return the distinct values as text, and each row's index among them."""
    encoded = pc.fill_null(pc.cast(column, pa.string()), "").combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return encoded.dictionary.to_pylist(), codes


def _whole(column: pa.ChunkedArray) -> Ints:
    filled = pc.fill_null(pc.cast(column, pa.int64()), 0)
    numbers: Ints = filled.to_numpy().astype(np.int64)
    return numbers


def _sums(codes: Ints, numbers: Ints, count: int) -> Ints:
    # Not bincount: its sums are floating-point numbers.
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, codes, numbers)
    return sums
