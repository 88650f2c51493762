"""The tables of gold: what is counted of messages, and how rows of them become fewer.

Rows add up: those of a minute may be in several files, one for each batch. `merged` says the same
in one row each.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from analytics.lake.tables import DAY, TABLES, LakeTable
from analytics.store.decode import UTC_TIMESTAMP

KEYS_A_TOPIC = 1000
# Buckets an octave are half as many: the bound of a bucket is at most 1/16 above what is in it.
_SIGNIFICANT_BITS = 5
FROM_THE_FUTURE = -1
_MINUTE = "make_timestamp(epoch_us(store_timestamp) // 60000000 * 60000000) AS minute"
_MS = "epoch_ms(store_timestamp) - epoch_ms(born_timestamp)"
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
        closed: the query from the rows of a day that has ended to what is kept of it.
    """

    table: LakeTable
    reads: tuple[str, ...]
    counted: str
    closed: str


_TRAFFIC_MERGED = """
SELECT day, broker, topic, minute, sum(messages)::BIGINT AS messages, sum(bytes)::BIGINT AS bytes,
    sum(body_bytes)::BIGINT AS body_bytes
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
SELECT day, broker, topic, {_MINUTE}, count(*) AS messages, sum(store_size)::BIGINT AS bytes,
    sum(body_size)::BIGINT AS body_bytes
FROM given GROUP BY ALL
""",
    closed=_TRAFFIC_MERGED + "ORDER BY topic, broker, minute",
)
_LATENCY_MERGED = """
SELECT day, broker, topic, minute, at_most_ms, sum(messages)::BIGINT AS messages,
    sum(sum_ms)::BIGINT AS sum_ms, max(max_ms) AS max_ms
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
        ELSE (((ms >> {_SHIFT}) + 1) << {_SHIFT}) - 1 END AS at_most_ms,
    count(*) AS messages, sum(ms)::BIGINT AS sum_ms, max(ms) AS max_ms
FROM (
    SELECT day, broker, topic, {_MINUTE}, {_MS} AS ms FROM given WHERE born_timestamp IS NOT NULL
)
GROUP BY ALL
""",
    closed=_LATENCY_MERGED + "ORDER BY topic, broker, minute, at_most_ms",
)
_KEYS_MERGED = """
SELECT day, broker, topic, key,
    CASE WHEN key IS NULL THEN sum(key_count)::BIGINT ELSE 1 END AS key_count,
    sum(messages)::BIGINT AS messages, sum(bytes)::BIGINT AS bytes
FROM given GROUP BY day, broker, topic, key
"""
KEYS = GoldTable(
    LakeTable(
        "gold.keys_day",
        f"messages of each key and day; of a day that ended the {KEYS_A_TOPIC} most frequent of "
        "each topic, the others in a row without a key",
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
        # Never the key: the table's log would tell what was forgotten.
        statistics=("broker", "topic"),
        merged=_KEYS_MERGED,
    ),
    reads=(DAY, "broker", "topic", "store_size", "keys"),
    counted="""
SELECT day, broker, topic, key, 1::BIGINT AS key_count, count(*) AS messages,
    sum(store_size)::BIGINT AS bytes
FROM (SELECT day, broker, topic, store_size, unnest(list_distinct(keys)) AS key FROM given)
GROUP BY day, broker, topic, key
""",
    closed=f"""
SELECT day, broker, topic, CASE WHEN place <= {KEYS_A_TOPIC} THEN key END AS key,
    sum(key_count)::BIGINT AS key_count, sum(messages)::BIGINT AS messages,
    sum(bytes)::BIGINT AS bytes
FROM (
    SELECT *, row_number() OVER (
        PARTITION BY day, broker, topic ORDER BY key IS NULL, messages DESC, key
    ) AS place
    FROM ({_KEYS_MERGED})
)
GROUP BY ALL ORDER BY topic, broker, messages DESC, key
""",
)
GOLD = (TRAFFIC, LATENCY, KEYS)
EVERY_TABLE = (*TABLES, *(gold.table for gold in GOLD))
