"""The duplicates report: messages that were stored more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import Window, functions as F  # noqa: N812 - as in Spark's own documentation
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

# As in the keys report, a table shows only the beginning of a value.
KEY_CHARS_MAX = 200
ROWS_MAX = 10_000
SENT_AGAIN, SAME_KEY = "uniq_key", "key"


def repeated_messages(messages: DataFrame, _: Mapping[str, Value], _step: int) -> DataFrame:
    """MESSAGES -> DUPLICATES: one row for each topic and UNIQ_KEY, or KEYS text, that repeats.

    A repeated UNIQ_KEY is one message that a client sent again. Repeated KEYS with several
    UNIQ_KEYs are several messages about the same thing, which can be intended. In RocketMQ 5, the
    messages of a batch share one UNIQ_KEY: they have the same birth time, store time and queue, and
    count as one send. Retries and dead letters, which the broker stores itself, are left out.

    The ROWS_MAX most frequent of each kind get their own rows. The others of a topic share a row
    without a value, so that sums are complete.
    """
    own = F.col("topic").startswith(names.RETRY_GROUP_TOPIC_PREFIX) | F.col("topic").startswith(
        names.DLQ_GROUP_TOPIC_PREFIX
    )
    sent = messages.where(~own)
    found = _sent_again(sent).unionByName(_same_keys(sent))
    most = Window.partitionBy("kind").orderBy(F.desc("messages"), "topic", "value")
    ranked = found.withColumn("place", F.row_number().over(most))
    apart = F.unix_millis("last_stored") - F.unix_millis("first_stored")
    rows = ranked.groupBy(
        "kind", "topic", F.when(F.col("place") <= ROWS_MAX, F.col("value")).alias("value")
    ).agg(
        F.count(F.lit(1)).alias("keys"),
        F.sum("messages").alias("messages"),
        F.sum("extra").alias("extra"),
        F.max("messages").alias("most"),
        F.max(apart).alias("apart_ms"),
        F.min("first_stored").alias("first_stored"),
        F.max("last_stored").alias("last_stored"),
    )
    shown = rows.withColumn("value", F.substring("value", 1, KEY_CHARS_MAX))
    return shown.select(*REPORT.schema.names)


def _sent_again(sent: DataFrame) -> DataFrame:
    """Return the UNIQ_KEYs that have more messages than their largest send."""
    sendings = (
        sent.where("uniq_key IS NOT NULL AND uniq_key != ''")
        .groupBy("topic", "uniq_key", "queue_id", "born_timestamp", "store_timestamp")
        .agg(F.count(F.lit(1)).alias("number"))
    )
    found = sendings.groupBy("topic", F.col("uniq_key").alias("value")).agg(
        F.sum("number").alias("messages"),
        (F.sum("number") - F.max("number")).alias("extra"),
        F.min("store_timestamp").alias("first_stored"),
        F.max("store_timestamp").alias("last_stored"),
    )
    return found.where("extra > 0").withColumn("kind", F.lit(SENT_AGAIN))


def _same_keys(sent: DataFrame) -> DataFrame:
    """Return the KEYS texts of several messages that aren't repeats of one message."""
    found = (
        sent.withColumn("value", F.concat_ws(" ", "keys"))
        .where("value != ''")
        .groupBy("topic", "value")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            # Null UNIQ_KEYs aren't counted.
            F.count_distinct("uniq_key").alias("different"),
            F.min("store_timestamp").alias("first_stored"),
            F.max("store_timestamp").alias("last_stored"),
        )
        .where("messages > 1 AND different != 1")
    )
    return found.select(
        *("topic", "value", "messages", "first_stored", "last_stored"),
        (F.col("messages") - 1).alias("extra"),
        F.lit(SAME_KEY).alias("kind"),
    )


def repeats_finding(table: pa.Table) -> Finding:
    """Return the finding on repeated sends, or on repeated KEYS if no message was sent again."""
    rows = table.filter(pc.equal(table["kind"], SENT_AGAIN))
    if rows.num_rows:
        topics = rows.group_by("topic").aggregate([("extra", "sum")])
        first = top(topics, "extra_sum", "topic")
        return Finding(
            gettext_noop(
                "%(extra)s messages are stored as duplicates, %(part)s of them in %(topic)s. "
                "Consumers must be idempotent."
            ),
            {
                "extra": Figure(total(rows, "extra"), "messages"),
                "part": Figure(first["extra_sum"], "messages"),
                "topic": Figure(first["topic"]),
            },
        )
    first = top(table.filter(pc.is_valid(table["value"])), "messages", "topic", "value")
    return Finding(
        gettext_noop(
            "No messages were sent twice. The most frequent keys, %(key)s in %(topic)s, occur "
            "in %(messages)s messages."
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
    reads=("topic", "uniq_key", "keys", "queue_id", "born_timestamp", "store_timestamp"),
    transform=repeated_messages,
    columns=(
        Column(
            "kind",
            StringType(),
            gettext_noop("Match by"),
            words={SENT_AGAIN: "UNIQ_KEY", SAME_KEY: "KEYS"},
        ),
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column(
            "value",
            StringType(),
            gettext_noop("Key"),
            missing=gettext_noop("all other keys"),
            from_messages_of="topic",
        ),
        Column("keys", LongType(), gettext_noop("Keys")),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("extra", LongType(), gettext_noop("Duplicates"), "messages"),
        Column("most", LongType(), gettext_noop("Most per key"), "messages", is_shown=False),
        Column("apart_ms", LongType(), gettext_noop("First to last"), "milliseconds"),
        Column("first_stored", TimestampType(), gettext_noop("First (UTC)")),
        Column("last_stored", TimestampType(), gettext_noop("Last (UTC)")),
    ),
    sorted_by=("messages", "kind", "topic", "value"),
    totals=(
        Total("repeated", gettext_noop("Repeated keys"), "sum", "keys"),
        Total("extra", gettext_noop("Duplicates"), "sum", "extra", "messages"),
        Total("worst", gettext_noop("Most per key"), "max", "most", "messages"),
        Total("topics", gettext_noop("Topics"), "distinct", "topic"),
    ),
    bars=Bars(gettext_noop("Duplicates by topic"), by="topic", value="extra"),
    breakdown=Breakdown(gettext_noop("By match"), by="kind", sums=("extra", "messages")),
    find=repeats_finding,
    needs=(JAVA,),
    behind=Behind(first="first_stored", last="last_stored"),
)
