"""The changes report: which hosts started or stopped sending to a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window, functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import total
from analytics.reports.report import (
    HOURS,
    JAVA,
    TOPIC,
    Bars,
    Behind,
    Breakdown,
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

RECENT_DEFAULT, RECENT_MAX = 24, 24 * 366
HOUR_S = 3_600
NEW, VANISHED, STAYED = "new", "vanished", "stayed"

RECENT = Parameter(
    name="recent",
    type="integer",
    label=gettext_noop("Recent (hours)"),
    help=gettext_noop(
        "Compared with all earlier data that was read; counted back from the last message."
    ),
    default=RECENT_DEFAULT,
    minimum=1,
    maximum=RECENT_MAX,
)


def by_host_and_topic(
    messages: DataFrame, parameters: Mapping[str, Value], _step: int
) -> DataFrame:
    """MESSAGES -> CHANGES: one row for each host and topic, with the state of the pair.

    The recent period is the last hours up to the newest message, in whole hours. A pair is new if
    it sent only in this period, and vanished if it sent only before it.
    """
    recent = int(parameters.get(RECENT.name, RECENT_DEFAULT))
    everything = Window.partitionBy(F.lit(1))
    hours = messages.groupBy(
        F.regexp_replace("born_host", ":[0-9]+$", "").alias("host"),
        "topic",
        F.floor(F.unix_seconds("store_timestamp") / HOUR_S).alias("hour"),
    ).agg(
        F.count(F.lit(1)).alias("messages"),
        F.min("store_timestamp").alias("first_stored"),
        F.max("store_timestamp").alias("last_stored"),
    )
    is_recent = F.col("hour") > F.max("hour").over(everything) - recent
    pairs = (
        hours.select("*", is_recent.alias("is_recent"))
        .groupBy("host", "topic")
        .agg(
            F.coalesce(F.sum(F.when(~F.col("is_recent"), F.col("messages"))), F.lit(0)).alias(
                "messages_before"
            ),
            F.coalesce(F.sum(F.when(F.col("is_recent"), F.col("messages"))), F.lit(0)).alias(
                "messages_recent"
            ),
            F.min("first_stored").alias("first_stored"),
            F.max("last_stored").alias("last_stored"),
        )
    )
    state = (
        F.when(F.col("messages_before") == 0, NEW)
        .when(F.col("messages_recent") == 0, VANISHED)
        .otherwise(STAYED)
    )
    found = pairs.select("*", state.alias("state"), F.lit(1).cast("bigint").alias("pairs"))
    return found.select(*REPORT.schema.names)


def changes_finding(table: pa.Table) -> Finding:
    """Return the finding on how many senders are new and how many have vanished."""
    states = table["state"].to_pylist()
    return Finding(
        gettext_noop(
            "%(new)s pairs of host and topic are new, %(vanished)s have disappeared and "
            "%(stayed)s are unchanged. The recent hours have %(recent)s messages, the time "
            "before %(before)s."
        ),
        {
            **{state: Figure(states.count(state), "messages") for state in (NEW, VANISHED, STAYED)},
            "recent": Figure(total(table, "messages_recent"), "messages"),
            "before": Figure(total(table, "messages_before"), "messages"),
        },
    )


REPORT = Report(
    name="changes",
    title=gettext_noop("New and missing senders"),
    question=gettext_noop("Which hosts started or stopped sending to a topic?"),
    parameters=(HOURS, TOPIC, RECENT),
    reads=("topic", "born_host", "store_timestamp"),
    transform=by_host_and_topic,
    columns=(
        Column(
            "state",
            StringType(),
            gettext_noop("State"),
            words={
                NEW: gettext_noop("new"),
                VANISHED: gettext_noop("missing"),
                STAYED: gettext_noop("unchanged"),
            },
        ),
        Column("host", StringType(), gettext_noop("Host")),
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("messages_before", LongType(), gettext_noop("Earlier messages"), "messages"),
        Column("messages_recent", LongType(), gettext_noop("Recent messages"), "messages"),
        Column("first_stored", TimestampType(), gettext_noop("First (UTC)")),
        Column("last_stored", TimestampType(), gettext_noop("Last (UTC)")),
        Column("pairs", LongType(), gettext_noop("Pairs")),
    ),
    sorted_by=("state", "last_stored", "host", "topic"),
    totals=(
        Total("pairs", gettext_noop("Pairs of host and topic"), "rows"),
        Total("hosts", gettext_noop("Hosts"), "distinct", "host"),
        Total("topics", gettext_noop("Topics"), "distinct", "topic"),
    ),
    bars=Bars(gettext_noop("Pairs by state"), by="state", value="pairs"),
    breakdown=Breakdown(
        gettext_noop("By state"), by="state", sums=("pairs", "messages_before", "messages_recent")
    ),
    find=changes_finding,
    needs=(JAVA,),
    behind=Behind(first="first_stored", last="last_stored"),
)
