from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from analytics.schemas import TRAFFIC
from analytics.transforms import traffic

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
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_messages_and_bytes_are_summed_by_topic_and_minute(spark: SparkSession) -> None:
    rows = [
        ("orders", NOON, 100),
        ("orders", NOON + timedelta(milliseconds=59_999), 200),
        ("orders", NOON + timedelta(minutes=1), 50),
        ("bills", NOON, 2**31 - 1),
        ("bills", NOON, 2**31 - 1),
    ]

    found = traffic.per_minute(spark.createDataFrame(rows, READ))

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


def test_nothing_stored_is_no_row(spark: SparkSession) -> None:
    assert traffic.per_minute(spark.createDataFrame([], READ)).count() == 0
