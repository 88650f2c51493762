r"""The trace messages of RocketMQ clients, as frames.

A message of RMQ_SYS_TRACE_TOPIC holds records that end with \x02, and whose fields are separated by
\x01; trailing fields may be missing, and the first is the kind. A client sends traces if it is
configured to, with some seconds' delay. Source: client/trace/TraceDataEncoder.java (4.9.7, 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation

from broker_core.message import names

if TYPE_CHECKING:
    from pyspark.sql import Column

RECORD_END, FIELD_END = "\x02", "\x01"
PUB, SUB_BEFORE, SUB_AFTER = "Pub", "SubBefore", "SubAfter"
# Indices of the fields that reports use, by kind of record.
PUB_GROUP, PUB_IDS = 3, 5
BEFORE_TIME, BEFORE_GROUP, BEFORE_REQUEST, BEFORE_ID, BEFORE_TRIES = 1, 3, 4, 5, 6
AFTER_REQUEST, AFTER_ID, AFTER_COST, AFTER_SUCCESS, AFTER_RETURN = 1, 2, 3, 4, 6


def is_trace() -> Column:
    """Return whether a row of MESSAGES is a client trace."""
    return F.col("topic") == names.RMQ_SYS_TRACE_TOPIC


def records() -> Column:
    """Return the records of a row of MESSAGES as arrays of fields; empty if it isn't a trace."""
    texts = F.split(F.col("body").cast("string"), RECORD_END)
    split = F.transform(texts, lambda text: F.split(text, FIELD_END))
    return F.when(is_trace(), split)


def field(record: Column, index: int | Column) -> Column:
    """Return a field, null if it is missing or "null"."""
    place = F.lit(index + 1) if isinstance(index, int) else index + 1
    value = F.try_element_at(record, place)
    return F.when(~value.isin("", "null"), value)


def number(record: Column, index: int) -> Column:
    """Return a field as an integer, null if it isn't one."""
    return field(record, index).try_cast("bigint")


def of_try(record: Column, before: int, after: int) -> Column:
    """Return a field of a try's beginning or end, which differ in its position."""
    is_before = record[0] == SUB_BEFORE
    return field(record, F.when(is_before, F.lit(before)).otherwise(F.lit(after)))
