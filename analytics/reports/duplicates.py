"""The duplicates report: messages that were stored more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import top, total
from analytics.reports.report import (
    JAVA,
    MESSAGE_PARAMETERS,
    Bars,
    Behind,
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

# As of keys: a table shows the beginning.
KEY_CHARS_MAX = 200
ROWS_MAX = 10_000
SENT_AGAIN, SAME_KEY = "uniq_key", "key"


def more_than_once(messages: DataFrame, _: Mapping[str, Value], _step: int) -> DataFrame:
    """MESSAGES -> DUPLICATES: one row for each topic and UNIQ_KEY, or KEYS text, that repeats.

    The same UNIQ_KEY twice is one message that a client sent again; the same KEYS under several
    UNIQ_KEYs are several messages about one thing, which may be meant. What the broker itself
    puts again, retries and dead letters, is left out. The ROWS_MAX most frequent rows are kept.
    """
    own = F.col("topic").startswith(names.RETRY_GROUP_TOPIC_PREFIX) | F.col("topic").startswith(
        names.DLQ_GROUP_TOPIC_PREFIX
    )
    identities = F.array(
        F.struct(F.lit(SENT_AGAIN).alias("kind"), F.col("uniq_key").alias("value")),
        F.struct(F.lit(SAME_KEY).alias("kind"), F.concat_ws(" ", "keys").alias("value")),
    )
    one_each = messages.where(~own).select(
        "topic", "uniq_key", "store_timestamp", F.explode(identities).alias("identity")
    )
    counted = (
        one_each.where("identity.value IS NOT NULL AND identity.value != ''")
        .groupBy("topic", "identity.kind", "identity.value")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            # A message without UNIQ_KEY is told from none.
            F.count_distinct("uniq_key").alias("different"),
            F.min("store_timestamp").alias("first_stored"),
            F.max("store_timestamp").alias("last_stored"),
        )
        .where("messages > 1 AND (kind = 'uniq_key' OR different != 1)")
    )
    first = counted.orderBy(F.desc("messages"), "kind", "topic", "value").limit(ROWS_MAX)
    return first.select(
        "kind",
        "topic",
        F.substring("value", 1, KEY_CHARS_MAX).alias("value"),
        "messages",
        F.expr("messages - 1").alias("extra"),
        F.expr("unix_millis(last_stored) - unix_millis(first_stored)").alias("apart_ms"),
        "first_stored",
        "last_stored",
    )


def what_repeats(table: pa.Table) -> Finding:
    """Say how much was sent again, and where most; the same KEYS only when nothing was."""
    rows = table.filter(pc.equal(table["kind"], SENT_AGAIN))
    if rows.num_rows:
        topics = rows.group_by("topic").aggregate([("extra", "sum")])
        first = top(topics, "extra_sum", "topic")
        return Finding(
            gettext_noop(
                "%(extra)s messages are stored once more than they were meant, %(part)s of them "
                "in %(topic)s: consumers must be idempotent."
            ),
            {
                "extra": Figure(total(rows, "extra"), "messages"),
                "part": Figure(first["extra_sum"], "messages"),
                "topic": Figure(first["topic"]),
            },
        )
    first = top(table, "messages", "topic", "value")
    return Finding(
        gettext_noop(
            "No message was sent again. The keys %(key)s of %(topic)s occur most: %(messages)s "
            "messages."
        ),
        {
            "key": Figure(first["value"]),
            "topic": Figure(first["topic"]),
            "messages": Figure(first["messages"], "messages"),
        },
    )


REPORT = Report(
    name="duplicates",
    title=gettext_noop("Duplicates"),
    question=gettext_noop("Which messages were stored more than once, by UNIQ_KEY and by KEYS?"),
    parameters=MESSAGE_PARAMETERS,
    reads=("topic", "uniq_key", "keys", "store_timestamp"),
    transform=more_than_once,
    columns=(
        Column("kind", StringType(), gettext_noop("Same")),
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("value", StringType(), gettext_noop("Key"), from_messages_of="topic"),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("extra", LongType(), gettext_noop("More than one"), "messages"),
        Column("apart_ms", LongType(), gettext_noop("First to last"), "milliseconds"),
        Column("first_stored", TimestampType(), gettext_noop("First (UTC)")),
        Column("last_stored", TimestampType(), gettext_noop("Last (UTC)")),
    ),
    sorted_by=("messages", "kind", "topic", "value"),
    totals=(
        Total("repeated", gettext_noop("Keys that repeat"), "rows"),
        Total("extra", gettext_noop("More than one"), "sum", "extra", "messages"),
        Total("worst", gettext_noop("Most of one key"), "max", "messages", "messages"),
        Total("topics", gettext_noop("Topics"), "distinct", "topic"),
    ),
    bars=Bars(gettext_noop("More than one, by topic"), by="topic", value="extra"),
    breakdown=Breakdown(gettext_noop("By kind"), by="kind", sums=("extra", "messages")),
    find=what_repeats,
    needs=(JAVA,),
    behind=Behind(first="first_stored", last="last_stored"),
)
