"""The lag report: the messages that each group hasn't read yet, and when they were stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import largest
from analytics.reports.report import (
    HOURS,
    JAVA,
    TOPIC,
    Behind,
    Breakdown,
    Chart,
    Column,
    Finding,
    Report,
    Total,
    gettext_noop,
    start_of_step,
)
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from analytics.facts import StoreFacts
    from analytics.reports.report import Value

OFFSETS = "consumer_group string, topic string, queue_id int, next_offset bigint"


def unread(messages: DataFrame, facts: StoreFacts) -> DataFrame:
    """Return each message once for each group that has an offset in its queue and hasn't read it.

    A group that never committed an offset for a queue has no row, because the store doesn't record
    whether it subscribes to the queue.
    """
    rows = [
        (offset.consumer_group, offset.topic, offset.queue_id, offset.queue_offset)
        for offset in facts.offsets
        if not offset.consumer_group.startswith(names.CID_RMQ_SYS_PREFIX)
        and offset.consumer_group not in names.SYSTEM_GROUPS
    ]
    offsets = messages.sparkSession.createDataFrame(rows, OFFSETS)
    joined = messages.join(F.broadcast(offsets), ["topic", "queue_id"], "inner")
    return joined.where("queue_offset >= next_offset").select(
        "consumer_group", "topic", "queue_id", "store_timestamp", "store_size"
    )


def by_group_and_time(
    unread_messages: DataFrame, _: Mapping[str, Value], step_seconds: int
) -> DataFrame:
    """UNREAD -> LAG: one row for each group, topic and step of the store time."""
    start = start_of_step(F.unix_seconds("store_timestamp"), step_seconds)
    found = unread_messages.groupBy("consumer_group", "topic", start.alias("time")).agg(
        F.count(F.lit(1)).alias("unread"),
        F.sum(F.col("store_size").cast("bigint")).alias("bytes"),
        F.count_distinct("queue_id").alias("queues"),
        F.min("store_timestamp").alias("oldest"),
    )
    return found.select(*REPORT.schema.names)


def longest_backlog(table: pa.Table) -> Finding:
    """Return the finding on the group with the most unread messages."""
    return largest(
        table,
        "consumer_group",
        "unread",
        gettext_noop(
            "%(name)s is furthest behind: it accounts for %(part)s of %(all)s unread messages "
            "(%(share)s)."
        ),
        "messages",
    )


REPORT = Report(
    name="lag",
    title=gettext_noop("Unread messages"),
    question=gettext_noop(
        "Which messages are still unread by each group, and how long have they been waiting?"
    ),
    parameters=(HOURS, TOPIC),
    reads=("topic", "queue_id", "queue_offset", "store_timestamp", "store_size"),
    prepare=unread,
    transform=by_group_and_time,
    columns=(
        Column("consumer_group", StringType(), gettext_noop("Consumer group"), link="group"),
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("time", TimestampType(), gettext_noop("Stored from (UTC)")),
        Column("unread", LongType(), gettext_noop("Unread"), "messages"),
        Column("bytes", LongType(), gettext_noop("Bytes"), "bytes"),
        Column("queues", LongType(), gettext_noop("Queues")),
        Column("oldest", TimestampType(), gettext_noop("Oldest (UTC)")),
    ),
    sorted_by=("time", "unread", "consumer_group", "topic"),
    totals=(
        Total(
            "unread",
            gettext_noop("Unread"),
            "sum",
            "unread",
            "messages",
            gettext_noop("counted once for each group that hasn't read it"),
        ),
        Total("bytes", gettext_noop("Bytes"), "sum", "bytes", "bytes"),
        Total("groups", gettext_noop("Groups behind"), "distinct", "consumer_group"),
        Total("topics", gettext_noop("Topics"), "distinct", "topic"),
    ),
    chart=Chart(
        gettext_noop("Unread messages by group, at the time they were stored"),
        time="time",
        value="unread",
        series="consumer_group",
        step_seconds=60,
    ),
    breakdown=Breakdown(gettext_noop("By group"), by="consumer_group", sums=("unread", "bytes")),
    find=longest_backlog,
    needs=(JAVA,),
    behind=Behind(first="time"),
)
