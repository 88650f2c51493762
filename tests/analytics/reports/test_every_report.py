"""Properties of every report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from analytics.facts import StoreFacts
from analytics.reports.catalog import REPORTS
from analytics.reports.report import COMPARE, HOURS, SAMPLED_HOURS, TOPIC, TYPE_NAMES
from broker_core.message import properties
from tests.analytics.reports.report_outcomes import outcome_of, result_of, sentence_of
from tests.analytics.store_builder import START_MS, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.session import Spark

ALL = pytest.mark.parametrize("name", REPORTS)
OF_MESSAGES = pytest.mark.parametrize(
    "name", [name for name, report in REPORTS.items() if not report.samples]
)
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all kinds of messages, one enormous key, and a damaged range."""
    builder = StoreBuilder(tmp_path_factory.mktemp("store"), file_bytes=64 * 1024).put_many(60)
    spoiled = builder.put("orders", body=b"spoiled")
    builder.put("orders", properties=properties.encode({"KEYS": "k" * 30_000}).encode())
    for topic in ("%RETRY%billing", "%DLQ%billing"):
        table = {"RETRY_TOPIC": "orders", "UNIQ_KEY": "FD01"}
        builder.put(topic, properties=properties.encode(table).encode(), reconsume_times=3)
    builder.put_many(10)
    builder.overwrite(spoiled.commit_log_offset, b"\0" * spoiled.size)
    return builder.write()


@OF_MESSAGES
@pytest.mark.spark
def test_a_damaged_range_is_named_and_the_rest_is_summarized(
    running_spark: Spark, store: Path, name: str
) -> None:
    outcome = outcome_of(running_spark, store, name)

    assert len(outcome.damages) == 1
    assert outcome.rows_read >= 70
    assert outcome.table.schema.equals(to_arrow_schema(REPORTS[name].schema, timezone="UTC"))
    if outcome.table.num_rows:
        assert sentence_of(name, outcome).endswith(".")


@OF_MESSAGES
@pytest.mark.spark
def test_an_idle_range_has_a_result_without_a_summary(
    running_spark: Spark, store: Path, name: str
) -> None:
    outcome = outcome_of(
        running_spark, store, name, from_ms=START_MS - 2 * DAY_MS, to_ms=START_MS - DAY_MS
    )

    answer = result_of(name, outcome)
    assert outcome.rows_read == 0
    assert outcome.table.num_rows == 0
    assert "finding" not in answer
    assert set(answer["totals"].values()) <= {"0"}


@ALL
def test_it_is_described_fully(name: str) -> None:
    report = REPORTS[name]

    assert report.find is not None
    assert report.chart is not None or report.bars is not None
    assert report.totals
    assert bool(report.samples) != bool(report.reads)
    # Reports on messages that only the broker has don't link to any.
    assert (report.behind is None) == (name in {"clients", "delays", "transactions"})
    assert report.parameters[0] == (SAMPLED_HOURS if report.samples else HOURS)
    assert (TOPIC in report.parameters[:2]) != (name == "clients")
    assert (COMPARE in report.parameters) != (name in {"lag", "topics", "changes"})
    columns = {column.name: TYPE_NAMES[column.type] for column in report.columns}
    if report.bars is not None:
        assert columns[report.bars.value] == "bigint"
        assert report.bars.by in columns


def test_a_store_without_configuration_files_has_no_facts() -> None:
    assert StoreFacts() == StoreFacts((), {})
