"""The failures report: why consumers' tries failed, by group, topic and reason.

The log records retries and dead letters, but not why the consumer failed. If the consumer sends
traces, they say how the try ended and whether there was an exception, but not which exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports import client_traces
from analytics.reports.findings import top, total
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

RETRY, DEAD = names.RETRY_GROUP_TOPIC_PREFIX, names.DLQ_GROUP_TOPIC_PREFIX
UNKNOWN_REASON = "untold"
# By number in a trace: ConsumeReturnType, without SUCCESS.
REASONS = {1: "time out", 2: "exception", 3: "returned null", 4: "asked for a retry"}
EVENT = (
    "array<struct<id:string,request:string,consumer_group:string,number:bigint,ms:bigint,"
    "origin_topic:string,retries:bigint,dead_letters:bigint,reason:string,cost_ms:bigint,is_traced:boolean>>"
)
_OF_A_TRY = ("id", "consumer_group", "number")


def by_reason_and_time(messages: DataFrame, _: Mapping[str, Value], step_seconds: int) -> DataFrame:
    """MESSAGES with traces -> FAILURES: one row for each group, original topic, reason and step.

    A failed try is recorded by a message in a group's retry or dead-letter topic, by a trace, or by
    both, which share UNIQ_KEY, group and number of earlier tries. The time of a try is that of
    the record, or of its beginning if only a trace records it.
    """
    events = messages.select(F.explode(F.coalesce(_of_trace(), _of_record())).alias("event"))
    # The trace of a try's end has no group and number, so take them from the trace of its
    # beginning.
    told = (
        events.select("event.*")
        .groupBy("id", "request")
        .agg(
            *(
                F.max(name).alias(name)
                for name in (
                    "consumer_group",
                    "number",
                    "origin_topic",
                    "reason",
                    "cost_ms",
                    "is_traced",
                )
            ),
            F.min("ms").alias("ms"),
            *(F.sum(name).alias(name) for name in ("retries", "dead_letters")),
        )
    )
    logged = F.col("retries") + F.col("dead_letters")
    traced = F.count_if("is_traced")
    tries = (
        told.where("consumer_group IS NOT NULL AND (is_traced OR retries IS NOT NULL)")
        .groupBy(*_OF_A_TRY)
        .agg(
            F.max("origin_topic").alias("origin_topic"),
            F.coalesce(F.max("reason"), F.lit(UNKNOWN_REASON)).alias("reason"),
            F.coalesce(F.min(F.when(logged.isNotNull(), F.col("ms"))), F.min("ms")).alias("ms"),
            F.greatest(F.coalesce(F.sum(logged), F.lit(0)), traced).alias("failures"),
            *(
                F.coalesce(F.sum(name), F.lit(0)).alias(name)
                for name in ("retries", "dead_letters")
            ),
            F.max("cost_ms").alias("cost_ms"),
        )
    )
    start = start_of_step(F.col("ms") / 1000, step_seconds)
    found = tries.groupBy("consumer_group", "origin_topic", "reason", start.alias("time")).agg(
        *(F.sum(name).alias(name) for name in ("failures", "retries", "dead_letters")),
        F.expr("percentile_disc(0.5) WITHIN GROUP (ORDER BY cost_ms)")
        .cast("bigint")
        .alias("p50_ms"),
        F.max("cost_ms").alias("max_ms"),
    )
    return found.select(*REPORT.schema.names)


def _of_record() -> Expression:
    """Return the failed try of a retry or dead letter, null for other messages."""
    topic, null = F.col("topic"), F.lit(None)
    is_retry, is_dead = topic.startswith(RETRY), topic.startswith(DEAD)
    start = F.when(is_retry, F.lit(len(RETRY) + 1)).otherwise(F.lit(len(DEAD) + 1))
    origin = F.col("properties")[names.PROPERTY_RETRY_TOPIC]
    # Without an ID, identify a record by its topic and millisecond.
    own_id = F.concat_ws(" ", F.lit(""), F.unix_millis("store_timestamp"), origin)
    event = F.struct(
        F.coalesce("uniq_key", own_id),
        # Use an ID that is unique for each record, so that no traced try matches.
        F.concat_ws(" ", topic, "reconsume_times"),
        F.substring(topic, start, F.lit(names.GROUP_LENGTH_MAX)),
        F.col("reconsume_times") - 1,
        F.unix_millis("store_timestamp"),
        origin,
        is_retry.cast("bigint"),
        is_dead.cast("bigint"),
        null,
        null,
        null,
    )
    return F.when(is_retry | is_dead, F.array(event).cast(EVENT))


def _of_trace() -> Expression:
    """Return the beginnings of tries, and the ends of failed tries, null for other messages."""
    told = F.filter(
        client_traces.records(),
        lambda record: (
            (record[0] == client_traces.SUB_BEFORE)
            | (
                (record[0] == client_traces.SUB_AFTER)
                & (client_traces.field(record, client_traces.AFTER_SUCCESS) == "false")
            )
        ),
    )

    def event(record: Expression) -> Expression:
        is_before, null = record[0] == client_traces.SUB_BEFORE, F.lit(None)
        reason: Expression = null.cast("string")
        for code, name in REASONS.items():
            reason = F.when(
                client_traces.number(record, client_traces.AFTER_RETURN) == code, name
            ).otherwise(reason)
        return F.struct(
            client_traces.of_try(record, client_traces.BEFORE_ID, client_traces.AFTER_ID),
            client_traces.of_try(record, client_traces.BEFORE_REQUEST, client_traces.AFTER_REQUEST),
            F.when(is_before, client_traces.field(record, client_traces.BEFORE_GROUP)),
            F.when(is_before, client_traces.number(record, client_traces.BEFORE_TRIES)),
            F.when(is_before, client_traces.number(record, client_traces.BEFORE_TIME)),
            null,
            null,
            null,
            F.when(~is_before, reason),
            F.when(~is_before, client_traces.number(record, client_traces.AFTER_COST)),
            F.when(~is_before, F.expr("true")),
        )

    return F.transform(told, event).cast(EVENT)


def commonest_reason(table: pa.Table) -> Finding:
    """Return the finding on the most common reason, and how many tries have no recorded reason."""
    failures = total(table, "failures")
    known = table.filter(pc.not_equal(table["reason"], UNKNOWN_REASON))
    untold = failures - total(known, "failures")
    figures = {"all": Figure(failures, "messages"), "untold": Figure(untold, "messages")}
    if not known.num_rows:
        return Finding(
            gettext_noop(
                "%(all)s attempts failed for unknown reasons: their consumers don't send traces."
            ),
            figures,
        )
    reasons = known.group_by(["reason", "consumer_group"]).aggregate([("failures", "sum")])
    first = top(reasons, "failures_sum", "reason", "consumer_group")
    return Finding(
        gettext_noop(
            "The most common reason is %(reason)s, in %(group)s, for %(part)s of %(all)s "
            "failed attempts. For %(untold)s the reason is unknown."
        ),
        {
            "reason": Figure(first["reason"]),
            "group": Figure(first["consumer_group"]),
            "part": Figure(first["failures_sum"], "messages"),
            **figures,
        },
    )


REPORT = Report(
    name="failures",
    title=gettext_noop("Consumption failures"),
    question=gettext_noop(
        "Why did consumption fail before messages were retried or became dead letters?"
    ),
    parameters=MESSAGE_PARAMETERS,
    reads=("topic", "store_timestamp", "reconsume_times", "uniq_key", "properties", "body"),
    client_traces=True,
    dead_letters=True,
    narrowed_by="origin_topic",
    transform=by_reason_and_time,
    columns=(
        Column("consumer_group", StringType(), gettext_noop("Consumer group"), link="group"),
        Column("origin_topic", StringType(), gettext_noop("Original topic"), link="topic"),
        Column("reason", StringType(), gettext_noop("Reason")),
        Column("time", TimestampType(), gettext_noop("From (UTC)")),
        Column("failures", LongType(), gettext_noop("Failed attempts"), "messages"),
        Column("retries", LongType(), gettext_noop("Retries"), "messages"),
        Column("dead_letters", LongType(), gettext_noop("Dead letters"), "messages"),
        Column("p50_ms", LongType(), gettext_noop("Median"), "milliseconds"),
        Column("max_ms", LongType(), gettext_noop("Longest wait"), "milliseconds"),
    ),
    sorted_by=("time", "failures", "consumer_group", "origin_topic", "reason"),
    totals=(
        Total("failures", gettext_noop("Failed attempts"), "sum", "failures", "messages"),
        Total("retries", gettext_noop("Retries"), "sum", "retries", "messages"),
        Total("dead_letters", gettext_noop("Dead letters"), "sum", "dead_letters", "messages"),
        Total("groups", gettext_noop("Groups affected"), "distinct", "consumer_group"),
    ),
    chart=Chart(
        gettext_noop("Failed attempts by reason"),
        time="time",
        value="failures",
        series="reason",
        step_seconds=60,
    ),
    breakdown=Breakdown(
        gettext_noop("By reason"), by="reason", sums=("failures", "retries", "dead_letters")
    ),
    find=commonest_reason,
    behind=Behind(
        topic="consumer_group", first="time", prefixes={"retries": RETRY, "dead_letters": DEAD}
    ),
    needs=(JAVA,),
)
