"""Traffic: how much was stored, by topic and minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("topic", "store_timestamp", "store_size")


def per_minute(messages: DataFrame) -> DataFrame:
    """MESSAGES -> TRAFFIC: one row for each topic and UTC minute in which something was stored."""
    minute = F.date_trunc("minute", "store_timestamp").alias("minute")
    traffic = messages.groupBy("topic", minute).agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("store_size").alias("bytes"),
    )
    return traffic.select("topic", "minute", "messages", "bytes")
