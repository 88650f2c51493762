"""The senders report: how much each host sends to each topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType, TimestampType

from analytics.reports.findings import largest
from analytics.reports.report import (
    JAVA,
    MESSAGE_PARAMETERS,
    Bars,
    Behind,
    Breakdown,
    Column,
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

_PORT = r":[0-9]+$"


def by_host_and_topic(messages: DataFrame, _: Mapping[str, Value], _step: int) -> DataFrame:
    """MESSAGES -> SENDERS: one row for each host and topic; a host is an address without a port."""
    host = F.regexp_replace("born_host", _PORT, "").alias("host")
    senders = messages.groupBy(host, "topic").agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum(F.col("body_size").cast("bigint")).alias("body_bytes"),
        F.max(F.col("body_size").cast("bigint")).alias("largest_body"),
        F.min("store_timestamp").alias("first_stored"),
        F.max("store_timestamp").alias("last_stored"),
    )
    return senders.select(*REPORT.schema.names)


def busiest_host(table: pa.Table) -> Finding:
    """Return the finding on the host that sent most bytes."""
    return largest(
        table,
        "host",
        "body_bytes",
        gettext_noop("%(name)s sent the most: %(part)s of %(all)s in message bodies (%(share)s)."),
        "bytes",
    )


REPORT = Report(
    name="senders",
    title=gettext_noop("Senders by host"),
    question=gettext_noop("Which hosts send how much, and to which topics?"),
    parameters=MESSAGE_PARAMETERS,
    reads=("topic", "born_host", "body_size", "store_timestamp"),
    transform=by_host_and_topic,
    columns=(
        Column("host", StringType(), gettext_noop("Host")),
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("body_bytes", LongType(), gettext_noop("Body bytes"), "bytes"),
        Column("largest_body", LongType(), gettext_noop("Largest body"), "bytes"),
        Column("first_stored", TimestampType(), gettext_noop("First (UTC)")),
        Column("last_stored", TimestampType(), gettext_noop("Last (UTC)")),
    ),
    sorted_by=("body_bytes", "messages", "host", "topic"),
    totals=(
        Total("messages", gettext_noop("Messages"), "sum", "messages", "messages"),
        Total("body_bytes", gettext_noop("Body bytes"), "sum", "body_bytes", "bytes"),
        Total("hosts", gettext_noop("Hosts"), "distinct", "host"),
        Total("largest_body", gettext_noop("Largest body"), "max", "largest_body", "bytes"),
    ),
    bars=Bars(gettext_noop("Body bytes by host"), by="host", value="body_bytes"),
    breakdown=Breakdown(gettext_noop("By host"), by="host", sums=("body_bytes", "messages")),
    find=busiest_host,
    needs=(JAVA,),
    behind=Behind(first="first_stored", last="last_stored"),
)
