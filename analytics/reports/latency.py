"""The latency report: how long messages take from the client to the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import top, total
from analytics.reports.report import (
    JAVA,
    MESSAGE_PARAMETERS,
    Behind,
    Breakdown,
    Chart,
    Column,
    Figure,
    Finding,
    Parameter,
    Report,
    Total,
    gettext_noop,
    start_of_step,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from analytics.reports.report import Value

SLOW_MS_DEFAULT, SLOW_MS_MAX = 1_000, 86_400_000

SLOW = Parameter(
    name="slow",
    type="integer",
    label=gettext_noop("Slow from (ms)"),
    help=gettext_noop("Messages that take at least this long count as slow."),
    default=SLOW_MS_DEFAULT,
    minimum=1,
    maximum=SLOW_MS_MAX,
)


def by_topic_and_time(
    messages: DataFrame, parameters: Mapping[str, Value], step_seconds: int
) -> DataFrame:
    """MESSAGES -> LATENCY: one row for each topic and step of the store time.

    The latency is store_timestamp - born_timestamp; the latter is by the client's clock. A message
    from the future counts in `from_the_future` and in no percentile. Percentiles are values that
    occur (nearest rank).
    """
    slow = int(parameters.get(SLOW.name, SLOW_MS_DEFAULT))
    start = start_of_step(F.unix_seconds("store_timestamp"), step_seconds)
    latency = F.unix_millis("store_timestamp") - F.unix_millis("born_timestamp")
    found = (
        messages.where("born_timestamp IS NOT NULL")
        .select("topic", start.alias("time"), latency.alias("ms"))
        .select("*", F.when(F.col("ms") >= 0, F.col("ms")).alias("sound_ms"))
        .groupBy("topic", "time")
        .agg(
            F.count("sound_ms").alias("messages"),
            F.expr("percentile_disc(0.5) WITHIN GROUP (ORDER BY sound_ms)")
            .cast("bigint")
            .alias("p50_ms"),
            F.expr("percentile_disc(0.95) WITHIN GROUP (ORDER BY sound_ms)")
            .cast("bigint")
            .alias("p95_ms"),
            F.expr("percentile_disc(0.99) WITHIN GROUP (ORDER BY sound_ms)")
            .cast("bigint")
            .alias("p99_ms"),
            F.max("sound_ms").alias("max_ms"),
            F.count_if(F.col("ms") >= slow).alias("slow"),
            F.count_if(F.col("ms") < 0).alias("from_the_future"),
        )
    )
    return found.select(*REPORT.schema.names)


def slowest_topic(table: pa.Table) -> Finding:
    """Return the finding on slow messages, or on the largest latency."""
    slow, messages = total(table, "slow"), total(table, "messages")
    if slow:
        topics = table.group_by("topic").aggregate([("slow", "sum")])
        first = top(topics, "slow_sum", "topic")
        return Finding(
            gettext_noop(
                "%(slow)s of %(messages)s messages were slow to reach the log, %(part)s of "
                "them in %(topic)s."
            ),
            {
                "slow": Figure(slow, "messages"),
                "messages": Figure(messages, "messages"),
                "part": Figure(first["slow_sum"], "messages"),
                "topic": Figure(first["topic"]),
            },
        )
    last = top(table, "max_ms", "topic")
    return Finding(
        gettext_noop(
            "No messages were slow. The slowest took %(ms)s to reach the log, in %(topic)s."
        ),
        {"ms": Figure(last["max_ms"] or 0, "milliseconds"), "topic": Figure(last["topic"])},
    )


REPORT = Report(
    name="latency",
    title=gettext_noop("Ingestion latency"),
    question=gettext_noop("How long do messages take from the client until they're stored?"),
    parameters=(*MESSAGE_PARAMETERS, SLOW),
    reads=("topic", "store_timestamp", "born_timestamp"),
    transform=by_topic_and_time,
    columns=(
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("time", TimestampType(), gettext_noop("From (UTC)")),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("p50_ms", LongType(), gettext_noop("Median"), "milliseconds"),
        Column("p95_ms", LongType(), gettext_noop("p95"), "milliseconds"),
        Column("p99_ms", LongType(), gettext_noop("p99"), "milliseconds"),
        Column("max_ms", LongType(), gettext_noop("Longest wait"), "milliseconds"),
        Column("slow", LongType(), gettext_noop("Slow"), "messages"),
        Column("from_the_future", LongType(), gettext_noop("Negative latency"), "messages"),
    ),
    sorted_by=("time", "topic"),
    totals=(
        Total("messages", gettext_noop("Messages"), "sum", "messages", "messages"),
        Total("slow", gettext_noop("Slow"), "sum", "slow", "messages"),
        Total("max_ms", gettext_noop("Longest wait"), "max", "max_ms", "milliseconds"),
        Total(
            "from_the_future",
            gettext_noop("Negative latency"),
            "sum",
            "from_the_future",
            "messages",
            gettext_noop("the client's clock was ahead"),
        ),
    ),
    chart=Chart(
        gettext_noop("Slow messages by topic"),
        time="time",
        value="slow",
        series="topic",
        step_seconds=60,
    ),
    breakdown=Breakdown(gettext_noop("By topic"), by="topic", sums=("slow", "messages")),
    find=slowest_topic,
    needs=(JAVA,),
    behind=Behind(first="time"),
)
