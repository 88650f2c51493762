"""The ordering report: whether messages with the same sharding key kept their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window, functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType

from analytics.reports.findings import top, total
from analytics.reports.report import (
    JAVA,
    MESSAGE_PARAMETERS,
    Bars,
    Behind,
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

    from analytics.reports.report import Value

# MessageConst.PROPERTY_SHARDING_KEY: clients of ordered topics set it.
SHARDING_KEY = "__SHARDINGKEY"


def by_topic(messages: DataFrame, _: Mapping[str, Value], _step: int) -> DataFrame:
    """MESSAGES -> ORDERING: one row for each topic with sharding keys.

    A key in several queues can't be consumed in order. A message is out of order if it was born
    before the previous message with the same key in the same queue; both times are by the client's
    clock.
    """
    key = F.col("properties")[SHARDING_KEY].alias("key")
    before = Window.partitionBy("topic", "key", "queue_id").orderBy("commit_log_offset")
    keyed = messages.select(
        "topic", "queue_id", "commit_log_offset", F.unix_millis("born_timestamp").alias("born"), key
    ).where("key IS NOT NULL")
    stepped = keyed.select("*", F.lag("born").over(before).alias("born_before"))
    keys = stepped.groupBy("topic", "key").agg(
        F.count(F.lit(1)).alias("messages"),
        F.count_distinct("queue_id").alias("queues"),
        F.count_if(F.col("born") < F.col("born_before")).alias("out_of_order"),
        F.max(F.col("born_before") - F.col("born")).alias("back_ms"),
    )
    found = keys.groupBy("topic").agg(
        F.count(F.lit(1)).alias("sharding_keys"),
        F.sum("messages").alias("messages"),
        F.count_if(F.col("queues") > 1).alias("keys_in_several_queues"),
        F.sum("out_of_order").alias("out_of_order"),
        F.greatest(F.max("back_ms"), F.lit(0)).cast("bigint").alias("furthest_back_ms"),
    )
    return found.select(*REPORT.schema.names)


def worst_topic(table: pa.Table) -> Finding:
    """Return the finding on the topic with the most messages out of order, or that all kept their
    order.
    """
    spread, wrong = total(table, "keys_in_several_queues"), total(table, "out_of_order")
    if not spread and not wrong:
        return Finding(
            gettext_noop("All %(keys)s sharding keys kept their order, each in a single queue."),
            {"keys": Figure(total(table, "sharding_keys"), "messages")},
        )
    first = top(table, "keys_in_several_queues" if spread else "out_of_order", "topic")
    return Finding(
        gettext_noop(
            "%(topic)s has the most ordering problems: %(spread)s of its %(keys)s sharding "
            "keys are spread over several queues, and %(wrong)s of %(messages)s messages are "
            "out of order."
        ),
        {
            "topic": Figure(first["topic"]),
            "spread": Figure(first["keys_in_several_queues"], "messages"),
            "keys": Figure(first["sharding_keys"], "messages"),
            "wrong": Figure(first["out_of_order"], "messages"),
            "messages": Figure(first["messages"], "messages"),
        },
    )


REPORT = Report(
    name="ordering",
    title=gettext_noop("Sharding key order"),
    question=gettext_noop(
        "Did messages with the same sharding key stay in one queue and in order?"
    ),
    parameters=MESSAGE_PARAMETERS,
    reads=("topic", "queue_id", "commit_log_offset", "born_timestamp", "properties"),
    transform=by_topic,
    columns=(
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("sharding_keys", LongType(), gettext_noop("Sharding keys")),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("keys_in_several_queues", LongType(), gettext_noop("Keys in several queues")),
        Column("out_of_order", LongType(), gettext_noop("Out of order"), "messages"),
        Column("furthest_back_ms", LongType(), gettext_noop("Largest step back"), "milliseconds"),
    ),
    sorted_by=("keys_in_several_queues", "out_of_order", "topic"),
    totals=(
        Total("sharding_keys", gettext_noop("Sharding keys"), "sum", "sharding_keys"),
        Total(
            "keys_in_several_queues",
            gettext_noop("Keys in several queues"),
            "sum",
            "keys_in_several_queues",
        ),
        Total("out_of_order", gettext_noop("Out of order"), "sum", "out_of_order", "messages"),
        Total("messages", gettext_noop("Messages"), "sum", "messages", "messages"),
    ),
    bars=Bars(gettext_noop("Messages out of order by topic"), by="topic", value="out_of_order"),
    find=worst_topic,
    needs=(JAVA,),
    behind=Behind(),
)
