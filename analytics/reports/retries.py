"""The retries report: messages that consumers failed to process, and dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import top, total
from analytics.reports.report import (
    COMPARE,
    HOURS,
    JAVA,
    TOPIC,
    Behind,
    Breakdown,
    Chart,
    Column,
    Figure,
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

    from analytics.reports.report import Value

RETRY, DEAD = names.RETRY_GROUP_TOPIC_PREFIX, names.DLQ_GROUP_TOPIC_PREFIX


def by_group_and_time(messages: DataFrame, _: Mapping[str, Value], step_seconds: int) -> DataFrame:
    """MESSAGES -> RETRIES: one row for each group, original topic and time step.

    A record in a group's retry topic is a redelivery; a record in its dead-letter topic is a
    message that won't be retried. The original topic is null if it isn't recorded.
    """
    start = start_of_step(F.unix_seconds("store_timestamp"), step_seconds)
    is_retry, is_dead = F.col("topic").startswith(RETRY), F.col("topic").startswith(DEAD)
    group = F.when(is_retry, F.substring("topic", len(RETRY) + 1, names.GROUP_LENGTH_MAX))
    group = group.otherwise(F.substring("topic", len(DEAD) + 1, names.GROUP_LENGTH_MAX))
    found = (
        messages.where(is_retry | is_dead)
        .groupBy(
            group.alias("consumer_group"),
            F.col("properties")[names.PROPERTY_RETRY_TOPIC].alias("origin_topic"),
            start.alias("time"),
        )
        .agg(
            F.count_if(is_retry).alias("retries"),
            F.count_if(is_dead).alias("dead_letters"),
            F.max(F.col("reconsume_times").cast("bigint")).alias("reconsume_times"),
            F.count_distinct(F.when(is_retry, F.col("uniq_key"))).alias("retried_messages"),
        )
    )
    return found.select(*REPORT.schema.names)


def worst_group(table: pa.Table) -> Finding:
    """Return the finding on the group that failed most; dead letters outweigh any number of
    retries.
    """
    groups = table.group_by("consumer_group").aggregate(
        [("dead_letters", "sum"), ("retries", "sum")]
    )
    dead = total(table, "dead_letters")
    value = "dead_letters_sum" if dead else "retries_sum"
    first = top(groups, value, "consumer_group")
    figures = {
        "group": Figure(first["consumer_group"]),
        "dead": Figure(first["dead_letters_sum"], "messages"),
        "all": Figure(dead, "messages"),
        "retries": Figure(first["retries_sum"], "messages"),
    }
    if dead:
        return Finding(
            gettext_noop(
                "%(group)s has the most dead letters: %(dead)s of %(all)s, after %(retries)s "
                "retries in this time range."
            ),
            figures,
        )
    return Finding(
        gettext_noop(
            "No messages became dead letters. %(group)s retried most, with %(retries)s retries due."
        ),
        figures,
    )


REPORT = Report(
    name="retries",
    title=gettext_noop("Retries and dead letters"),
    question=gettext_noop(
        "Which groups fail to consume messages, from which topics, and which messages became "
        "dead letters?"
    ),
    parameters=(HOURS, TOPIC, COMPARE),
    reads=("topic", "store_timestamp", "reconsume_times", "uniq_key", "properties"),
    dead_letters=True,
    narrowed_by="origin_topic",
    transform=by_group_and_time,
    columns=(
        Column("consumer_group", StringType(), gettext_noop("Consumer group"), link="group"),
        Column("origin_topic", StringType(), gettext_noop("Original topic"), link="topic"),
        Column("time", TimestampType(), gettext_noop("From (UTC)")),
        Column("retries", LongType(), gettext_noop("Retries"), "messages"),
        Column("retried_messages", LongType(), gettext_noop("Messages retried"), "messages"),
        Column("dead_letters", LongType(), gettext_noop("Dead letters"), "messages"),
        Column("reconsume_times", LongType(), gettext_noop("Most attempts for one message")),
    ),
    sorted_by=("time", "dead_letters", "retries", "consumer_group", "origin_topic"),
    totals=(
        Total("retries", gettext_noop("Retries"), "sum", "retries", "messages"),
        Total("dead_letters", gettext_noop("Dead letters"), "sum", "dead_letters", "messages"),
        Total("groups", gettext_noop("Groups affected"), "distinct", "consumer_group"),
        Total(
            "reconsume_times",
            gettext_noop("Most attempts for one message"),
            "max",
            "reconsume_times",
        ),
    ),
    chart=Chart(
        gettext_noop("Retries by group"),
        time="time",
        value="retries",
        series="consumer_group",
        step_seconds=60,
    ),
    breakdown=Breakdown(
        gettext_noop("By group"), by="consumer_group", sums=("dead_letters", "retries")
    ),
    find=worst_group,
    behind=Behind(
        topic="consumer_group",
        first="time",
        prefixes={
            "retries": RETRY,
            "retried_messages": RETRY,
            "dead_letters": DEAD,
        },
    ),
    needs=(JAVA,),
)
