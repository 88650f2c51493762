"""The owners report: how much each owner stores; the owner is a prefix of the topic name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window, functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import LongType, StringType

from analytics.reports.findings import largest
from analytics.reports.report import (
    JAVA,
    MESSAGE_PARAMETERS,
    Bars,
    Behind,
    Breakdown,
    Choice,
    Column,
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

SEPARATORS = {"hyphen": "-", "underscore": "_", "percent": "%"}
SEPARATOR_DEFAULT = "hyphen"

SEPARATOR = Parameter(
    name="separator",
    type="text",
    label=gettext_noop("Owner separator"),
    help=gettext_noop("A topic without the separator is its own owner."),
    default=SEPARATOR_DEFAULT,
    maximum=10,
    choices=(
        Choice("hyphen", gettext_noop("hyphen: shop-orders")),
        Choice("underscore", gettext_noop("underscore: shop_orders")),
        Choice("percent", gettext_noop("percent sign: namespace%orders")),
    ),
)


def by_owner_and_topic(
    messages: DataFrame, parameters: Mapping[str, Value], _step: int
) -> DataFrame:
    """MESSAGES -> OWNERS: one row for each topic, with its owner and its share of all bytes."""
    separator = SEPARATORS[str(parameters.get(SEPARATOR.name, SEPARATOR_DEFAULT))]
    everything = Window.partitionBy(F.lit(1))
    topics = messages.groupBy("topic").agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum(F.col("store_size").cast("bigint")).alias("bytes"),
    )
    # A name that begins with the separator has no owner.
    before = F.substring_index("topic", separator, 1)
    owner = F.when(before != "", before).otherwise(F.col("topic"))
    shared = topics.select("*", owner.alias("owner"), F.sum("bytes").over(everything).alias("all"))
    return shared.select(
        *("owner", "topic", "messages", "bytes"), F.expr("bytes * 1000 div all").alias("share")
    )


def largest_owner(table: pa.Table) -> Finding:
    """Return the finding on the owner that stores most."""
    return largest(
        table,
        "owner",
        "bytes",
        gettext_noop("%(name)s stores the most: %(part)s of %(all)s (%(share)s)."),
        "bytes",
    )


REPORT = Report(
    name="owners",
    title=gettext_noop("Storage by owner"),
    question=gettext_noop("How much does each owner store, by the first part of the topic name?"),
    parameters=(*MESSAGE_PARAMETERS, SEPARATOR),
    reads=("topic", "store_size"),
    transform=by_owner_and_topic,
    columns=(
        Column("owner", StringType(), gettext_noop("Owner")),
        Column("topic", StringType(), gettext_noop("Topic"), link="topic"),
        Column("messages", LongType(), gettext_noop("Messages"), "messages"),
        Column("bytes", LongType(), gettext_noop("Bytes"), "bytes"),
        Column("share", LongType(), gettext_noop("Share of all bytes"), "permille"),
    ),
    sorted_by=("bytes", "owner", "topic"),
    totals=(
        Total("bytes", gettext_noop("Bytes"), "sum", "bytes", "bytes"),
        Total("messages", gettext_noop("Messages"), "sum", "messages", "messages"),
        Total("owners", gettext_noop("Owners"), "distinct", "owner"),
        Total("topics", gettext_noop("Topics"), "distinct", "topic"),
    ),
    bars=Bars(gettext_noop("Bytes by owner"), by="owner", value="bytes"),
    breakdown=Breakdown(gettext_noop("By owner"), by="owner", sums=("bytes", "messages")),
    find=largest_owner,
    needs=(JAVA,),
    behind=Behind(),
)
