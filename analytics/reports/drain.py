"""The drain report: how far behind each group was, its speed, and when it has caught up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import top
from analytics.reports.report import (
    COMPARE,
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
    SamplesQuery,
    Total,
    gettext_noop,
)

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = Parameter(
    name="group",
    type="text",
    label=gettext_noop("Consumer group"),
    help=gettext_noop("Empty: all groups."),
    maximum=255,
)

# A backlog is what the last minute of a step says; what was read and what came is all of the step.
# A group that reads no faster than messages come never catches up: it has no time to drain.
SPEEDS = """
, progress AS (
    SELECT start_of_step(minute, $step) AS time, *
    FROM given
    WHERE kind = 'progress' AND part IS NULL
        AND ($topic IS NULL OR topic = $topic)
        AND ($group IS NULL OR consumer_group = $group)
), backlogs AS (
    SELECT time, consumer_group, topic, broker,
        arg_max(total // weight, minute) AS backlog, max(highest) AS highest
    FROM progress WHERE metric = 'lag' GROUP BY ALL
), reading AS (
    SELECT time, consumer_group, topic, broker, sum(total) AS consumed,
        sum(total) / sum(weight) AS speed
    FROM progress WHERE metric = 'consumed' GROUP BY ALL
), coming AS (
    SELECT start_of_step(minute, $step) AS time,
        topic, broker, sum(total) AS arrived, sum(total) / sum(weight) AS speed
    FROM given WHERE kind = 'topic' AND metric = 'put' AND part IS NULL GROUP BY ALL
), steps AS (
    SELECT backlogs.time, consumer_group, topic,
        sum(backlog)::BIGINT AS backlog,
        sum(highest)::BIGINT AS highest,
        coalesce(sum(consumed), 0)::BIGINT AS consumed,
        coalesce(sum(arrived), 0)::BIGINT AS arrived,
        coalesce(sum(reading.speed), 0) AS reads_a_ms,
        coalesce(sum(coming.speed), 0) AS comes_a_ms
    FROM backlogs
        LEFT JOIN reading USING (time, consumer_group, topic, broker)
        LEFT JOIN coming USING (time, topic, broker)
    GROUP BY ALL
)
SELECT time, consumer_group, topic, backlog, highest, consumed, arrived,
    floor(reads_a_ms * 60000)::BIGINT AS reads_a_minute,
    floor(comes_a_ms * 60000)::BIGINT AS comes_a_minute,
    CASE WHEN backlog = 0 THEN 0
        WHEN reads_a_ms > comes_a_ms THEN ceil(backlog / (reads_a_ms - comes_a_ms))
    END::BIGINT AS drain_ms
FROM steps
"""


def furthest_behind(table: pa.Table) -> Finding:
    """Say which group was furthest behind in the end, and when it has caught up."""
    last = table.filter(pc.equal(table["time"], pc.max(table["time"])))
    row = top(last, "backlog", "consumer_group", "topic")
    if not row["backlog"]:
        most = top(table, "highest", "consumer_group", "topic")
        return Finding(
            gettext_noop(
                "In the end every group has read all; the longest backlog was that of %(name)s "
                "in %(topic)s, %(backlog)s messages."
            ),
            _figures(most, backlog=most["highest"]),
        )
    if row["drain_ms"] is None:
        return Finding(
            gettext_noop(
                "%(name)s is furthest behind in %(topic)s, %(backlog)s messages in the end, and "
                "does not catch up: it reads %(reads)s a minute, and %(comes)s come."
            ),
            _figures(row, backlog=row["backlog"]),
        )
    return Finding(
        gettext_noop(
            "%(name)s is furthest behind in %(topic)s, %(backlog)s messages in the end, and needs "
            "%(drain)s to catch up: it reads %(reads)s a minute, and %(comes)s come."
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
    title=gettext_noop("Backlogs and time to drain"),
    question=gettext_noop(
        "How far behind was each group, how fast does it read, and when has it caught up?"
    ),
    parameters=(SAMPLED_HOURS, TOPIC, COMPARE, GROUP),
    samples=SamplesQuery(metrics=("lag", "consumed", "put"), text=SPEEDS),
    columns=(
        Column("time", TimestampType(), gettext_noop("From (UTC)")),
        Column("consumer_group", StringType(), gettext_noop("Consumer group"), link="group"),
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("backlog", LongType(), gettext_noop("Backlog in the end"), "messages"),
        Column(
            "drain_ms",
            LongType(),
            gettext_noop("Time to drain"),
            "milliseconds",
            missing=gettext_noop("not at this speed"),
        ),
        Column("reads_a_minute", LongType(), gettext_noop("Reads a minute"), "messages"),
        Column("comes_a_minute", LongType(), gettext_noop("Come a minute"), "messages"),
        Column("arrived", LongType(), gettext_noop("Messages that came"), "messages"),
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
            gettext_noop("of a group in a topic"),
        ),
        Total("consumed", gettext_noop("Messages read"), "sum", "consumed", "messages"),
        Total(
            "arrived",
            gettext_noop("Messages that came"),
            "sum",
            "arrived",
            "messages",
            gettext_noop("once for each group of the topic"),
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
