"""The consumption report: how long messages take from the log to their consumers, by topic, group.

The times of consumption are from the traces that consumers send, the store times from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window, functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports import client_traces
from analytics.reports.findings import top, total
from analytics.reports.latency import SLOW, SLOW_MS_DEFAULT
from analytics.reports.report import (
    JAVA,
    MESSAGE_PARAMETERS,
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
    from pyspark.sql import Column as Expression, DataFrame

    from analytics.reports.report import Value

EVENT = (
    "array<struct<id:string,request:string,topic:string,stored_ms:bigint,"
    "consumer_group:string,began_ms:bigint,cost_ms:bigint,is_success:boolean>>"
)


def by_group_and_time(
    messages: DataFrame, parameters: Mapping[str, Value], step_seconds: int
) -> DataFrame:
    """MESSAGES with traces -> CONSUMPTION: a row for each topic, group and step of the store time.

    A message is identified by its UNIQ_KEY, at its first record in a topic other than a group's
    retry or dead-letter topic. Consumption begins with the first try of a group, by the consumer's
    clock. It is acknowledged when a try first ends with success: the try's beginning plus its
    duration, both by the consumer's clock. A consumption that began before the message was stored
    counts in `from_the_future` and in no percentile.
    """
    slow = int(parameters.get(SLOW.name, SLOW_MS_DEFAULT))
    tries = _tries(messages)
    by_group = tries.groupBy("id", "consumer_group").agg(
        F.max("topic").alias("topic"),
        F.max("stored_ms").alias("stored_ms"),
        F.min("began_ms").alias("began_ms"),
        F.min(F.when(F.col("is_success"), F.col("ended_ms"))).alias("ended_ms"),
        F.count(F.lit(1)).alias("tries"),
    )
    wait, acknowledged = (F.col(name) - F.col("stored_ms") for name in ("began_ms", "ended_ms"))
    found = (
        by_group.select(
            *("topic", "consumer_group", "tries"),
            start_of_step(F.col("stored_ms") / 1000, step_seconds).alias("time"),
            wait.alias("wait_ms"),
            F.col("ended_ms").isNotNull().alias("is_acknowledged"),
            F.when(wait >= 0, wait).alias("sound_ms"),
            F.when(wait >= 0, acknowledged).alias("whole_ms"),
        )
        .groupBy("topic", "consumer_group", "time")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.count_if("is_acknowledged").alias("acknowledged"),
            F.sum("tries").alias("tries"),
            *_percentiles(),
            F.max("sound_ms").alias("wait_max_ms"),
            F.max("whole_ms").alias("whole_max_ms"),
            F.count_if(F.col("wait_ms") >= slow).alias("slow"),
            F.count_if(F.col("wait_ms") < 0).alias("from_the_future"),
        )
    )
    return found.select(*REPORT.schema.names)


def _percentiles() -> list[Expression]:
    # Complete texts, not assembled from parts, so that they can be translated.
    values = {
        "wait_p50_ms": F.expr("percentile_disc(0.5) WITHIN GROUP (ORDER BY sound_ms)"),
        "wait_p95_ms": F.expr("percentile_disc(0.95) WITHIN GROUP (ORDER BY sound_ms)"),
        "wait_p99_ms": F.expr("percentile_disc(0.99) WITHIN GROUP (ORDER BY sound_ms)"),
        "whole_p50_ms": F.expr("percentile_disc(0.5) WITHIN GROUP (ORDER BY whole_ms)"),
        "whole_p95_ms": F.expr("percentile_disc(0.95) WITHIN GROUP (ORDER BY whole_ms)"),
        "whole_p99_ms": F.expr("percentile_disc(0.99) WITHIN GROUP (ORDER BY whole_ms)"),
    }
    return [value.cast("bigint").alias(name) for name, value in values.items()]


def _tries(messages: DataFrame) -> DataFrame:
    """Return one row for each try of a group to consume a message in the input."""
    events = messages.select(F.explode(F.coalesce(_of_trace(), _of_message())).alias("event"))
    tries = (
        events.select("event.*")
        .groupBy("id", "request")
        .agg(
            F.min_by("topic", "stored_ms").alias("topic"),
            *(F.min(name).alias(name) for name in ("stored_ms", "began_ms")),
            *(F.max(name).alias(name) for name in ("consumer_group", "cost_ms", "is_success")),
        )
    )
    # If several messages are consumed together, the trace has the average duration per message.
    together = F.count(F.lit(1)).over(Window.partitionBy("request"))
    with_end = tries.withColumn("ended_ms", F.col("began_ms") + F.col("cost_ms") * together)
    of_id = Window.partitionBy("id")
    stored = (F.max(name).over(of_id).alias(name) for name in ("topic", "stored_ms"))
    kept = ("id", "consumer_group", "began_ms", "ended_ms", "is_success")
    return with_end.select(*kept, *stored).where(
        "consumer_group IS NOT NULL AND began_ms IS NOT NULL AND topic IS NOT NULL"
    )


def _of_message() -> Expression:
    """Return when and where a message was stored; leaves out messages in a group's own topics."""
    topic, null = F.col("topic"), F.lit(None)
    is_own = topic.startswith(names.RETRY_GROUP_TOPIC_PREFIX) | topic.startswith(
        names.DLQ_GROUP_TOPIC_PREFIX
    )
    # The join key is the message's own, so that no single task gets all messages.
    request = F.concat(F.lit(" "), "uniq_key")
    event = F.struct(
        "uniq_key", request, topic, F.unix_millis("store_timestamp"), null, null, null, null
    )
    kept = F.col("uniq_key").isNotNull() & ~is_own & ~client_traces.is_trace()
    return F.when(kept, F.array(event).cast(EVENT))


def _of_trace() -> Expression:
    """Return the beginnings and ends of tries in a trace, null for other messages."""
    kinds = (client_traces.SUB_BEFORE, client_traces.SUB_AFTER)
    told = F.filter(client_traces.records(), lambda record: record[0].isin(*kinds))

    def event(record: Expression) -> Expression:
        is_before, null = record[0] == client_traces.SUB_BEFORE, F.lit(None)
        return F.struct(
            client_traces.of_try(record, client_traces.BEFORE_ID, client_traces.AFTER_ID),
            client_traces.of_try(record, client_traces.BEFORE_REQUEST, client_traces.AFTER_REQUEST),
            null,
            null,
            F.when(is_before, client_traces.field(record, client_traces.BEFORE_GROUP)),
            F.when(is_before, client_traces.number(record, client_traces.BEFORE_TIME)),
            F.when(~is_before, client_traces.number(record, client_traces.AFTER_COST)),
            F.when(~is_before, client_traces.field(record, client_traces.AFTER_SUCCESS) == "true"),
        )

    return F.transform(told, event).cast(EVENT)


def slowest_group(table: pa.Table) -> Finding:
    """Return the finding on the group that kept messages waiting, or the longest wait."""
    slow, messages = total(table, "slow"), total(table, "messages")
    if slow:
        first = top(
            table.group_by("consumer_group").aggregate([("slow", "sum")]),
            "slow_sum",
            "consumer_group",
        )
        return Finding(
            gettext_noop(
                "%(slow)s of %(messages)s traced messages waited a long time to be consumed, "
                "%(part)s of them for %(group)s."
            ),
            {
                "slow": Figure(slow, "messages"),
                "messages": Figure(messages, "messages"),
                "part": Figure(first["slow_sum"], "messages"),
                "group": Figure(first["consumer_group"]),
            },
        )
    last = top(table, "wait_max_ms", "consumer_group")
    return Finding(
        gettext_noop(
            "None of the %(messages)s traced messages waited a long time to be consumed. The "
            "longest wait was %(ms)s, for %(group)s."
        ),
        {
            "messages": Figure(messages, "messages"),
            "ms": Figure(last["wait_max_ms"] or 0, "milliseconds"),
            "group": Figure(last["consumer_group"]),
        },
    )


REPORT = Report(
    name="consumption",
    title=gettext_noop("Consumption latency"),
    question=gettext_noop(
        "How long do messages wait for each group, from stored until acknowledged?"
    ),
    parameters=(*MESSAGE_PARAMETERS, SLOW),
    reads=("topic", "store_timestamp", "uniq_key", "body"),
    client_traces=True,
    transform=by_group_and_time,
    columns=(
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("consumer_group", StringType(), gettext_noop("Consumer group"), link="group"),
        Column("time", TimestampType(), gettext_noop("Stored from (UTC)")),
        Column("messages", LongType(), gettext_noop("Messages traced"), "messages"),
        Column("acknowledged", LongType(), gettext_noop("Acknowledged"), "messages"),
        Column("tries", LongType(), gettext_noop("Attempts")),
        Column("wait_p50_ms", LongType(), gettext_noop("First consumed: median"), "milliseconds"),
        Column("wait_p95_ms", LongType(), gettext_noop("First consumed: p95"), "milliseconds"),
        Column("wait_p99_ms", LongType(), gettext_noop("First consumed: p99"), "milliseconds"),
        Column("wait_max_ms", LongType(), gettext_noop("First consumed: max"), "milliseconds"),
        Column("whole_p50_ms", LongType(), gettext_noop("Acknowledged: median"), "milliseconds"),
        Column("whole_p95_ms", LongType(), gettext_noop("Acknowledged: p95"), "milliseconds"),
        Column("whole_p99_ms", LongType(), gettext_noop("Acknowledged: p99"), "milliseconds"),
        Column("whole_max_ms", LongType(), gettext_noop("Acknowledged: max"), "milliseconds"),
        Column("slow", LongType(), gettext_noop("Slow"), "messages"),
        Column("from_the_future", LongType(), gettext_noop("Negative latency"), "messages"),
    ),
    sorted_by=("time", "topic", "consumer_group"),
    totals=(
        Total("messages", gettext_noop("Messages traced"), "sum", "messages", "messages"),
        Total("slow", gettext_noop("Slow"), "sum", "slow", "messages"),
        Total(
            "wait_max_ms",
            gettext_noop("First consumed: max"),
            "max",
            "wait_max_ms",
            "milliseconds",
        ),
        Total(
            "whole_max_ms",
            gettext_noop("Acknowledged: max"),
            "max",
            "whole_max_ms",
            "milliseconds",
        ),
    ),
    chart=Chart(
        gettext_noop("Slow messages by group"),
        time="time",
        value="slow",
        series="consumer_group",
        step_seconds=60,
    ),
    breakdown=Breakdown(
        gettext_noop("By group"), by="consumer_group", sums=("slow", "messages", "acknowledged")
    ),
    find=slowest_group,
    needs=(JAVA,),
    behind=Behind(first="time"),
)
