"""The clients report: which versions and languages each group's clients had, and what changed."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import top, total
from analytics.reports.report import (
    COMPARE,
    SAMPLED_HOURS,
    Breakdown,
    Chart,
    Column,
    Figure,
    Finding,
    Report,
    SamplesQuery,
    Total,
    gettext_noop,
)

NEW, GONE = "new", "gone"

# A client connects to every master, so that brokers do not add up. What a step has and the one
# before did not is new; what that one had is gone. A step in which nothing was sampled is no step.
# The last step of an hour is whole: an hour is in the lake or is not.
CHANGES = """
, steps AS (
    SELECT time, lag(time) OVER (ORDER BY time) AS before, lead(time) OVER (ORDER BY time) AS after
    FROM (
        SELECT DISTINCT start_of_step(minute, $step) AS time
        FROM given WHERE kind IN ('broker', 'group')
    )
), counted AS (
    SELECT start_of_step(minute, $step) AS time,
        kind, consumer_group, name, broker, max(highest) AS clients
    FROM given WHERE kind IN ('consumers', 'producers') GROUP BY ALL
), found AS (
    SELECT time, kind AS role,
        CASE WHEN kind = 'consumers' THEN consumer_group END AS consumer_group,
        CASE WHEN kind = 'producers' THEN split_part(name, '@', 1) END AS producer_group,
        CASE WHEN kind = 'consumers' THEN name ELSE split_part(name, '@', 2) END AS client,
        max(clients) AS clients
    FROM counted GROUP BY ALL
), there AS (
    SELECT found.*, before, after,
        lag(time) OVER each AS time_before, lead(time) OVER each AS time_after
    FROM found JOIN steps USING (time)
    WINDOW each AS (PARTITION BY role, consumer_group, producer_group, client ORDER BY time)
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
    clients::BIGINT AS clients,
    CASE WHEN is_new THEN 'new' WHEN is_gone THEN 'gone' ELSE '' END AS change,
    is_new::BIGINT AS came, is_gone::BIGINT AS went
FROM changes
"""


def what_is_connected(table: pa.Table) -> Finding:
    """Say what most clients are in the end, and what changed last."""
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
                "No group's versions changed; in the end %(part)s of %(all)s clients are %(most)s."
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
            "New versions in groups: %(new)s, gone: %(gone)s; the last change: %(client)s came to "
            "%(group)s. In the end %(part)s of %(all)s clients are %(most)s."
        )
    else:
        text = gettext_noop(
            "New versions in groups: %(new)s, gone: %(gone)s; the last change: %(client)s went "
            "from %(group)s. In the end %(part)s of %(all)s clients are %(most)s."
        )
    return Finding(text, figures)


REPORT = Report(
    name="clients",
    title=gettext_noop("Versions of clients"),
    question=gettext_noop(
        "Which client versions and languages were connected to each group, and what changed?"
    ),
    parameters=(SAMPLED_HOURS, COMPARE),
    samples=SamplesQuery(metrics=("members", "log_bytes"), text=CHANGES),
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
        Total("kinds", gettext_noop("Kinds of clients"), "distinct", "client"),
        Total("came", gettext_noop("New"), "sum", "came"),
        Total("went", gettext_noop("Gone"), "sum", "went"),
        Total("groups", gettext_noop("Consumer groups"), "distinct", "consumer_group"),
        Total("producers", gettext_noop("Producer groups"), "distinct", "producer_group"),
    ),
    chart=Chart(
        gettext_noop("Clients by version, once for each of their groups"),
        time="time",
        value="clients",
        series="client",
        step_seconds=600,
        is_reading=True,
    ),
    breakdown=Breakdown(gettext_noop("Changes by client"), by="client", sums=("came", "went")),
    find=what_is_connected,
)
