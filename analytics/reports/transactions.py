"""The transactions report: how transactions ended, and how long they took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType

from analytics.reports.findings import permille, total
from analytics.reports.report import (
    JAVA,
    MESSAGE_PARAMETERS,
    Bars,
    Breakdown,
    Column,
    Figure,
    Finding,
    Report,
    Total,
    gettext_noop,
)
from broker_core.message import names
from broker_core.message.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from analytics.reports.report import Value

HALF = names.RMQ_SYS_TRANS_HALF_TOPIC
OP = names.RMQ_SYS_TRANS_OP_HALF_TOPIC
GIVEN_UP = names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC


def by_group_and_topic(messages: DataFrame, _: Mapping[str, Value], _step: int) -> DataFrame:
    """MESSAGES with internal ones -> TRANSACTIONS: one row for each producer group and topic.

    A transaction is a UNIQ_KEY with a half message; the broker stores the half message again with
    each check. An op message lists the queue offsets of finished half messages. A finished half
    message was rolled back if it was neither committed nor given up.
    """
    transactions = (
        _by_half_message(messages)
        .where("uniq_key IS NOT NULL")
        .groupBy("uniq_key")
        .agg(
            F.max("producer_group").alias("producer_group"),
            F.max("topic").alias("topic"),
            F.min("half_ms").alias("half_ms"),
            F.min("committed_ms").alias("committed_ms"),
            F.max("checks").alias("checks"),
            F.bool_and("ended").alias("ended"),
            F.max("given_up").alias("given_up"),
        )
        .where("half_ms IS NOT NULL")
        .withColumn("ms", F.expr("committed_ms - half_ms"))
    )
    over = F.col("committed_ms").isNotNull()
    given_up = ~over & F.coalesce("given_up", F.expr("false"))
    ended = ~over & ~given_up & F.coalesce("ended", F.expr("false"))
    found = transactions.groupBy("producer_group", "topic").agg(
        F.count(F.lit(1)).alias("begun"),
        F.count_if(over).alias("committed"),
        F.count_if(ended).alias("rolled_back"),
        F.count_if(given_up).alias("given_up"),
        F.count_if(~over & ~given_up & ~ended).alias("open"),
        F.sum("checks").alias("checks"),
        F.expr("percentile_disc(0.5) WITHIN GROUP (ORDER BY ms)").cast("bigint").alias("p50_ms"),
        F.expr("percentile_disc(0.95) WITHIN GROUP (ORDER BY ms)").cast("bigint").alias("p95_ms"),
        F.max("ms").alias("max_ms"),
    )
    return found.select(*REPORT.schema.names)


def _by_half_message(messages: DataFrame) -> DataFrame:
    """Return one row for each half message, with whether it is finished, and for each commit."""
    own_text = F.col("properties")
    is_half, is_op = F.col("topic") == HALF, F.col("topic") == OP
    is_given_up = F.col("topic") == GIVEN_UP
    transaction_type = F.col("sys_flag").bitwiseAND(TRANSACTION_MASK)
    is_commit = (transaction_type == TRANSACTION_COMMIT_TYPE) & ~is_half & ~is_given_up
    texts = F.split(F.col("body").cast("string"), ",")
    listed = F.transform(texts, lambda text: text.try_cast("bigint"))
    stored = F.unix_millis("store_timestamp")
    # Other messages must not match: use their own negative offset.
    places = F.when(is_half, F.array("queue_offset")).when(is_op, listed)
    places = places.otherwise(F.array(-1 - F.col("commit_log_offset")))
    return (
        messages.where(is_half | is_op | is_commit | is_given_up)
        .select(
            F.explode(places).alias("place"),
            F.when(~is_op, F.col("uniq_key")).alias("uniq_key"),
            F.when(is_half, own_text[names.PROPERTY_PRODUCER_GROUP]).alias("producer_group"),
            F.when(is_half, own_text[names.PROPERTY_REAL_TOPIC]).alias("topic"),
            F.when(is_half, stored).alias("half_ms"),
            F.when(is_commit, stored).alias("committed_ms"),
            F.when(
                is_half,
                F.coalesce(
                    own_text[names.PROPERTY_TRANSACTION_CHECK_TIMES].try_cast("bigint"), F.lit(0)
                ),
            ).alias("checks"),
            F.when(is_half, F.expr("false")).when(is_op, F.expr("true")).alias("ended"),
            F.when(is_given_up, F.expr("true")).alias("given_up"),
        )
        .groupBy("place")
        .agg(
            *(F.max(name).alias(name) for name in ("uniq_key", "producer_group", "topic")),
            *(F.min(name).alias(name) for name in ("half_ms", "committed_ms")),
            *(F.max(name).alias(name) for name in ("checks", "ended", "given_up")),
        )
    )


def outcomes_finding(table: pa.Table) -> Finding:
    """Return the finding on how many transactions were rolled back, given up, or have no outcome
    yet.
    """
    begun, back = total(table, "begun"), total(table, "rolled_back")
    return Finding(
        gettext_noop(
            "Of %(begun)s transactions, %(back)s were rolled back (%(share)s), %(given_up)s "
            "were given up and %(open)s are still pending."
        ),
        {
            "begun": Figure(begun, "messages"),
            "back": Figure(back, "messages"),
            "share": Figure(permille(back, begun), "permille"),
            "given_up": Figure(total(table, "given_up"), "messages"),
            "open": Figure(total(table, "open"), "messages"),
        },
    )


REPORT = Report(
    name="transactions",
    title=gettext_noop("Transactions"),
    question=gettext_noop(
        "How do transactions end, how long do they take, and which are still pending?"
    ),
    parameters=MESSAGE_PARAMETERS,
    reads=(
        *("commit_log_offset", "topic", "queue_offset", "store_timestamp", "sys_flag"),
        *("body", "uniq_key", "properties"),
    ),
    system_topics=True,
    narrowed_by="topic",
    transform=by_group_and_topic,
    columns=(
        Column("producer_group", StringType(), gettext_noop("Producer group")),
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("begun", LongType(), gettext_noop("Started"), "messages"),
        Column("committed", LongType(), gettext_noop("Committed"), "messages"),
        Column("rolled_back", LongType(), gettext_noop("Rolled back"), "messages"),
        Column("given_up", LongType(), gettext_noop("Given up"), "messages"),
        Column("open", LongType(), gettext_noop("Pending"), "messages"),
        Column("checks", LongType(), gettext_noop("Checks")),
        Column("p50_ms", LongType(), gettext_noop("Median time to commit"), "milliseconds"),
        Column("p95_ms", LongType(), gettext_noop("p95"), "milliseconds"),
        Column("max_ms", LongType(), gettext_noop("Longest wait"), "milliseconds"),
    ),
    sorted_by=("begun", "producer_group", "topic"),
    totals=(
        Total("begun", gettext_noop("Started"), "sum", "begun", "messages"),
        Total("committed", gettext_noop("Committed"), "sum", "committed", "messages"),
        Total("rolled_back", gettext_noop("Rolled back"), "sum", "rolled_back", "messages"),
        Total("open", gettext_noop("Pending"), "sum", "open", "messages"),
    ),
    bars=Bars(gettext_noop("Transactions by producer group"), by="producer_group", value="begun"),
    breakdown=Breakdown(gettext_noop("By topic"), by="topic", sums=("begun", "rolled_back")),
    find=outcomes_finding,
    needs=(JAVA,),
)
