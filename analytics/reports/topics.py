"""The topics report: which topics are empty, unread or idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import total
from analytics.reports.report import (
    HOURS,
    JAVA,
    TOPIC,
    Bars,
    Behind,
    Breakdown,
    Column,
    Figure,
    Finding,
    Parameter,
    Report,
    Total,
    gettext_noop,
)
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from analytics.facts import StoreFacts
    from analytics.reports.report import Value

IDLE_DEFAULT, IDLE_MAX = 72, 24 * 366
EMPTY, UNREAD, IDLE, USED = "empty", "unread", "idle", "in use"

IDLE_HOURS = Parameter(
    name="idle",
    type="integer",
    label=gettext_noop("Idle after (hours)"),
    help=gettext_noop("Topics whose last message is at least this old count as idle."),
    default=IDLE_DEFAULT,
    minimum=1,
    maximum=IDLE_MAX,
)


def with_every_topic(messages: DataFrame, facts: StoreFacts) -> DataFrame:
    """Add a row without a message for each configured topic, and the number of groups per topic.

    A group counts for a topic if it has an offset in it. Internal topics, retries and dead letters
    are left out.
    """
    session = messages.sparkSession
    readers: dict[str, set[str]] = {}
    for offset in facts.offsets:
        readers.setdefault(offset.topic, set()).add(offset.consumer_group)
    wanted = [(topic,) for topic in facts.topics if not is_brokers_own(topic)]
    every = session.createDataFrame(wanted, "topic string")
    groups = session.createDataFrame(
        [(topic, len(of)) for topic, of in readers.items()], "topic string, groups bigint"
    )
    stored = messages.where(
        ~F.col("topic").startswith(names.RETRY_GROUP_TOPIC_PREFIX)
        & ~F.col("topic").startswith(names.DLQ_GROUP_TOPIC_PREFIX)
    ).select("topic", "store_timestamp", "store_size")
    both = stored.unionByName(every, allowMissingColumns=True)
    return both.join(F.broadcast(groups), "topic", "left")


def is_brokers_own(topic: str) -> bool:
    """Return whether a topic is internal to the broker, or a group's retry or dead-letter topic."""
    return names.is_system_topic(topic) or names.is_retry_topic(topic) or names.is_dlq_topic(topic)


def by_topic(rows: DataFrame, parameters: Mapping[str, Value], _step: int) -> DataFrame:
    """MESSAGES and topics -> TOPICS: one row for each topic, with the first state that applies."""
    idle_s = int(parameters.get(IDLE_HOURS.name, IDLE_DEFAULT)) * 3_600
    topics = rows.groupBy("topic").agg(
        F.count("store_timestamp").alias("messages"),
        F.coalesce(F.sum(F.col("store_size").cast("bigint")), F.lit(0)).alias("bytes"),
        F.max("store_timestamp").alias("last_stored"),
        F.coalesce(F.max("groups"), F.lit(0)).alias("groups"),
    )
    wanted = parameters.get("topic")
    if wanted is not None:
        topics = topics.where(F.col("topic") == str(wanted))
    age_s = F.unix_seconds(F.current_timestamp()) - F.unix_seconds("last_stored")
    state = (
        F.when(F.col("messages") == 0, EMPTY)
        .when(F.col("groups") == 0, UNREAD)
        .when(age_s >= idle_s, IDLE)
        .otherwise(USED)
    )
    found = topics.select("*", state.alias("state"), F.lit(1).cast("bigint").alias("topics"))
    return found.select(*REPORT.schema.names)


def cleanup_finding(table: pa.Table) -> Finding:
    """Return the finding on how many topics seem unused, and their size."""
    rows = table.to_pylist()
    count = {state: sum(row["state"] == state for row in rows) for state in (EMPTY, UNREAD, IDLE)}
    return Finding(
        gettext_noop(
            "Of %(topics)s topics, %(empty)s are empty, %(unread)s aren't read by any group "
            "and %(idle)s are idle. Topics without groups hold %(bytes)s of %(all)s."
        ),
        {
            "topics": Figure(len(rows), "messages"),
            **{state: Figure(number, "messages") for state, number in count.items()},
            "bytes": Figure(sum(row["bytes"] for row in rows if row["state"] == UNREAD), "bytes"),
            "all": Figure(total(table, "bytes"), "bytes"),
        },
    )


REPORT = Report(
    name="topics",
    title=gettext_noop("Empty, unread and idle topics"),
    question=gettext_noop("Which topics might no longer be needed?"),
    parameters=(HOURS, TOPIC, IDLE_HOURS),
    reads=("topic", "store_timestamp", "store_size"),
    prepare=with_every_topic,
    transform=by_topic,
    columns=(
        Column(
            "state",
            StringType(),
            gettext_noop("State"),
            words={
                EMPTY: gettext_noop("empty"),
                UNREAD: gettext_noop("not read by any group"),
                IDLE: gettext_noop("idle"),
                USED: gettext_noop("in use"),
            },
        ),
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("bytes", LongType(), gettext_noop("Bytes"), "bytes"),
        Column("last_stored", TimestampType(), gettext_noop("Last (UTC)")),
        Column("groups", LongType(), gettext_noop("Groups reading it")),
        Column("topics", LongType(), gettext_noop("Topics")),
    ),
    sorted_by=("state", "bytes", "topic"),
    totals=(
        Total("topics", gettext_noop("Topics"), "rows"),
        Total("bytes", gettext_noop("Bytes"), "sum", "bytes", "bytes"),
        Total("messages", gettext_noop("Messages"), "sum", "messages", "messages"),
    ),
    bars=Bars(gettext_noop("Topics by state"), by="state", value="topics"),
    breakdown=Breakdown(gettext_noop("By state"), by="state", sums=("topics", "bytes")),
    find=cleanup_finding,
    behind=Behind(),
    needs=(JAVA,),
)
