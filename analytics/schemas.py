"""A StructType for each frame that crosses a module boundary.

MESSAGES          one row for each stored message, as the commitlog source yields it
CLUSTER_MESSAGES  the same from a cluster, with the broker's name, as the rocketmq source yields it
DAMAGE            a range of the CommitLog, or of a queue, that isn't readable
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from analytics.store import grouping

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# Hosts are "ip:port". The body is as stored: still compressed if sys_flag says so, unless the
# reader is asked to decompress it. The client sets born_timestamp; it is null if it isn't a valid
# date. Tags, keys and uniq_key are also in properties, and null if they aren't set.
MESSAGES = StructType(
    [
        StructField("commit_log_offset", LongType()),
        StructField("topic", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("queue_offset", LongType()),
        StructField("store_timestamp", TimestampType()),
        StructField("store_size", IntegerType()),
        StructField("born_timestamp", TimestampType()),
        StructField("born_host", StringType()),
        StructField("store_host", StringType()),
        StructField("flag", IntegerType()),
        StructField("sys_flag", IntegerType()),
        StructField("reconsume_times", IntegerType()),
        StructField("prepared_transaction_offset", LongType()),
        StructField("body_crc", IntegerType()),
        StructField("body_size", IntegerType()),
        StructField("body", BinaryType()),
        StructField("tags", StringType()),
        StructField("keys", ArrayType(StringType())),
        StructField("uniq_key", StringType()),
        StructField("properties", MapType(StringType(), StringType())),
    ]
)

BROKER_NAME = "broker_name"

CLUSTER_MESSAGES = StructType([StructField(BROKER_NAME, StringType()), *MESSAGES])

DAMAGE = StructType(
    [
        StructField("file", StringType()),
        StructField("commit_log_from", LongType()),
        StructField("commit_log_to", LongType()),
        StructField("reason", StringType()),
    ]
)

DAMAGE_COLUMN = "damage"
MESSAGES_COLUMN = grouping.MESSAGES_COLUMN


def messages_with(
    columns: Iterable[str], *, damage: bool = False, grouped_by: Collection[str] = ()
) -> StructType:
    """Return the columns of MESSAGES that a report reads; the source decodes nothing else.

    With `damage`, there are additional rows for unreadable ranges; their other columns are null.
    With `grouped_by`, a row represents as many messages as `messages` says, and the other columns
    are sums.
    """
    fields = [
        StructField(name, LongType()) if grouped_by and name not in grouped_by else MESSAGES[name]
        for name in columns
    ]
    if grouped_by:
        fields.append(StructField(MESSAGES_COLUMN, LongType()))
    return StructType([*fields, StructField(DAMAGE_COLUMN, DAMAGE)] if damage else fields)
