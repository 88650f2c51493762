"""The clients report: the versions and languages of each group's clients, and how they changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import top, total
from analytics.reports.report import (
    COMPARE,
    JAVA,
    SAMPLED_HOURS,
    Breakdown,
    Chart,
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

NEW, GONE = "new", "gone"

# A client connects to every master, so brokers aren't added up. A version is new if the previous
# step didn't have it, and gone if only the previous step had it. Steps without samples are ignored.
# The last step of an hour is complete, because the lake ingests whole hours.
CHANGES = """
WITH stepped AS (
    SELECT timestamp_seconds(floor(unix_seconds(minute) / :step) * :step) AS time, *
    FROM {samples}
), steps AS (
    SELECT time, lag(time) OVER (ORDER BY time) AS before, lead(time) OVER (ORDER BY time) AS after
    FROM (SELECT DISTINCT time FROM stepped WHERE kind IN ('broker', 'group'))
), counted AS (
    SELECT time, kind, consumer_group, name, broker, max(highest) AS clients
    FROM stepped WHERE kind IN ('consumers', 'producers')
    GROUP BY time, kind, consumer_group, name, broker
), found AS (
    SELECT time, role, consumer_group, producer_group, client, max(clients) AS clients
    FROM (
        SELECT time, kind AS role, clients,
            CASE WHEN kind = 'consumers' THEN consumer_group END AS consumer_group,
            CASE WHEN kind = 'producers' THEN split_part(name, '@', 1) END AS producer_group,
            CASE WHEN kind = 'consumers' THEN name ELSE split_part(name, '@', 2) END AS client
        FROM counted
    )
    GROUP BY time, role, consumer_group, producer_group, client
), there AS (
    SELECT found.*, before, after,
        lag(time) OVER alike AS time_before, lead(time) OVER alike AS time_after
    FROM found JOIN steps USING (time)
    WINDOW alike AS (PARTITION BY role, consumer_group, producer_group, client ORDER BY time)
), changes AS (
    SELECT time, role, consumer_group, producer_group, client, clients,
        before IS NOT NULL AND time_before IS DISTINCT FROM before AS is_new, false AS is_gone
    FROM there
    UNION ALL
    SELECT after, role, consumer_group, producer_group, client, 0, false, true
    FROM there WHERE after IS NOT NULL AND time_after IS DISTINCT FROM after
)
SELECT time, role, consumer_group, producer_group, client,
    split_part(client, ' ', 1) AS language, split_part(client, ' ', 2) AS version,
    CAST(clients AS BIGINT) AS clients,
    CASE WHEN is_new THEN 'new' WHEN is_gone THEN 'gone' ELSE '' END AS change,
    CAST(is_new AS BIGINT) AS came, CAST(is_gone AS BIGINT) AS went
FROM changes
"""


def versions_and_changes(
    samples: DataFrame, _: Mapping[str, Value], step_seconds: int
) -> DataFrame:
    """SAMPLES -> CLIENTS: one row for each group, client version and time step."""
    found = samples.sparkSession.sql(CHANGES, {"step": step_seconds}, samples=samples)
    return found.select(*REPORT.schema.names)


def versions_finding(table: pa.Table) -> Finding:
    """Return the finding on the most common version at the end, and the last change."""
    last = table.filter(pc.equal(table["time"], pc.max(table["time"])))
    kinds = last.group_by("client").aggregate([("clients", "sum")])
    most = top(kinds, "clients_sum", "client")
    figures = {
        "most": Figure(str(most["client"])),
        "part": Figure(int(most["clients_sum"]), "messages"),
        "all": Figure(total(last, "clients"), "messages"),
        "new": Figure(total(table, "came"), "messages"),
        "gone": Figure(total(table, "went"), "messages"),
    }
    changed = table.filter(pc.not_equal(table["change"], ""))
    if not changed.num_rows:
        return Finding(
            gettext_noop(
                "No group changed client versions. At the end, %(part)s of %(all)s clients run "
                "%(most)s."
            ),
            figures,
        )
    newest = changed.filter(pc.equal(changed["time"], pc.max(changed["time"])))
    row = top(newest, "came", "role", "client")
    figures |= {
        "group": Figure(str(row["consumer_group"] or row["producer_group"])),
        "client": Figure(str(row["client"])),
    }
    if row["change"] == NEW:
        text = gettext_noop(
            "Client versions in groups: %(new)s added, %(gone)s removed. The last change: "
            "%(client)s joined %(group)s. At the end, %(part)s of %(all)s clients run %(most)s."
        )
    else:
        text = gettext_noop(
            "Client versions in groups: %(new)s added, %(gone)s removed. The last change: "
            "%(client)s left %(group)s. At the end, %(part)s of %(all)s clients run %(most)s."
        )
    return Finding(text, figures)


REPORT = Report(
    name="clients",
    title=gettext_noop("Client versions"),
    question=gettext_noop(
        "Which client versions and languages were connected to each group, and what changed?"
    ),
    parameters=(SAMPLED_HOURS, COMPARE),
    samples=("members", "log_bytes"),
    transform=versions_and_changes,
    needs=(JAVA,),
    columns=(
        Column("time", TimestampType(), gettext_noop("From (UTC)")),
        Column(
            "change",
            StringType(),
            gettext_noop("Change"),
            words={NEW: gettext_noop("new"), GONE: gettext_noop("disconnected")},
        ),
        Column(
            "role",
            StringType(),
            gettext_noop("Role"),
            words={"consumers": gettext_noop("consumers"), "producers": gettext_noop("producers")},
        ),
        Column("consumer_group", StringType(), gettext_noop("Consumer group"), link="group"),
        Column("producer_group", StringType(), gettext_noop("Producer group")),
        Column("client", StringType(), gettext_noop("Client")),
        Column("language", StringType(), gettext_noop("Language"), is_shown=False),
        Column("version", StringType(), gettext_noop("Version"), is_shown=False),
        Column("clients", LongType(), gettext_noop("Clients")),
        Column("came", LongType(), gettext_noop("New"), is_shown=False),
        Column("went", LongType(), gettext_noop("Gone"), is_shown=False),
    ),
    sorted_by=("time", "change", "role", "consumer_group", "producer_group", "client"),
    totals=(
        Total("kinds", gettext_noop("Types of clients"), "distinct", "client"),
        Total("came", gettext_noop("New"), "sum", "came"),
        Total("went", gettext_noop("Gone"), "sum", "went"),
        Total("groups", gettext_noop("Consumer groups"), "distinct", "consumer_group"),
        Total("producers", gettext_noop("Producer groups"), "distinct", "producer_group"),
    ),
    chart=Chart(
        gettext_noop("Clients by version, counted once for each of their groups"),
        time="time",
        value="clients",
        series="client",
        step_seconds=600,
        is_reading=True,
    ),
    breakdown=Breakdown(gettext_noop("Changes by client"), by="client", sums=("came", "went")),
    find=versions_finding,
)
