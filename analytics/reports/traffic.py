"""The traffic report: messages and bytes stored, by topic and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import largest
from analytics.reports.report import (
    JAVA,
    MESSAGE_PARAMETERS,
    Behind,
    Breakdown,
    Chart,
    Column,
    Finding,
    Report,
    Total,
    counted,
    gettext_noop,
    start_of_step,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from analytics.reports.report import Value


def by_topic_and_time(messages: DataFrame, _: Mapping[str, Value], step_seconds: int) -> DataFrame:
    """MESSAGES -> TRAFFIC: one row for each topic and time step with messages.

    Steps are counted from the epoch, in UTC.
    """
    start = start_of_step(F.unix_seconds("store_timestamp"), step_seconds)
    traffic = (
        counted(messages)
        .groupBy("topic", start.alias("time"))
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("store_size").alias("bytes"),
        )
    )
    return traffic.select("topic", "time", "messages", "bytes")


def busiest_topic(table: pa.Table) -> Finding:
    """Return the finding on the topic with most messages."""
    return largest(
        table,
        "topic",
        "messages",
        gettext_noop("%(name)s stored the most: %(part)s of %(all)s messages (%(share)s)."),
    )


REPORT = Report(
    name="traffic",
    title=gettext_noop("Traffic by topic and time"),
    question=gettext_noop("How many messages and bytes did each topic store, and when?"),
    parameters=MESSAGE_PARAMETERS,
    reads=("topic", "store_timestamp", "store_size"),
    transform=by_topic_and_time,
    columns=(
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("time", TimestampType(), gettext_noop("From (UTC)")),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("bytes", LongType(), gettext_noop("Bytes"), "bytes"),
    ),
    sorted_by=("time", "topic"),
    totals=(
        Total(
            name="messages",
            label=gettext_noop("Messages"),
            how="sum",
            column="messages",
            unit="messages",
            note=gettext_noop("stored in this time range"),
        ),
        Total(
            name="bytes",
            label=gettext_noop("Bytes"),
            how="sum",
            column="bytes",
            unit="bytes",
            note=gettext_noop("of log records"),
        ),
        Total(
            name="topics",
            label=gettext_noop("Topics"),
            how="distinct",
            column="topic",
            note=gettext_noop("with at least one message"),
        ),
        Total(
            name="rows",
            label=gettext_noop("Rows"),
            how="rows",
            note=gettext_noop("one per topic and time step"),
        ),
    ),
    chart=Chart(
        label=gettext_noop("Messages by topic"),
        time="time",
        value="messages",
        series="topic",
        step_seconds=60,
    ),
    find=busiest_topic,
    gold="gold.traffic_minute",
    breakdown=Breakdown(gettext_noop("By topic"), by="topic", sums=("messages", "bytes")),
    needs=(JAVA,),
    behind=Behind(first="time"),
    grouped_by=("topic", "store_timestamp"),
)
