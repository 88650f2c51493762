"""The queues report: how evenly the messages of a topic are spread over its queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window, functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import IntegerType, LongType, StringType

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

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from analytics.facts import StoreFacts
    from analytics.reports.report import Value

# With fewer messages in a topic, the spread isn't meaningful.
MESSAGES_MIN = 100
PLACES = "places"


def with_queue_numbers(messages: DataFrame, facts: StoreFacts) -> DataFrame:
    """Add the configured number of queues of its topic to each message, 0 if unknown."""
    session = messages.sparkSession
    topics = session.createDataFrame(list(facts.topics.items()), f"topic string, {PLACES} bigint")
    joined = messages.join(F.broadcast(topics), "topic", "left")
    return joined.select(
        "topic", "queue_id", "store_size", F.coalesce(PLACES, F.lit(0)).alias(PLACES)
    )


def by_queue(messages: DataFrame, _: Mapping[str, Value], _step: int) -> DataFrame:
    """MESSAGES with `places` -> QUEUES: one row for each queue that has a message.

    The mean is over all queues of the topic, including empty queues; `times_mean` is a queue's
    messages in thousandths of the mean. `gini` is the topic's Gini coefficient in thousandths: 0 if
    all queues have the same, close to 1000 if a single queue has all messages.
    """
    queues = messages.groupBy("topic", "queue_id").agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum(F.col("store_size").cast("bigint")).alias("bytes"),
        F.max(PLACES).alias(PLACES),
    )
    topic = Window.partitionBy("topic")
    of_topic = F.sum("messages").over(topic)
    # The topic may have had more queues before; queues with messages count.
    number = F.greatest(F.max(PLACES).over(topic), F.count(F.lit(1)).over(topic))
    filled = F.count(F.lit(1)).over(topic)
    rank = number - filled + F.row_number().over(topic.orderBy("messages", "queue_id"))
    ranked = queues.select(
        "*", of_topic.alias("of_topic"), number.alias("queues"), rank.alias("rank")
    )
    weighted = F.sum((2 * F.col("rank") - F.col("queues") - 1) * F.col("messages")).over(topic)
    found = ranked.select(
        "*",
        F.expr("messages * 1000 div of_topic").alias("share"),
        F.expr("messages * queues * 1000 div of_topic").alias("times_mean"),
        weighted.alias("weighted"),
    )
    return found.select(
        *("topic", "queue_id", "messages", "bytes", "share", "times_mean"),
        F.expr("weighted * 1000 div (queues * of_topic)").alias("gini"),
        "queues",
    )


def hottest_queue(table: pa.Table) -> Finding:
    """Return the finding on the least evenly spread topic, among topics with enough messages."""
    topics = table.group_by("topic").aggregate([("messages", "sum")]).to_pylist()
    enough = {each["topic"] for each in topics if each["messages_sum"] >= MESSAGES_MIN}
    rows = [row for row in table.to_pylist() if row["topic"] in enough and row["queues"] > 1]
    if not rows:
        return Finding(
            gettext_noop("No topic has enough messages and queues to measure how even they are."),
            {},
        )
    first = min(rows, key=lambda row: (-row["gini"], row["topic"], -row["messages"]))
    return Finding(
        gettext_noop(
            "%(topic)s is distributed least evenly: queue %(queue)s has %(share)s of its "
            "messages, compared with %(even)s for an even distribution over %(queues)s queues."
        ),
        {
            "topic": Figure(first["topic"]),
            "queue": Figure(str(first["queue_id"])),
            "share": Figure(first["share"], "permille"),
            "queues": Figure(first["queues"], "messages"),
            "even": Figure(1_000 // first["queues"], "permille"),
        },
    )


REPORT = Report(
    name="queues",
    title=gettext_noop("Hot queues"),
    question=gettext_noop("How evenly are the messages of each topic distributed over its queues?"),
    parameters=MESSAGE_PARAMETERS,
    reads=("topic", "queue_id", "store_size"),
    prepare=with_queue_numbers,
    transform=by_queue,
    columns=(
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("queue_id", IntegerType(), gettext_noop("Queue")),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("bytes", LongType(), gettext_noop("Bytes"), "bytes"),
        Column("share", LongType(), gettext_noop("Share of topic"), "permille"),
        Column("times_mean", LongType(), gettext_noop("Relative to even share"), "permille"),
        Column("gini", LongType(), gettext_noop("Topic skew"), "permille"),
        Column("queues", LongType(), gettext_noop("Queues in topic")),
    ),
    sorted_by=("gini", "topic", "messages", "queue_id"),
    totals=(
        Total("messages", gettext_noop("Messages"), "sum", "messages", "messages"),
        Total("queues", gettext_noop("Queues with messages"), "rows"),
        Total("topics", gettext_noop("Topics"), "distinct", "topic"),
        Total("gini", gettext_noop("Most skewed topic"), "max", "gini", "permille"),
    ),
    bars=Bars(gettext_noop("Messages by topic"), by="topic", value="messages"),
    breakdown=Breakdown(gettext_noop("By topic"), by="topic", sums=("messages", "bytes")),
    find=hottest_queue,
    needs=(JAVA,),
    behind=Behind(),
)
