"""The delays report: whether delayed messages and retries were delivered on time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType

from analytics.reports.findings import top, total
from analytics.reports.report import (
    JAVA,
    MESSAGE_PARAMETERS,
    Bars,
    Breakdown,
    Column,
    Figure,
    Finding,
    Report,
    Total,
    gettext_noop,
)
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from analytics.reports.report import Value

PARKED = names.RMQ_SYS_SCHEDULE_TOPIC


def by_level_and_topic(messages: DataFrame, _: Mapping[str, Value], _step: int) -> DataFrame:
    """MESSAGES with internal ones -> DELAYS: one row for each delay level and real topic.

    A message waits as a record of SCHEDULE_TOPIC_XXXX and is delivered as a record of its real
    topic, with the same UNIQ_KEY and the same number of tries. The wait is the time between both.
    The queue that it waits in identifies its level. The log doesn't have the duration of a level
    (the broker's messageDelayLevel), so lateness is how much longer a message waited than the
    shortest wait of its level.
    """
    is_parked = F.col("topic") == PARKED
    real_topic = F.col("properties")[names.PROPERTY_REAL_TOPIC]
    waits = (
        messages.where(real_topic.isNotNull() & F.col("uniq_key").isNotNull())
        .where(F.col("topic") != names.RMQ_SYS_TRANS_HALF_TOPIC)
        .groupBy(real_topic.alias("topic"), "uniq_key", "reconsume_times")
        .agg(
            F.min(F.when(is_parked, F.col("queue_id") + 1)).alias("level"),
            F.min(F.when(is_parked, F.unix_millis("store_timestamp"))).alias("parked_ms"),
            F.min(F.when(~is_parked, F.unix_millis("store_timestamp"))).alias("came_ms"),
        )
        .where("level IS NOT NULL")
        .withColumn("wait_ms", F.expr("came_ms - parked_ms"))
    )
    found = waits.groupBy("level", "topic").agg(
        F.count(F.lit(1)).alias("delayed"),
        F.count("wait_ms").alias("delivered"),
        F.min("wait_ms").alias("shortest_ms"),
        F.expr("percentile_disc(0.5) WITHIN GROUP (ORDER BY wait_ms)")
        .cast("bigint")
        .alias("p50_ms"),
        F.expr("percentile_disc(0.95) WITHIN GROUP (ORDER BY wait_ms)")
        .cast("bigint")
        .alias("p95_ms"),
        F.max("wait_ms").alias("longest_ms"),
    )
    return found.select(
        F.col("level").cast("bigint").alias("level"),
        *("topic", "delayed", "delivered"),
        F.expr("delayed - delivered").alias("waiting"),
        *("shortest_ms", "p50_ms", "p95_ms", "longest_ms"),
        F.expr("longest_ms - shortest_ms").alias("spread_ms"),
    )


def least_punctual(table: pa.Table) -> Finding:
    """Return the finding on the largest spread of waits in a level, or on waiting messages."""
    first = top(table, "spread_ms", "level", "topic")
    if first["spread_ms"] is None:
        return Finding(
            gettext_noop(
                "%(waiting)s delayed messages are waiting. None were delivered in this time range."
            ),
            {"waiting": Figure(total(table, "waiting"), "messages")},
        )
    return Finding(
        gettext_noop(
            "Level %(level)s of %(topic)s has the largest spread of waiting times: "
            "%(shortest)s to %(longest)s. %(waiting)s delayed messages are still waiting."
        ),
        {
            "level": Figure(str(first["level"])),
            "topic": Figure(first["topic"]),
            "shortest": Figure(first["shortest_ms"], "milliseconds"),
            "longest": Figure(first["longest_ms"], "milliseconds"),
            "waiting": Figure(total(table, "waiting"), "messages"),
        },
    )


REPORT = Report(
    name="delays",
    title=gettext_noop("Delayed messages"),
    question=gettext_noop(
        "How long did delayed messages wait, by level, and which are still waiting?"
    ),
    parameters=MESSAGE_PARAMETERS,
    reads=("topic", "queue_id", "store_timestamp", "reconsume_times", "uniq_key", "properties"),
    system_topics=True,
    narrowed_by="topic",
    transform=by_level_and_topic,
    columns=(
        Column("level", LongType(), gettext_noop("Delay level")),
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("delayed", LongType(), gettext_noop("Delayed"), "messages"),
        Column("delivered", LongType(), gettext_noop("Delivered"), "messages"),
        Column("waiting", LongType(), gettext_noop("Still waiting"), "messages"),
        Column("shortest_ms", LongType(), gettext_noop("Shortest wait"), "milliseconds"),
        Column("p50_ms", LongType(), gettext_noop("Median"), "milliseconds"),
        Column("p95_ms", LongType(), gettext_noop("p95"), "milliseconds"),
        Column("longest_ms", LongType(), gettext_noop("Longest wait"), "milliseconds"),
        Column("spread_ms", LongType(), gettext_noop("Spread"), "milliseconds"),
    ),
    sorted_by=("level", "delayed", "topic"),
    totals=(
        Total("delayed", gettext_noop("Delayed"), "sum", "delayed", "messages"),
        Total("delivered", gettext_noop("Delivered"), "sum", "delivered", "messages"),
        Total("waiting", gettext_noop("Still waiting"), "sum", "waiting", "messages"),
        Total("spread_ms", gettext_noop("Largest spread"), "max", "spread_ms", "milliseconds"),
    ),
    bars=Bars(gettext_noop("Delayed messages by level"), by="level", value="delayed", ranked=False),
    breakdown=Breakdown(gettext_noop("By topic"), by="topic", sums=("delayed", "waiting")),
    find=least_punctual,
    needs=(JAVA,),
)
