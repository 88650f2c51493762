"""The sizes report: how large bodies are, in RocketMQ's own size classes.

Source: broker/metrics/BrokerMetricsConstant.java, BrokerMetricsManager.java (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType

from analytics.reports.findings import permille, top, total
from analytics.reports.report import (
    JAVA,
    MESSAGE_PARAMETERS,
    Bars,
    Behind,
    Breakdown,
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

KIB, MIB = 1024, 1024 * 1024
BOUNDS = (
    (KIB, "≤ 1 KiB"),
    (4 * KIB, "≤ 4 KiB"),
    (512 * KIB, "≤ 512 KiB"),
    (MIB, "≤ 1 MiB"),
    (2 * MIB, "≤ 2 MiB"),
    (4 * MIB, "≤ 4 MiB"),
)
LARGER = "> 4 MiB"


def by_size_and_topic(messages: DataFrame, _: Mapping[str, Value], _step: int) -> DataFrame:
    """MESSAGES -> SIZES: one row for each size class and topic."""
    size = F.col("body_size").cast("bigint")
    bound, words = F.lit(len(BOUNDS)), F.lit(LARGER)
    for place, (bytes_max, label) in reversed(list(enumerate(BOUNDS))):
        bound = F.when(size <= bytes_max, place).otherwise(bound)
        words = F.when(size <= bytes_max, label).otherwise(words)
    sizes = messages.groupBy(
        bound.cast("bigint").alias("size_class"), words.alias("size"), "topic"
    ).agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum(size).alias("body_bytes"),
        F.min(size).alias("smallest_body"),
        F.expr("percentile_disc(0.5) WITHIN GROUP (ORDER BY body_size)")
        .cast("bigint")
        .alias("median_body"),
        F.max(size).alias("largest_body"),
    )
    return sizes.select(*REPORT.schema.names)


def largest_class(table: pa.Table) -> Finding:
    """Return the finding on the size class with most bytes, and its share of messages."""
    classes = table.group_by("size").aggregate([("body_bytes", "sum"), ("messages", "sum")])
    first = top(classes, "body_bytes_sum", "size")
    return Finding(
        gettext_noop(
            "Bodies of %(size)s account for %(bytes)s (%(share)s of all bytes), in "
            "%(messages)s of %(all)s messages. The largest body has %(largest)s."
        ),
        {
            "size": Figure(first["size"]),
            "bytes": Figure(first["body_bytes_sum"], "bytes"),
            "share": Figure(
                permille(first["body_bytes_sum"], total(table, "body_bytes")), "permille"
            ),
            "messages": Figure(first["messages_sum"], "messages"),
            "all": Figure(total(table, "messages"), "messages"),
            "largest": Figure(top(table, "largest_body")["largest_body"], "bytes"),
        },
    )


REPORT = Report(
    name="sizes",
    title=gettext_noop("Message sizes"),
    question=gettext_noop("How large are message bodies, and which sizes account for the bytes?"),
    parameters=MESSAGE_PARAMETERS,
    reads=("topic", "body_size"),
    transform=by_size_and_topic,
    columns=(
        Column("size_class", LongType(), gettext_noop("Size range")),
        Column("size", StringType(), gettext_noop("Body size")),
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("body_bytes", LongType(), gettext_noop("Body bytes"), "bytes"),
        Column("smallest_body", LongType(), gettext_noop("Smallest body"), "bytes"),
        Column("median_body", LongType(), gettext_noop("Median body"), "bytes"),
        Column("largest_body", LongType(), gettext_noop("Largest body"), "bytes"),
    ),
    sorted_by=("size_class", "body_bytes", "topic"),
    totals=(
        Total("messages", gettext_noop("Messages"), "sum", "messages", "messages"),
        Total("body_bytes", gettext_noop("Body bytes"), "sum", "body_bytes", "bytes"),
        Total("largest_body", gettext_noop("Largest body"), "max", "largest_body", "bytes"),
        Total("topics", gettext_noop("Topics"), "distinct", "topic"),
    ),
    bars=Bars(gettext_noop("Messages by body size"), by="size", value="messages", ranked=False),
    breakdown=Breakdown(gettext_noop("By topic"), by="topic", sums=("body_bytes", "messages")),
    find=largest_class,
    needs=(JAVA,),
    behind=Behind(),
)
