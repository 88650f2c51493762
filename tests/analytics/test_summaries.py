"""A page's summary of all rows equals a recount, however many rows there are."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from analytics import sink
from analytics.reports import traffic
from analytics.reports.report import POINTS_MAX, step_for
from analytics.reports.summaries import BREAKDOWN_ROWS_MAX, summaries_of

if TYPE_CHECKING:
    import random
    from pathlib import Path

START = datetime(2026, 11, 21, tzinfo=UTC)
DAY_S = 86_400
SCHEMA = to_arrow_schema(traffic.REPORT.schema, timezone="UTC")


def table_of(rows: list[tuple[str, datetime, int, int]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.table([pa.array(column) for column in columns], names=SCHEMA.names).cast(SCHEMA)


def test_sums_and_chart_cover_all_rows_even_if_the_document_keeps_fewer(tmp_path: Path) -> None:
    rows = sink.JSON_ROWS_MAX + 50_000
    table = pa.table(
        [
            pa.array([f"topic-{number % 7}" for number in range(rows)]),
            pa.array([START + timedelta(minutes=number % 1440) for number in range(rows)]),
            pa.array([1] * rows, pa.int64()),
            pa.array([100] * rows, pa.int64()),
        ],
        names=SCHEMA.names,
    ).cast(SCHEMA)

    about = summaries_of(traffic.REPORT, table, 60)
    document = sink.document(table, about)

    assert document["rows_omitted"] == 50_000
    assert sum(int(row["sums"][0]) for row in document["breakdown"]["rows"]) == rows
    assert sum(int(row["sums"][1]) for row in document["breakdown"]["rows"]) == 100 * rows
    assert sum(sum(each["values"]) for each in document["chart"]["series"]) == rows


def test_missed_readings_are_unknown_but_zero_if_others_were_seen() -> None:
    assert traffic.REPORT.chart is not None
    chart = dataclasses.replace(traffic.REPORT.chart, is_reading=True)
    report = dataclasses.replace(traffic.REPORT, chart=chart)
    rows = [(name, START + timedelta(minutes=at), 5, 0) for name, at in (("a", 0), ("b", 3))]

    found = summaries_of(report, table_of(rows), 60)["chart"]

    assert {each["label"]: each["values"] for each in found["series"]} == {
        "a": [5, None, None, 0],
        "b": [0, None, None, 5],
    }


def test_summaries_equal_a_recount(rng: random.Random) -> None:
    rows = [
        (
            f"t{rng.randrange(9)}",
            START + timedelta(minutes=rng.randrange(3000)),
            rng.randrange(2**53, 2**55),
            rng.randrange(1000),
        )
        for _ in range(2_000)
    ]

    found = summaries_of(traffic.REPORT, table_of(rows), 300)

    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for topic, _, messages, size in rows:
        sums[topic][0] += messages
        sums[topic][1] += size
    ranked = sorted(sums.items(), key=lambda item: -item[1][0])
    assert found["breakdown"] == {
        "rows": [{"by": name, "sums": [str(n) for n in each]} for name, each in ranked],
        "count": len(ranked),
    }
    assert points_of(found["chart"]) == recount(rows, 300, [name for name, _ in ranked[:5]])


def test_a_chart_never_has_more_points_than_a_page_draws() -> None:
    rows = [
        (f"t{number % 9}", START + timedelta(minutes=number * 7), 1, 10) for number in range(30_000)
    ]

    chart = summaries_of(traffic.REPORT, table_of(rows), 60)["chart"]

    assert len(chart["times"]) <= POINTS_MAX
    assert [each["label"] for each in chart["series"]] == ["t0", "t1", "t2", "t3", "t4", None]
    assert sum(sum(each["values"]) for each in chart["series"]) == 30_000


def test_a_breakdown_keeps_the_largest_values_and_the_total_number() -> None:
    count = BREAKDOWN_ROWS_MAX + 5
    rows = [(f"t{number:05d}", START, number + 1, 1) for number in range(count)]

    found = summaries_of(traffic.REPORT, table_of(rows), 60)["breakdown"]

    assert found["count"] == count
    assert len(found["rows"]) == BREAKDOWN_ROWS_MAX
    assert found["rows"][0] == {"by": f"t{count - 1:05d}", "sums": [str(count), "1"]}


def test_a_result_without_rows_has_empty_ones() -> None:
    assert summaries_of(traffic.REPORT, table_of([]), 600) == {
        "breakdown": {"rows": [], "count": 0},
        "chart": {"stepSeconds": 600, "times": [], "series": []},
    }


@pytest.mark.parametrize(
    ("span_s", "step_s"),
    [
        (0, 60),
        (DAY_S, 60),
        (2 * DAY_S, 300),
        (7 * DAY_S, 600),
        (30 * DAY_S, 1800),
        (366 * DAY_S, 43_200),
        (10_000 * DAY_S, 604_800),
        (100_000 * DAY_S, 2_592_000),
    ],
)
def test_the_time_step_follows_from_the_range(span_s: int, step_s: int) -> None:
    assert step_for(traffic.REPORT, span_s) == step_s


def points_of(chart: dict[str, Any]) -> dict[tuple[str | None, int], int]:
    return {
        (each["label"], at): value
        for each in chart["series"]
        for at, value in zip(chart["times"], each["values"], strict=True)
        if value
    }


def recount(
    rows: list[tuple[str, datetime, int, int]], step: int, shown: list[str]
) -> dict[tuple[str | None, int], int]:
    found: dict[tuple[str | None, int], int] = defaultdict(int)
    for topic, at, messages, _ in rows:
        seconds = int(at.timestamp()) // step * step
        found[topic if topic in shown else None, seconds] += messages
    return dict(found)
