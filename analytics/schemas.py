"""A StructType for each frame that crosses a module.

MESSAGES   one row a stored message, as the commitlog source yields it
DAMAGE     a range of the CommitLog that could not be read
TRAFFIC    one row a topic and UTC minute
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

# Bytes stay bytes: hosts are the raw address (4 or 16) with a 4-byte port, properties the
# \x01 \x02 text, the body as stored (still compressed when sys_flag says so). A born_timestamp
# is the client's word and null where it is no date.
MESSAGES = StructType(
    [
        StructField("commit_log_offset", LongType()),
        StructField("topic", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("queue_offset", LongType()),
        StructField("store_timestamp", TimestampType()),
        StructField("store_size", IntegerType()),
        StructField("born_timestamp", TimestampType()),
        StructField("born_host", BinaryType()),
        StructField("store_host", BinaryType()),
        StructField("flag", IntegerType()),
        StructField("sys_flag", IntegerType()),
        StructField("reconsume_times", IntegerType()),
        StructField("prepared_transaction_offset", LongType()),
        StructField("body_crc", IntegerType()),
        StructField("body_size", IntegerType()),
        StructField("body", BinaryType()),
        StructField("properties", BinaryType()),
    ]
)

DAMAGE = StructType(
    [
        StructField("file", StringType()),
        StructField("commit_log_from", LongType()),
        StructField("commit_log_to", LongType()),
        StructField("reason", StringType()),
    ]
)

DAMAGE_COLUMN = "damage"

TRAFFIC = StructType(
    [
        StructField("topic", StringType()),
        StructField("minute", TimestampType()),
        StructField("messages", LongType()),
        StructField("bytes", LongType()),
    ]
)


def messages_with(columns: Iterable[str], *, damage: bool = False) -> StructType:
    """Return the part of MESSAGES that a report reads; the source decodes nothing else.

    With `damage`, rows whose other columns are null stand for ranges that could not be read.
    """
    fields = [MESSAGES[name] for name in columns]
    return StructType([*fields, StructField(DAMAGE_COLUMN, DAMAGE)] if damage else fields)
