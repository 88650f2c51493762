"""Counts of the messages that a source read, in the metrics that Spark reports.

    frame = spark.readStream.format("rocketmq").schema(with_damage).options(...).load()
    observed(frame, "orders").writeStream...
    query.lastProgress.observedMetrics["orders"]    Row(messages=1200, damaged_ranges=1)

Spark doesn't support metrics for Python sources. It does count observations of a frame, exactly
once for each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation

from analytics.errors import ReportError
from analytics.schemas import DAMAGE_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

MESSAGES_METRIC, DAMAGED_METRIC = "messages", "damaged_ranges"


def observed(frame: DataFrame, observation: Observation | str) -> DataFrame:
    """Return a source's frame without its column `damage`; count its messages and damaged ranges.

    Observe a stream with a name, a frame with an Observation.

    Raises:
        ReportError: the frame has no column `damage`.
    """
    if DAMAGE_COLUMN not in frame.columns:
        raise ReportError(
            f"The frame can't be observed because it has no column {DAMAGE_COLUMN}. Read it with "
            "messages_with(columns, damage=True)."
        )
    is_message = F.col(DAMAGE_COLUMN).isNull()
    counting = frame.observe(
        observation,
        F.count_if(is_message).alias(MESSAGES_METRIC),
        F.count_if(~is_message).alias(DAMAGED_METRIC),
    )
    return counting.where(is_message).drop(DAMAGE_COLUMN)
