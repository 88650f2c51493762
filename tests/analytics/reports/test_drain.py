"""Backlogs and drain times, from small frames of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from analytics.arguments import parse_arguments
from analytics.reports import drain
from analytics.reports.summaries import summaries_of
from tests.analytics.reports.report_outcomes import table_of
from tests.analytics.store_builder import START_MS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MINUTE_MS = 60_000
STEP_MS = 5 * MINUTE_MS
BEGAN_MS = START_MS // STEP_MS * STEP_MS


def sample(minute: int, metric: str, total: int, **others: Any) -> dict[str, Any]:
    """Return a minute of the group billing in orders; a reading is repeated six times."""
    is_counter = metric in {"consumed", "put"}
    known = {
        "minute": (BEGAN_MS + minute * MINUTE_MS) * 1000,
        "kind": "topic" if metric == "put" else "progress",
        "broker": "broker-a",
        "topic": "orders",
        "consumer_group": None if metric == "put" else "billing",
        "metric": metric,
        "is_counter": is_counter,
        "total": total if is_counter else total * 6,
        "highest": total,
        "weight": MINUTE_MS if is_counter else 6,
    }
    return known | others


def drained(spark: SparkSession, *samples: dict[str, Any], **parameters: int | str) -> pa.Table:
    return table_of(spark, drain.REPORT, samples, parameters, STEP_MS // 1000)


def sentence_of(table: pa.Table) -> str:
    finding = summaries_of(drain.REPORT, table, STEP_MS // 1000)["finding"]
    figures = {name: figure["value"] for name, figure in finding["figures"].items()}
    text: str = finding["text"] % figures
    return text


@pytest.mark.spark
def test_a_step_has_its_last_backlog_and_all_reads_and_arrivals(spark: SparkSession) -> None:
    table = drained(
        spark,
        *(sample(minute, "lag", 1000 - 100 * minute) for minute in range(5)),
        *(sample(minute, "consumed", 160) for minute in range(5)),
        *(sample(minute, "put", 60) for minute in range(5)),
        sample(5, "lag", 0),
    )

    assert table.schema.equals(to_arrow_schema(drain.REPORT.schema, timezone="UTC"))
    first, second = table.to_pylist()
    assert int(first.pop("time").timestamp() * 1000) == BEGAN_MS
    assert int(second["time"].timestamp() * 1000) == BEGAN_MS + STEP_MS
    assert first == {
        "consumer_group": "billing",
        "topic": "orders",
        "backlog": 600,
        "highest": 1000,
        "consumed": 800,
        "arrived": 300,
        "reads_a_minute": 160,
        "comes_a_minute": 60,
        # 600 are drained in six minutes at 100 per minute.
        "drain_ms": 6 * MINUTE_MS,
    }
    assert (second["backlog"], second["consumed"], second["drain_ms"]) == (0, 0, 0)


@pytest.mark.spark
def test_brokers_are_summed_each_at_its_own_sample_time(spark: SparkSession) -> None:
    (row,) = drained(
        spark,
        *(sample(0, metric, 100) for metric in ("lag", "consumed", "put")),
        sample(0, "lag", 50, broker="broker-b"),
        # Observed for half a minute only: 30 messages in it mean 60 a minute.
        sample(0, "consumed", 30, broker="broker-b", weight=MINUTE_MS // 2),
    ).to_pylist()

    assert (row["backlog"], row["consumed"], row["reads_a_minute"]) == (150, 130, 160)
    assert row["comes_a_minute"] == 100
    assert row["drain_ms"] == 150 * MINUTE_MS // 60


@pytest.mark.spark
def test_a_group_that_reads_no_faster_than_messages_arrive_never_catches_up(
    spark: SparkSession,
) -> None:
    table = drained(spark, sample(0, "lag", 100), sample(0, "consumed", 40), sample(0, "put", 40))

    assert table["drain_ms"].to_pylist() == [None]
    assert sentence_of(table) == (
        "billing is furthest behind in orders, with 100 messages at the end, and isn't catching "
        "up: it reads 40 a minute while 40 arrive."
    )


@pytest.mark.spark
def test_the_summary_describes_the_end_and_the_group_furthest_behind(
    spark: SparkSession,
) -> None:
    table = drained(
        spark,
        sample(0, "lag", 9_000, consumer_group="audit"),
        sample(6, "lag", 10, consumer_group="audit"),
        sample(6, "lag", 600),
        sample(6, "consumed", 300),
    )

    assert sentence_of(table) == (
        "billing is furthest behind in orders, with 600 messages at the end, and needs 120000 to "
        "catch up: it reads 300 a minute while 0 arrive."
    )


@pytest.mark.spark
def test_with_everything_read_the_summary_names_the_longest_past_backlog(
    spark: SparkSession,
) -> None:
    table = drained(spark, sample(0, "lag", 70), sample(6, "lag", 0))

    assert sentence_of(table) == (
        "At the end, every group had read everything. The longest backlog was that of billing in "
        "orders: 70 messages."
    )


@pytest.mark.spark
def test_whole_queues_of_a_topic_and_group_are_not_counted_again(
    spark: SparkSession,
) -> None:
    (row,) = drained(
        spark,
        sample(0, "lag", 5),
        sample(0, "lag", 5, part=0),
        sample(0, "lag", 5, kind="group", topic=None),
        sample(0, "put", 7),
        sample(0, "put", 7, part=0),
    ).to_pylist()

    assert (row["backlog"], row["arrived"]) == (5, 7)


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({}, {("audit", "bills"), ("billing", "bills"), ("billing", "orders")}),
        ({"topic": "bills"}, {("audit", "bills"), ("billing", "bills")}),
        ({"group": "billing"}, {("billing", "bills"), ("billing", "orders")}),
        ({"group": "billing", "topic": "bills"}, {("billing", "bills")}),
        ({"group": "bill"}, set()),
    ],
)
@pytest.mark.spark
def test_a_topic_and_a_group_narrow_the_list(
    spark: SparkSession, parameters: dict[str, str], found: set[tuple[str, str]]
) -> None:
    table = drained(
        spark,
        sample(0, "lag", 5),
        sample(0, "lag", 5, topic="bills"),
        sample(0, "lag", 5, topic="bills", consumer_group="audit"),
        **parameters,
    )

    rows = {(row["consumer_group"], row["topic"]) for row in table.to_pylist()}
    assert rows == found


def test_a_group_name_above_the_limit_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["drain", "--store", "a", "--out", "b", "--group", "g" * 256])

    assert ended.value.code == 2
    assert "expected at most 255 characters" in capsys.readouterr().err
