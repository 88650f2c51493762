"""The drain report: how far behind each group was, its speed, and when it will catch up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import top
from analytics.reports.report import (
    COMPARE,
    JAVA,
    SAMPLED_HOURS,
    TOPIC,
    Behind,
    Breakdown,
    Chart,
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

GROUP = Parameter(
    name="group",
    type="text",
    label=gettext_noop("Consumer group"),
    help=gettext_noop("Leave empty for all groups."),
    maximum=255,
)

# The backlog is from the last minute of a step; messages read and stored are from the whole step. A
# group that reads no faster than messages arrive never catches up, so its drain time is null.
SPEEDS = """
WITH stepped AS (
    SELECT timestamp_seconds(floor(unix_seconds(minute) / :step) * :step) AS time, *
    FROM {samples} WHERE part IS NULL
), progress AS (
    SELECT * FROM stepped
    WHERE kind = 'progress'
        AND (:topic IS NULL OR topic = :topic)
        AND (:group IS NULL OR consumer_group = :group)
), backlogs AS (
    SELECT time, consumer_group, topic, broker,
        max_by(total div nullif(weight, 0), minute) AS backlog, max(highest) AS highest
    FROM progress WHERE metric = 'lag' GROUP BY time, consumer_group, topic, broker
), reading AS (
    SELECT time, consumer_group, topic, broker, sum(total) AS consumed,
        sum(total) / nullif(sum(weight), 0) AS speed
    FROM progress WHERE metric = 'consumed' GROUP BY time, consumer_group, topic, broker
), coming AS (
    SELECT time, topic, broker, sum(total) AS arrived,
        sum(total) / nullif(sum(weight), 0) AS speed
    FROM stepped WHERE kind = 'topic' AND metric = 'put' GROUP BY time, topic, broker
), steps AS (
    SELECT time, consumer_group, topic,
        sum(backlog) AS backlog, sum(highest) AS highest,
        coalesce(sum(consumed), 0) AS consumed, coalesce(sum(arrived), 0) AS arrived,
        coalesce(sum(reading.speed), 0) AS reads_a_ms,
        coalesce(sum(coming.speed), 0) AS comes_a_ms
    FROM backlogs
        LEFT JOIN reading USING (time, consumer_group, topic, broker)
        LEFT JOIN coming USING (time, topic, broker)
    GROUP BY time, consumer_group, topic
)
SELECT time, consumer_group, topic, backlog, highest, consumed, arrived,
    CAST(floor(reads_a_ms * 60000) AS BIGINT) AS reads_a_minute,
    CAST(floor(comes_a_ms * 60000) AS BIGINT) AS comes_a_minute,
    CAST(CASE WHEN backlog = 0 THEN 0
        WHEN reads_a_ms > comes_a_ms THEN ceil(backlog / (reads_a_ms - comes_a_ms))
    END AS BIGINT) AS drain_ms
FROM steps
"""


def backlogs_and_speeds(
    samples: DataFrame, parameters: Mapping[str, Value], step_seconds: int
) -> DataFrame:
    """SAMPLES -> DRAIN: one row for each group, topic and time step."""
    known = {name: parameters.get(name) for name in (TOPIC.name, GROUP.name)}
    found = samples.sparkSession.sql(SPEEDS, {**known, "step": step_seconds}, samples=samples)
    return found.select(*REPORT.schema.names)


def furthest_behind(table: pa.Table) -> Finding:
    """Return the finding on the group that was furthest behind at the end, and when it will catch
    up.
    """
    last = table.filter(pc.equal(table["time"], pc.max(table["time"])))
    row = top(last, "backlog", "consumer_group", "topic")
    if not row["backlog"]:
        most = top(table, "highest", "consumer_group", "topic")
        return Finding(
            gettext_noop(
                "At the end, every group had read everything. The longest backlog was that of "
                "%(name)s in %(topic)s: %(backlog)s messages."
            ),
            _figures(most, backlog=most["highest"]),
        )
    if row["drain_ms"] is None:
        return Finding(
            gettext_noop(
                "%(name)s is furthest behind in %(topic)s, with %(backlog)s messages at the "
                "end, and isn't catching up: it reads %(reads)s a minute while %(comes)s "
                "arrive."
            ),
            _figures(row, backlog=row["backlog"]),
        )
    return Finding(
        gettext_noop(
            "%(name)s is furthest behind in %(topic)s, with %(backlog)s messages at the end, "
            "and needs %(drain)s to catch up: it reads %(reads)s a minute while %(comes)s "
            "arrive."
        ),
        {
            **_figures(row, backlog=row["backlog"]),
            "drain": Figure(row["drain_ms"], "milliseconds"),
        },
    )


def _figures(row: dict[str, Any], backlog: int) -> dict[str, Figure]:
    return {
        "name": Figure(str(row["consumer_group"])),
        "topic": Figure(str(row["topic"])),
        "backlog": Figure(backlog, "messages"),
        "reads": Figure(row["reads_a_minute"], "messages"),
        "comes": Figure(row["comes_a_minute"], "messages"),
    }


REPORT = Report(
    name="drain",
    title=gettext_noop("Backlog and drain time"),
    question=gettext_noop(
        "How far behind is each group, how fast does it read, and when will it catch up?"
    ),
    parameters=(SAMPLED_HOURS, TOPIC, COMPARE, GROUP),
    samples=("lag", "consumed", "put"),
    transform=backlogs_and_speeds,
    needs=(JAVA,),
    columns=(
        Column("time", TimestampType(), gettext_noop("From (UTC)")),
        Column("consumer_group", StringType(), gettext_noop("Consumer group"), link="group"),
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("backlog", LongType(), gettext_noop("Backlog at end"), "messages"),
        Column(
            "drain_ms",
            LongType(),
            gettext_noop("Time to drain"),
            "milliseconds",
            missing=gettext_noop("not at this rate"),
        ),
        Column("reads_a_minute", LongType(), gettext_noop("Read per minute"), "messages"),
        Column("comes_a_minute", LongType(), gettext_noop("Received per minute"), "messages"),
        Column("arrived", LongType(), gettext_noop("Messages received"), "messages"),
        Column("highest", LongType(), gettext_noop("Longest backlog"), "messages", is_shown=False),
        Column("consumed", LongType(), gettext_noop("Messages read"), "messages", is_shown=False),
    ),
    sorted_by=("time", "backlog", "consumer_group", "topic"),
    totals=(
        Total(
            "highest",
            gettext_noop("Longest backlog"),
            "max",
            "highest",
            "messages",
            gettext_noop("of one group in one topic"),
        ),
        Total("consumed", gettext_noop("Messages read"), "sum", "consumed", "messages"),
        Total(
            "arrived",
            gettext_noop("Messages received"),
            "sum",
            "arrived",
            "messages",
            gettext_noop("counted once for each group of the topic"),
        ),
        Total("groups", gettext_noop("Consumer groups"), "distinct", "consumer_group"),
    ),
    chart=Chart(
        gettext_noop("Unread messages by group"),
        time="time",
        value="backlog",
        series="consumer_group",
        step_seconds=300,
        is_reading=True,
    ),
    breakdown=Breakdown(
        gettext_noop("By group"), by="consumer_group", sums=("consumed", "arrived")
    ),
    find=furthest_behind,
    behind=Behind(first="time", prefixes={"arrived": ""}),
)
