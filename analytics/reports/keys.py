"""The keys report: which keys occur most, and how much of a topic they are."""

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
    LakeQuery,
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
# A key may be as long as the properties, 32 767 bytes; a table shows its beginning.
KEY_CHARS_MAX = 200

KEYS = Parameter(
    name="keys",
    type="integer",
    label=gettext_noop("Keys shown"),
    help=gettext_noop("The most frequent ones, over all topics."),
    default=KEYS_DEFAULT,
    minimum=1,
    maximum=KEYS_MAX,
)


def most_frequent(messages: DataFrame, parameters: Mapping[str, Value], _step: int) -> DataFrame:
    """MESSAGES -> KEYS: the most frequent pairs of topic and key.

    A message with several keys counts for each, and one that repeats a key counts once for it.
    Keys are compared whole, and shown up to KEY_CHARS_MAX characters.
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


FROM_BRONZE = f"""
SELECT topic, substring(key, 1, {KEY_CHARS_MAX}) AS key, messages, body_bytes,
    messages * 1000 // of_topic AS share, keys_of_topic, first_stored, last_stored
FROM (
    SELECT *, count(*) OVER (PARTITION BY topic) AS keys_of_topic,
        sum(messages) OVER (PARTITION BY topic) AS of_topic
    FROM (
        SELECT topic, key, count(*) AS messages, sum(body_size)::BIGINT AS body_bytes,
            min(store_timestamp) AS first_stored, max(store_timestamp) AS last_stored
        FROM (
            SELECT topic, store_timestamp, body_size, unnest(list_distinct(keys)) AS key FROM given
        )
        GROUP BY topic, key
    )
)
ORDER BY messages DESC, topic, key LIMIT $keys
"""


def hottest_key(table: pa.Table) -> Finding:
    """Say which key occurs most, and how much of its topic that is."""
    first = top(table, "messages", "topic", "key")
    return Finding(
        gettext_noop(
            "The key %(key)s occurs most: %(messages)s times in %(topic)s, which is %(share)s of "
            "all that its %(keys)s keys occur."
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
    question=gettext_noop("Which message keys occur most, and do a few of them dominate?"),
    parameters=(*MESSAGE_PARAMETERS, KEYS),
    reads=("topic", "keys", "body_size", "store_timestamp"),
    transform=most_frequent,
    columns=(
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("key", StringType(), gettext_noop("Key"), from_messages_of="topic"),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("body_bytes", LongType(), gettext_noop("Bytes of bodies"), "bytes"),
        Column("share", LongType(), gettext_noop("Share of its topic"), "permille"),
        Column("keys_of_topic", LongType(), gettext_noop("Keys of the topic")),
        Column("first_stored", TimestampType(), gettext_noop("First (UTC)")),
        Column("last_stored", TimestampType(), gettext_noop("Last (UTC)")),
    ),
    sorted_by=("messages", "topic", "key"),
    totals=(
        Total("messages", gettext_noop("Messages"), "sum", "messages", "messages"),
        Total("keys", gettext_noop("Keys shown"), "rows"),
        Total("hottest", gettext_noop("Most frequent key"), "max", "messages", "messages"),
        Total("share", gettext_noop("Largest share"), "max", "share", "permille"),
    ),
    bars=Bars(gettext_noop("Messages by key"), by="key", value="messages"),
    find=hottest_key,
    lake=LakeQuery("bronze.messages", FROM_BRONZE, {KEYS.name: KEYS_DEFAULT}),
    needs=(JAVA,),
    behind=Behind(first="first_stored", last="last_stored", key="key"),
)
