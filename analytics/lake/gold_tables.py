"""The tables of gold: their counts, and how rows are merged.

Rows add up: the rows of a minute may be in several files, one for each batch. `merged` combines
them into one row each. The queries are Spark SQL that DuckDB also understands: see
`analytics.lake.writer`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from analytics.lake.tables import DAY, TABLES, LakeTable
from analytics.store.decode import UTC_TIMESTAMP

KEYS_A_TOPIC = 1000
# Limit per batch: a topic with unique keys must not add a row for each message.
KEYS_A_BATCH = 10_000
# Half this many buckets per octave: a bucket's bound is at most 1/16 above its values.
_SIGNIFICANT_BITS = 5
FROM_THE_FUTURE = -1
_MICROS = "unix_micros(store_timestamp)"
_MINUTE = f"timestamp_micros({_MICROS} - {_MICROS} % 60000000) AS minute"
_MS = "unix_millis(store_timestamp) - unix_millis(born_timestamp)"
_SHIFT = f"greatest(0, length(bin(ms)) - {_SIGNIFICANT_BITS})"
_BY_MINUTE = (
    pa.field(DAY, pa.date32()),
    pa.field("broker", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("minute", UTC_TIMESTAMP),
)


@dataclass(frozen=True, slots=True)
class GoldTable:
    """A table that is computed from bronze.messages.

    Attributes:
        reads: the columns of bronze.messages that it needs.
        counted: the query from messages to rows of the table.
        closed: the query that reduces the rows of a finished day.
        ordered_by: the sort columns of a finished day's file.
    """

    table: LakeTable
    reads: tuple[str, ...]
    counted: str
    closed: str
    ordered_by: tuple[str, ...]


_TRAFFIC_MERGED = """
SELECT day, broker, topic, minute, CAST(sum(messages) AS BIGINT) AS messages,
    CAST(sum(bytes) AS BIGINT) AS bytes, CAST(sum(body_bytes) AS BIGINT) AS body_bytes
FROM given GROUP BY day, broker, topic, minute
"""
TRAFFIC = GoldTable(
    LakeTable(
        "gold.traffic_minute",
        "messages and bytes of each topic and minute of storing",
        pa.schema(
            [
                *_BY_MINUTE,
                pa.field("messages", pa.int64()),
                pa.field("bytes", pa.int64()),
                pa.field("body_bytes", pa.int64()),
            ]
        ),
        partition_by=(DAY,),
        statistics=("broker", "topic", "minute"),
        merged=_TRAFFIC_MERGED,
    ),
    reads=(DAY, "broker", "topic", "store_timestamp", "store_size", "body_size"),
    counted=f"""
SELECT day, broker, topic, {_MINUTE}, count(*) AS messages,
    CAST(sum(store_size) AS BIGINT) AS bytes, CAST(sum(body_size) AS BIGINT) AS body_bytes
FROM given GROUP BY ALL
""",
    closed=_TRAFFIC_MERGED,
    ordered_by=("topic", "broker", "minute"),
)
_LATENCY_MERGED = """
SELECT day, broker, topic, minute, at_most_ms, CAST(sum(messages) AS BIGINT) AS messages,
    CAST(sum(sum_ms) AS BIGINT) AS sum_ms, max(max_ms) AS max_ms
FROM given GROUP BY day, broker, topic, minute, at_most_ms
"""
LATENCY = GoldTable(
    LakeTable(
        "gold.latency_minute",
        "how long messages took from their producer to the log: a histogram of each topic and "
        "minute, one row for each bucket",
        pa.schema(
            [
                *_BY_MINUTE,
                pa.field("at_most_ms", pa.int64()),
                pa.field("messages", pa.int64()),
                pa.field("sum_ms", pa.int64()),
                pa.field("max_ms", pa.int64()),
            ]
        ),
        partition_by=(DAY,),
        statistics=("broker", "topic", "minute"),
        merged=_LATENCY_MERGED,
    ),
    reads=(DAY, "broker", "topic", "store_timestamp", "born_timestamp"),
    counted=f"""
SELECT day, broker, topic, minute,
    CASE WHEN ms < 0 THEN {FROM_THE_FUTURE}
        ELSE shiftleft(shiftright(ms, {_SHIFT}) + 1, {_SHIFT}) - 1 END AS at_most_ms,
    count(*) AS messages, CAST(sum(ms) AS BIGINT) AS sum_ms, max(ms) AS max_ms
FROM (
    SELECT day, broker, topic, {_MINUTE}, {_MS} AS ms FROM given WHERE born_timestamp IS NOT NULL
)
GROUP BY ALL
""",
    closed=_LATENCY_MERGED,
    ordered_by=("topic", "broker", "minute", "at_most_ms"),
)
_KEYS_MERGED = """
SELECT day, broker, topic, key,
    CASE WHEN key IS NULL THEN CAST(sum(key_count) AS BIGINT) ELSE 1 END AS key_count,
    CAST(sum(messages) AS BIGINT) AS messages, CAST(sum(bytes) AS BIGINT) AS bytes
FROM given GROUP BY day, broker, topic, key
"""
_KEYS_COUNTED = """
SELECT day, broker, topic, key, 1 AS key_count, count(*) AS messages,
    CAST(sum(store_size) AS BIGINT) AS bytes
FROM (SELECT day, broker, topic, store_size, explode(array_distinct(keys)) AS key FROM given)
GROUP BY day, broker, topic, key
"""


def _most_frequent(counted: str, count: int) -> str:
    """Return a query that keeps each topic's most frequent keys, and one row for the others."""
    return f"""
SELECT day, broker, topic, CASE WHEN place <= {count} THEN key END AS key,
    CAST(sum(key_count) AS BIGINT) AS key_count, CAST(sum(messages) AS BIGINT) AS messages,
    CAST(sum(bytes) AS BIGINT) AS bytes
FROM (
    SELECT *, row_number() OVER (
        PARTITION BY day, broker, topic ORDER BY key IS NULL, messages DESC, key
    ) AS place
    FROM ({counted})
)
GROUP BY day, broker, topic, CASE WHEN place <= {count} THEN key END
"""


KEYS = GoldTable(
    LakeTable(
        "gold.keys_day",
        f"messages of each key and day; past days have each topic's {KEYS_A_TOPIC} most frequent "
        "keys, and one row without a key for the rest",
        pa.schema(
            [
                pa.field(DAY, pa.date32()),
                pa.field("broker", pa.string()),
                pa.field("topic", pa.string()),
                pa.field("key", pa.string()),
                pa.field("key_count", pa.int64()),
                pa.field("messages", pa.int64()),
                pa.field("bytes", pa.int64()),
            ]
        ),
        partition_by=(DAY,),
        # Never the key: the table's log would reveal erased keys.
        statistics=("broker", "topic"),
        merged=_KEYS_MERGED,
    ),
    reads=(DAY, "broker", "topic", "store_size", "keys"),
    counted=_most_frequent(_KEYS_COUNTED, KEYS_A_BATCH),
    closed=_most_frequent(_KEYS_MERGED, KEYS_A_TOPIC),
    ordered_by=("topic", "broker", "messages", "key"),
)
GOLD = (TRAFFIC, LATENCY, KEYS)
EVERY_TABLE = (*TABLES, *(gold.table for gold in GOLD))
