"""The traffic result: its rows, totals by topic, the chart of messages over time."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

TOPICS_KEPT = 1_000
CHART_TOPICS_MAX = 5
CHART_POINTS_MAX = 1_500
# Minutes a point of the chart may stand for; the first that needs few enough points is used.
CHART_STEPS = (1, 5, 10, 30, 60, 240, 720, 1_440, 10_080, 43_200)
OTHER_TOPICS = "other topics"
COLUMNS = ("topic", "minute", "messages", "bytes")
# A spreadsheet takes a cell that begins like this for a formula.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a page shows besides the rows, from all of them.

    Raises:
        ValueError: a row lacks a column, or holds something else than was agreed.
    """
    try:
        parsed = [
            (
                str(row["topic"]),
                minute_number(str(row["minute"])),
                int(row["messages"]),
                int(row["bytes"]),
            )
            for row in rows
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a row is not topic, minute, messages, bytes: {error!r}") from error
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for topic, _, messages, size in parsed:
        totals[topic][0] += messages
        totals[topic][1] += size
    ranked = sorted(totals.items(), key=lambda item: (-item[1][0], item[0]))
    return {
        "topics": [
            {"topic": topic, "messages": str(messages), "bytes": str(size)}
            for topic, (messages, size) in ranked[:TOPICS_KEPT]
        ],
        "topicCount": len(ranked),
        "chart": chart(
            [(topic, minute, messages) for topic, minute, messages, _ in parsed],
            [topic for topic, _ in ranked],
        ),
    }


def chart(points: Sequence[tuple[str, int, int]], ranked: Sequence[str]) -> dict[str, Any]:
    """Return seconds since the epoch with one row of counts a topic; minutes between are zeros."""
    if not points:
        return {"stepMinutes": 1, "times": [], "series": []}
    first = min(minute for _, minute, _ in points)
    last = max(minute for _, minute, _ in points)
    step = next(
        (step for step in CHART_STEPS if (last - first) // step < CHART_POINTS_MAX), CHART_STEPS[-1]
    )
    start = first // step * step
    length = min((last - start) // step + 1, CHART_POINTS_MAX)
    names = list(ranked[:CHART_TOPICS_MAX])
    if len(ranked) > CHART_TOPICS_MAX:
        names.append(OTHER_TOPICS)
    place = {name: index for index, name in enumerate(ranked[:CHART_TOPICS_MAX])}
    counts = [[0] * length for _ in names]
    for topic, minute, messages in points:
        index = min((minute - start) // step, length - 1)
        counts[place.get(topic, len(names) - 1)][index] += messages
    return {
        "stepMinutes": step,
        "times": [(start + index * step) * 60 for index in range(length)],
        "series": [{"label": name, "counts": row} for name, row in zip(names, counts, strict=True)],
    }


def minute_number(text: str) -> int:
    """Return the minutes since the epoch of an ISO time, UTC when it names no zone."""
    when = datetime.fromisoformat(text)
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()) // 60


def csv_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the rows as CSV, the head first; no cell is a formula in a spreadsheet."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([safe_cell(row.get(column, "")) for column in COLUMNS])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def safe_cell(value: Any) -> str:
    text = str(value)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
