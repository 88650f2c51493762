"""Client versions, from small frames of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from analytics.reports import clients
from analytics.reports.summaries import summaries_of
from analytics.reports.totals import totals_of
from tests.analytics.reports.report_outcomes import table_of
from tests.analytics.store_builder import START_MS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MINUTE_MS = 60_000
STEP_MS = 10 * MINUTE_MS
BEGAN_MS = START_MS // STEP_MS * STEP_MS
OLD, NEWER = "JAVA v4_9_7", "JAVA v5_3_1"


def sample(step: int, group: str, client: str, count: int, **others: Any) -> dict[str, Any]:
    """Return the clients of a consumer group in the first minute of a step."""
    known = {
        "minute": (BEGAN_MS + step * STEP_MS) * 1000,
        "kind": "consumers",
        "broker": "broker-a",
        "consumer_group": group,
        "name": client,
        "metric": "members",
        "is_counter": False,
        "total": count * 6,
        "highest": count,
        "weight": 6,
    }
    return known | others


def sampled(*steps: int) -> list[dict[str, Any]]:
    """Return the samples of some steps without any clients."""
    others = {"kind": "broker", "consumer_group": None, "metric": "log_bytes"}
    return [sample(step, "", "0", 1, **others) for step in steps]


def producers(step: int, group: str, client: str, count: int) -> dict[str, Any]:
    others = {"kind": "producers", "consumer_group": None}
    return sample(step, "", f"{group}@{client}", count, **others)


def found_in(spark: SparkSession, *samples: dict[str, Any]) -> pa.Table:
    return table_of(spark, clients.REPORT, samples, {}, STEP_MS // 1000)


def changes_of(table: pa.Table) -> list[tuple[int, str, str, str]]:
    return [
        (
            (int(row["time"].timestamp() * 1000) - BEGAN_MS) // STEP_MS,
            row["change"],
            row["consumer_group"] or row["producer_group"],
            row["client"],
        )
        for row in table.to_pylist()
        if row["change"]
    ]


def sentence_of(table: pa.Table) -> str:
    finding = summaries_of(clients.REPORT, table, STEP_MS // 1000)["finding"]
    figures = {name: figure["value"] for name, figure in finding["figures"].items()}
    text: str = finding["text"] % figures
    return text


@pytest.mark.spark
def test_a_deployment_adds_a_version_and_removes_the_other(spark: SparkSession) -> None:
    table = found_in(
        spark,
        *sampled(0, 1, 2, 3),
        *(sample(step, "billing", OLD, 3) for step in (0, 1)),
        *(sample(step, "billing", NEWER, 3) for step in (1, 2, 3)),
    )

    assert table.schema.equals(to_arrow_schema(clients.REPORT.schema, timezone="UTC"))
    assert changes_of(table) == [(1, "new", "billing", NEWER), (2, "gone", "billing", OLD)]
    (gone,) = [row for row in table.to_pylist() if row["change"] == "gone"]
    assert (gone["language"], gone["version"], gone["clients"]) == ("JAVA", "v4_9_7", 0)
    assert totals_of(clients.REPORT, table) == {
        "kinds": "2",
        "came": "1",
        "went": "1",
        "groups": "1",
        "producers": "0",
    }
    assert sentence_of(table) == (
        f"Client versions in groups: 1 added, 1 removed. The last change: {OLD} left billing. "
        f"At the end, 3 of 3 clients run {NEWER}."
    )


@pytest.mark.spark
def test_a_constant_value_is_not_a_change_and_the_first_step_compares_with_nothing(
    spark: SparkSession,
) -> None:
    table = found_in(
        spark,
        *sampled(0, 1),
        *(sample(step, "billing", OLD, 3) for step in (0, 1)),
        *(producers(step, "shop", "GO v5_1_4", 1) for step in (0, 1)),
    )

    assert changes_of(table) == []
    assert sentence_of(table) == (
        f"No group changed client versions. At the end, 3 of 4 clients run {OLD}."
    )


@pytest.mark.spark
def test_a_collectors_pause_is_not_a_change_but_a_clients_is(
    spark: SparkSession,
) -> None:
    seen = [sample(step, "billing", OLD, 1) for step in (0, 3)]

    assert changes_of(found_in(spark, *sampled(0, 3), *seen)) == []
    assert changes_of(found_in(spark, *sampled(0, 1, 2, 3), *seen)) == [
        (1, "gone", "billing", OLD),
        (3, "new", "billing", OLD),
    ]


@pytest.mark.spark
def test_a_client_at_two_masters_counts_once_and_in_two_groups_twice(spark: SparkSession) -> None:
    table = found_in(
        spark,
        *sampled(0),
        sample(0, "billing", OLD, 3),
        sample(0, "billing", OLD, 2, broker="broker-b"),
        sample(0, "audit", OLD, 3),
    )

    assert {row["consumer_group"]: row["clients"] for row in table.to_pylist()} == {
        "audit": 3,
        "billing": 3,
    }


@pytest.mark.spark
def test_producers_have_their_own_group_and_no_link_to_a_consumer_group(
    spark: SparkSession,
) -> None:
    (row,) = found_in(spark, *sampled(0), producers(0, "shop", "GO v5_1_4", 2)).to_pylist()

    assert (row["role"], row["consumer_group"], row["producer_group"]) == (
        "producers",
        None,
        "shop",
    )
    assert (row["client"], row["language"], row["clients"]) == ("GO v5_1_4", "GO", 2)


@pytest.mark.spark
def test_whole_group_members_are_not_counted_again(spark: SparkSession) -> None:
    table = found_in(
        spark,
        sample(0, "billing", OLD, 3),
        sample(0, "billing", "", 3, kind="group", name=None),
    )

    assert table["clients"].to_pylist() == [3]
