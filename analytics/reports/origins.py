"""The origins report: messages and bytes stored, by tag, producer group or client host, and time.

The store records a message's tag and host. It records the producer group only for transactions; for
other messages, the group is from the client's trace, if the client sends traces.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import Window, functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports import client_traces
from analytics.reports.findings import permille, top, total
from analytics.reports.report import (
    JAVA,
    MESSAGE_PARAMETERS,
    Behind,
    Breakdown,
    Chart,
    Choice,
    Column,
    Figure,
    Finding,
    Parameter,
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

TAG, GROUP, HOST = "tag", "group", "host"
_PORT = ":[0-9]+$"

BY = Parameter(
    name="by",
    type="text",
    label=gettext_noop("Count by"),
    help=gettext_noop(
        "Producer groups are known only for transactions and for clients that send traces."
    ),
    default=TAG,
    maximum=10,
    choices=(
        Choice(TAG, gettext_noop("Tag")),
        Choice(GROUP, gettext_noop("Producer group")),
        Choice(HOST, gettext_noop("Client host")),
    ),
)


def by_origin_and_time(
    messages: DataFrame, parameters: Mapping[str, Value], step_seconds: int
) -> DataFrame:
    """MESSAGES -> ORIGINS: one row for each topic, origin and time step.

    The origin is null for messages without a tag or a recorded producer group. By producer group,
    MESSAGES includes client traces, which don't count as messages.
    """
    asked = parameters.get(BY.name, TAG)
    if asked == GROUP:
        rows = _with_producer_group(messages)
    elif asked == HOST:
        rows = messages.withColumn("origin", F.regexp_replace("born_host", _PORT, ""))
    else:
        rows = messages.withColumn("origin", F.col("tags"))
    start = start_of_step(F.unix_seconds("store_timestamp"), step_seconds)
    found = rows.groupBy("topic", "origin", start.alias("time")).agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum(F.col("store_size").cast("bigint")).alias("bytes"),
    )
    return found.select(*REPORT.schema.names)


def _with_producer_group(messages: DataFrame) -> DataFrame:
    """Return the messages without traces, each with the group that it or its trace names."""
    # A message without an ID has no trace; a unique value keeps the join from matching others.
    own_id = F.coalesce("uniq_key", F.concat(F.lit(" "), F.unix_micros("store_timestamp")))
    named = F.col("properties")[names.PROPERTY_PRODUCER_GROUP]
    of_same_id = Window.partitionBy("told.id")
    rows = messages.select(
        *("topic", "store_timestamp", "store_size"),
        client_traces.is_trace().alias("is_trace"),
        F.explode(
            F.coalesce(_from_trace(), F.array(F.struct(own_id.alias("id"), named.alias("name"))))
        ).alias("told"),
    )
    traced = F.max(F.when(F.col("is_trace"), F.col("told.name"))).over(of_same_id)
    with_all = rows.withColumn("traced", traced)
    return with_all.where("NOT is_trace").withColumn("origin", F.coalesce("told.name", "traced"))


def _from_trace() -> Expression:
    """Return the group and message IDs in a trace, null for other messages."""
    sends = F.filter(client_traces.records(), lambda record: record[0] == client_traces.PUB)

    def told(record: Expression) -> Expression:
        # A batch has the IDs of all its messages.
        ids = F.split(client_traces.field(record, client_traces.PUB_IDS), ",")
        group = client_traces.field(record, client_traces.PUB_GROUP)
        each = F.transform(ids, lambda one: F.struct(one.alias("id"), group.alias("name")))
        return F.coalesce(each, F.expr("array()").cast("array<struct<id:string,name:string>>"))

    return F.flatten(F.transform(sends, told))


def chosen(parameters: Mapping[str, Value]) -> Report:
    """Return the report for the parameters: producer groups need traces."""
    if parameters.get(BY.name) != GROUP:
        return REPORT
    return dataclasses.replace(
        REPORT,
        reads=("topic", "store_timestamp", "store_size", "uniq_key", "properties", "body"),
        client_traces=True,
    )


def busiest_origin(table: pa.Table) -> Finding:
    """Return the finding on the largest origin, and how many messages have an unknown origin."""
    origins = table.group_by("origin").aggregate([("messages", "sum")])
    everything = total(table, "messages")
    known = [each for each in origins.to_pylist() if each["origin"]]
    told = sum(each["messages_sum"] for each in known)
    figures = {
        "all": Figure(everything, "messages"),
        "untold": Figure(everything - told, "messages"),
    }
    if not known:
        return Finding(gettext_noop("None of the %(all)s messages has a known origin."), figures)
    first = top(origins.filter(pc.is_valid(origins["origin"])), "messages_sum", "origin")
    return Finding(
        gettext_noop(
            "%(name)s stored the most: %(part)s of %(all)s messages (%(share)s). The origin of "
            "%(untold)s is unknown."
        ),
        {
            "name": Figure(first["origin"]),
            "part": Figure(first["messages_sum"], "messages"),
            "share": Figure(permille(first["messages_sum"], everything), "permille"),
            **figures,
        },
    )


REPORT = Report(
    name="origins",
    title=gettext_noop("Traffic by tag, producer group or host"),
    question=gettext_noop("Where do the messages of each topic come from, and when?"),
    parameters=(*MESSAGE_PARAMETERS, BY),
    reads=("topic", "store_timestamp", "store_size", "tags", "born_host"),
    transform=by_origin_and_time,
    chosen=chosen,
    columns=(
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("origin", StringType(), gettext_noop("Origin"), from_messages_of="topic"),
        Column("time", TimestampType(), gettext_noop("From (UTC)")),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("bytes", LongType(), gettext_noop("Bytes"), "bytes"),
    ),
    sorted_by=("time", "topic", "origin"),
    totals=(
        Total("messages", gettext_noop("Messages"), "sum", "messages", "messages"),
        Total("bytes", gettext_noop("Bytes"), "sum", "bytes", "bytes"),
        Total("origins", gettext_noop("Origins"), "distinct", "origin"),
        Total("topics", gettext_noop("Topics"), "distinct", "topic"),
    ),
    chart=Chart(
        gettext_noop("Messages by origin"),
        time="time",
        value="messages",
        series="origin",
        step_seconds=60,
    ),
    breakdown=Breakdown(gettext_noop("By origin"), by="origin", sums=("messages", "bytes")),
    find=busiest_origin,
    needs=(JAVA,),
    behind=Behind(first="time"),
)
