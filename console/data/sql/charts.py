"""A quick chart of a result: numbers over time, or bars by name, if its columns allow it."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from console.data.sql.values import milliseconds, text_of

if TYPE_CHECKING:
    from console.data.sql.runs import Column

TIME_KINDS = ("moment", "time", "date")
POINTS_MAX = 2_000
SERIES_MAX = 5
BARS_MAX = 30
# Results with more columns are whole messages rather than figures.
COLUMNS_MAX = 5
LENGTH_MAX = 1_000

Rows = list[list[Any]]


def place_of(columns: tuple[Column, ...], kinds: tuple[str, ...]) -> int | None:
    """Return the index of the first column of these kinds."""
    return next((at for at, column in enumerate(columns) if column.kind in kinds), None)


def number_of(value: Any) -> float:
    """Return a cell as a number for a chart, or 0."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return 0.0
    return found if math.isfinite(found) else 0.0


def over_time(columns: tuple[Column, ...], rows: Rows) -> dict[str, Any] | None:
    """Return the points of a chart over time, or None if the result doesn't fit one.

    The first time column is the axis, the first number the value. The first text column gives a
    line
    for each of the largest values, and one for all others.
    """
    at_time, at_value = place_of(columns, TIME_KINDS), value_place(columns)
    at_name = place_of(columns, ("text",))
    if at_time is None or at_value is None or len(columns) > COLUMNS_MAX:
        return None
    points: dict[str, dict[int, float]] = {}
    for row in rows:
        ms = None if row[at_time] is None else milliseconds(str(row[at_time]))
        if ms is None:
            continue
        name = columns[at_value].name if at_name is None else str(row[at_name] or "NULL")
        line = points.setdefault(name, {})
        line[ms // 1_000] = line.get(ms // 1_000, 0) + number_of(row[at_value])
    times = sorted({second for line in points.values() for second in line})
    if len(times) < 2:
        return None
    step = min(after - before for before, after in pairwise(times))
    count = (times[-1] - times[0]) // step + 1
    if count > POINTS_MAX:
        return None
    values = {name: [0.0] * count for name in points}
    for name, line in points.items():
        for second, value in line.items():
            values[name][(second - times[0]) // step] += value
    ranked = sorted(values.items(), key=lambda each: -sum(each[1]))
    series = [{"label": name, "values": found} for name, found in ranked[:SERIES_MAX]]
    if len(ranked) > SERIES_MAX:
        others = [
            sum(column) for column in zip(*(each[1] for each in ranked[SERIES_MAX:]), strict=True)
        ]
        series.append({"label": _("all others"), "values": others})
    return {
        "stepSeconds": step,
        "times": [times[0] + index * step for index in range(count)],
        "series": series,
        "step": columns[at_value].name,
    }


def value_place(columns: tuple[Column, ...]) -> int | None:
    return place_of(columns, ("integer", "decimal", "float"))


def bars(columns: tuple[Column, ...], rows: Rows) -> list[dict[str, Any]]:
    """Return a bar for each row of a short result of names with numbers, else an empty list."""
    at_name, at_value = place_of(columns, ("text", "date", "boolean")), value_place(columns)
    if at_name is None or at_value is None or len(columns) > COLUMNS_MAX:
        return []
    if not 1 < len(rows) <= BARS_MAX:
        return []
    numbers = [number_of(row[at_value]) for row in rows]
    largest = max(numbers)
    if largest <= 0 or min(numbers) < 0:
        return []
    name, value = columns[at_name], columns[at_value]
    return [
        {
            "label": "NULL" if row[at_name] is None else text_of(row[at_name], name.kind),
            "text": "NULL" if row[at_value] is None else text_of(row[at_value], value.kind),
            "length": round(LENGTH_MAX * number / largest),
        }
        for row, number in zip(rows, numbers, strict=True)
    ]
