"""The keys report: the most frequent keys, and their share of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window, functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import top
from analytics.reports.report import (
    JAVA,
    MESSAGE_PARAMETERS,
    Bars,
    Behind,
    Column,
    Figure,
    Finding,
    Parameter,
    Report,
    Total,
    gettext_noop,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from analytics.reports.report import Value

KEYS_DEFAULT, KEYS_MAX = 100, 10_000
# A key may be as long as the properties, 32 767 bytes; a table shows only its beginning.
KEY_CHARS_MAX = 200

KEYS = Parameter(
    name="keys",
    type="integer",
    label=gettext_noop("Number of keys"),
    help=gettext_noop("The most frequent keys across all topics."),
    default=KEYS_DEFAULT,
    minimum=1,
    maximum=KEYS_MAX,
)


def most_frequent(messages: DataFrame, parameters: Mapping[str, Value], _step: int) -> DataFrame:
    """MESSAGES -> KEYS: the most frequent pairs of topic and key.

    A message with several keys counts once for each distinct key. Keys are compared in full, and
    shown up to KEY_CHARS_MAX characters.
    """
    topic = Window.partitionBy("topic")
    one_each = messages.select(
        "topic",
        "store_timestamp",
        F.col("body_size").cast("bigint").alias("body_size"),
        F.explode(F.array_distinct("keys")).alias("key"),
    )
    counted = one_each.groupBy("topic", "key").agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("body_size").alias("body_bytes"),
        F.min("store_timestamp").alias("first_stored"),
        F.max("store_timestamp").alias("last_stored"),
    )
    shared = counted.select(
        "*",
        F.count(F.lit(1)).over(topic).alias("keys_of_topic"),
        F.sum("messages").over(topic).alias("of_topic"),
    )
    first = shared.orderBy(F.desc("messages"), "topic", "key").limit(
        int(parameters.get(KEYS.name, KEYS_DEFAULT))
    )
    return first.select(
        "topic",
        F.substring("key", 1, KEY_CHARS_MAX).alias("key"),
        "messages",
        "body_bytes",
        F.expr("messages * 1000 div of_topic").alias("share"),
        "keys_of_topic",
        "first_stored",
        "last_stored",
    )


def hottest_key(table: pa.Table) -> Finding:
    """Return the finding on the most frequent key and its share of the topic."""
    first = top(table, "messages", "topic", "key")
    return Finding(
        gettext_noop(
            "The most frequent key is %(key)s: %(messages)s times in %(topic)s, %(share)s of "
            "all occurrences of its %(keys)s keys."
        ),
        {
            "key": Figure(first["key"]),
            "messages": Figure(first["messages"], "messages"),
            "topic": Figure(first["topic"]),
            "share": Figure(first["share"], "permille"),
            "keys": Figure(first["keys_of_topic"], "messages"),
        },
    )


REPORT = Report(
    name="keys",
    title=gettext_noop("Hot keys"),
    question=gettext_noop("Which message keys occur most often, and do a few of them dominate?"),
    parameters=(*MESSAGE_PARAMETERS, KEYS),
    reads=("topic", "keys", "body_size", "store_timestamp"),
    transform=most_frequent,
    columns=(
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("key", StringType(), gettext_noop("Key"), from_messages_of="topic"),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("body_bytes", LongType(), gettext_noop("Body bytes"), "bytes"),
        Column("share", LongType(), gettext_noop("Share of topic"), "permille"),
        Column("keys_of_topic", LongType(), gettext_noop("Keys in topic")),
        Column("first_stored", TimestampType(), gettext_noop("First (UTC)")),
        Column("last_stored", TimestampType(), gettext_noop("Last (UTC)")),
    ),
    sorted_by=("messages", "topic", "key"),
    totals=(
        Total("messages", gettext_noop("Messages"), "sum", "messages", "messages"),
        Total("keys", gettext_noop("Number of keys"), "rows"),
        Total("hottest", gettext_noop("Most frequent key"), "max", "messages", "messages"),
        Total("share", gettext_noop("Largest share"), "max", "share", "permille"),
    ),
    bars=Bars(gettext_noop("Messages by key"), by="key", value="messages"),
    find=hottest_key,
    needs=(JAVA,),
    behind=Behind(first="first_stored", last="last_stored", key="key"),
)
