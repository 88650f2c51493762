"""The anomalies report: hours in which a topic stored much more or less than usual."""

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

SCORE_DEFAULT, SCORE_MAX = 5, 1_000
MORE, LESS = "more", "less"
# With fewer hours to compare, there is no usual value.
HOURS_MIN = 6
HOUR_S, WEEK_HOURS = 3_600, 168
# Scales the MAD to the standard deviation of normally distributed values.
DEVIATION_OF_MAD = 1.4826

SCORE = Parameter(
    name="score",
    type="integer",
    label=gettext_noop("Anomaly threshold"),
    help=gettext_noop("How many times the typical deviation an hour must differ from the median."),
    default=SCORE_DEFAULT,
    minimum=2,
    maximum=SCORE_MAX,
)


def unusual_hours(messages: DataFrame, parameters: Mapping[str, Value], _step: int) -> DataFrame:
    """MESSAGES -> ANOMALIES: one row for each topic and hour that is far from the median.

    An hour is compared with the same hour of the week of its topic if each hour of the week occurs
    at least HOURS_MIN times, otherwise with all hours of its topic. With fewer hours in
    total, it isn't compared. Hours without a message count from the topic's first message on. The
    first and the last hour of the log are incomplete and left out. The score is the distance from
    the median in usual deviations: the median of absolute deviations, but at least the square root
    of the median, which is expected by chance.
    """
    wide = Window.partitionBy("topic")
    same_hour = Window.partitionBy("topic", F.col("hour") % WEEK_HOURS)
    group = Window.partitionBy("topic", "kind")
    # Window functions don't nest, so each needs its own column first.
    same = _every_hour(messages).select("*", F.count(F.lit(1)).over(same_hour).alias("same"))
    fewest = same.select("*", F.min("same").over(wide).alias("fewest"))
    kind = F.when(F.col("fewest") >= HOURS_MIN, F.col("hour") % WEEK_HOURS).otherwise(-1)
    measured = fewest.select("*", kind.alias("kind")).select(
        "*",
        F.median("messages").over(group).alias("usual"),
        F.count(F.lit(1)).over(group).alias("compared_with"),
    )
    away = measured.select("*", F.abs(F.col("messages") - F.col("usual")).alias("away"))
    mad = F.median("away").over(group)
    chance = F.greatest(mad * DEVIATION_OF_MAD, F.sqrt("usual"), F.lit(1.0))
    scored = away.select("*", F.floor(F.col("away") / chance).alias("score"))
    least = int(parameters.get(SCORE.name, SCORE_DEFAULT))
    found = scored.where((F.col("score") >= least) & (F.col("compared_with") >= HOURS_MIN))
    return found.select(
        "topic",
        F.timestamp_seconds(F.col("hour") * HOUR_S).alias("time"),
        "messages",
        F.floor("usual").alias("usual"),
        F.when(F.col("messages") > F.col("usual"), MORE).otherwise(LESS).alias("direction"),
        "score",
        "compared_with",
        F.lit(1).cast("bigint").alias("hours"),
    )


def _every_hour(messages: DataFrame) -> DataFrame:
    """Return topic, hour since the epoch and messages for each complete hour, including empty
    hours.
    """
    hour = F.floor(F.unix_seconds("store_timestamp") / HOUR_S).cast("bigint").alias("hour")
    counted = messages.groupBy("topic", hour).agg(F.count(F.lit(1)).alias("messages"))
    everything = Window.partitionBy(F.lit(1))
    bounded = counted.select(
        "*",
        F.min("hour").over(everything).alias("first"),
        F.max("hour").over(everything).alias("last"),
    )
    whole = bounded.where("hour > first AND hour < last")
    topics = whole.groupBy("topic").agg(
        F.map_from_entries(F.collect_list(F.struct("hour", "messages"))).alias("counts"),
        F.expr("sequence(min(hour), max(last) - 1)").alias("hours"),
    )
    one_each = topics.select("topic", "counts", F.explode("hours").alias("hour"))
    return one_each.select(
        "topic", "hour", F.coalesce(F.try_element_at("counts", "hour"), F.lit(0)).alias("messages")
    )


def most_unusual(table: pa.Table) -> Finding:
    """Return the finding on the hour that is furthest from usual."""
    first = top(table, "score", "time", "topic")
    return Finding(
        gettext_noop(
            "%(topic)s had the largest anomaly: %(messages)s messages in the hour from "
            "%(time)s UTC, compared with a median of %(usual)s over %(number)s hours."
        ),
        {
            "topic": Figure(first["topic"]),
            "messages": Figure(first["messages"], "messages"),
            "time": Figure(f"{first['time']:%Y-%m-%d %H:%M}"),
            "usual": Figure(first["usual"], "messages"),
            "number": Figure(first["compared_with"], "messages"),
        },
    )


REPORT = Report(
    name="anomalies",
    title=gettext_noop("Unusual hours"),
    question=gettext_noop(
        "In which hours did a topic store far more or fewer messages than usual?"
    ),
    parameters=(*MESSAGE_PARAMETERS, SCORE),
    reads=("topic", "store_timestamp"),
    transform=unusual_hours,
    columns=(
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("time", TimestampType(), gettext_noop("Hour from (UTC)")),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("usual", LongType(), gettext_noop("Median"), "messages"),
        Column(
            "direction",
            StringType(),
            gettext_noop("Direction"),
            words={
                MORE: gettext_noop("more than usual"),
                LESS: gettext_noop("less than usual"),
            },
        ),
        Column("score", LongType(), gettext_noop("Deviations from median")),
        Column("compared_with", LongType(), gettext_noop("Hours compared")),
        Column("hours", LongType(), gettext_noop("Hours")),
    ),
    sorted_by=("score", "time", "topic"),
    totals=(
        Total("hours", gettext_noop("Unusual hours"), "rows"),
        Total("topics", gettext_noop("Topics"), "distinct", "topic"),
        Total("score", gettext_noop("Largest deviation"), "max", "score"),
    ),
    bars=Bars(gettext_noop("Unusual hours by topic"), by="topic", value="hours"),
    breakdown=Breakdown(gettext_noop("By topic"), by="topic", sums=("hours", "score")),
    find=most_unusual,
    needs=(JAVA,),
    behind=Behind(first="time", seconds=3600),
)
