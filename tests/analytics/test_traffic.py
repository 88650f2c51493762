from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from analytics.reports import traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

READ = StructType(
    [
        StructField("topic", StringType()),
        StructField("store_timestamp", TimestampType()),
        StructField("store_size", IntegerType()),
    ]
)
TRAFFIC = traffic.REPORT.schema
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_messages_and_bytes_are_summed_by_topic_and_time_step(spark: SparkSession) -> None:
    rows = [
        ("orders", NOON, 100),
        ("orders", NOON + timedelta(milliseconds=59_999), 200),
        ("orders", NOON + timedelta(minutes=1), 50),
        ("bills", NOON, 2**31 - 1),
        ("bills", NOON, 2**31 - 1),
    ]

    found = traffic.by_topic_and_time(spark.createDataFrame(rows, READ), {}, 60)

    assertSchemaEqual(found.schema, TRAFFIC, ignoreNullable=True)
    assertDataFrameEqual(
        found,
        spark.createDataFrame(
            [
                ("orders", NOON, 2, 300),
                ("orders", NOON + timedelta(minutes=1), 1, 50),
                ("bills", NOON, 2, 2 * (2**31 - 1)),
            ],
            TRAFFIC,
        ),
        ignoreNullable=True,
    )


@pytest.mark.parametrize(("step_s", "start"), [(600, NOON), (86_400, NOON - timedelta(hours=12))])
def test_a_longer_step_covers_more(spark: SparkSession, step_s: int, start: datetime) -> None:
    rows = [("orders", NOON + timedelta(seconds=each), 10) for each in (0, 61, 599)]

    found = traffic.by_topic_and_time(spark.createDataFrame(rows, READ), {}, step_s)

    expected = spark.createDataFrame([("orders", start, 3, 30)], TRAFFIC)
    assertDataFrameEqual(found, expected, ignoreNullable=True)


def test_storing_nothing_creates_no_row(spark: SparkSession) -> None:
    found = traffic.by_topic_and_time(spark.createDataFrame([], READ), {}, 60)

    assert found.count() == 0
