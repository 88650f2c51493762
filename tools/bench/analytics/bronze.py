"""Bronze tables for measurements: millions of message rows without a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.files import FileWriter
from analytics.lake.tables import DAY, MESSAGES
from analytics.sample_log import (
    BODY_BYTES,
    DAY_MS,
    DAYS,
    KEYS,
    LATENCY_MS_MAX,
    QUEUES,
    TOPICS,
    uniq_key,
)

if TYPE_CHECKING:
    from analytics.lake.place import LakePlace

# Rows per commit, with one file per day, as ingest and compaction leave them.
ROWS_A_COMMIT = 1_000_000
ROWS_A_BATCH = 100_000
RECORD_BYTES = 500
BROKER = "bench"
HOST = "127.0.0.1:10911"
TAGS = "paid"
_DIGITS = 12


def write_bronze(place: LakePlace, rows: int, last_ms: int) -> None:
    """Fill an empty table with messages like those of `write_log`, using the lake's writer."""
    for first in range(0, rows, ROWS_A_COMMIT):
        behind = min(first + ROWS_A_COMMIT, rows)
        opened = MESSAGES.open(place)
        with FileWriter(place, MESSAGES) as writer:
            for start in range(first, behind, ROWS_A_BATCH):
                numbers = np.arange(start, min(start + ROWS_A_BATCH, behind))
                writer.write(_batch(numbers, rows, last_ms))
        MESSAGES.commit(place, opened, writer.written)


def _batch(numbers: np.ndarray, rows: int, last_ms: int) -> pa.RecordBatch:
    count = len(numbers)
    stored = last_ms - (rows - 1 - numbers) * (DAYS * DAY_MS) // rows
    keys = _named("order-", numbers * 31 % KEYS, 5)
    unique = _named(uniq_key(0)[:-_DIGITS], numbers, _DIGITS)
    times = pa.array(stored * 1000, pa.int64())
    columns = {
        DAY: pc.cast(pc.cast(times, pa.timestamp("us", "UTC")), pa.date32()),
        "broker": pa.repeat(BROKER, count),
        "commit_log_offset": numbers * RECORD_BYTES,
        "topic": _named("bench-", numbers % TOPICS, 2),
        "queue_id": numbers // TOPICS % QUEUES,
        "queue_offset": numbers // (TOPICS * QUEUES),
        "store_timestamp": times,
        "born_timestamp": (stored - numbers * 7919 % LATENCY_MS_MAX) * 1000,
        "store_size": np.full(count, RECORD_BYTES),
        "body_size": np.full(count, BODY_BYTES),
        "body_crc": numbers * 2654435761 % (1 << 31),
        "tags": pa.repeat(TAGS, count),
        "keys": pa.ListArray.from_arrays(pa.array(np.arange(count + 1), pa.int32()), keys),
        "uniq_key": unique,
        "properties": _properties(unique, keys),
        "born_host": pa.repeat(HOST, count),
        "store_host": pa.repeat(HOST, count),
        "body": pa.nulls(count, pa.binary()),
    }
    zeros = np.zeros(count, dtype=np.int64)
    return pa.RecordBatch.from_arrays(
        [pc.cast(pa.array(columns.get(each.name, zeros)), each.type) for each in MESSAGES.schema],
        schema=MESSAGES.schema,
    )


def _named(prefix: str, numbers: np.ndarray, digits: int) -> pa.Array:
    padded = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), digits, "0")
    return pc.binary_join_element_wise(prefix, padded, "")


def _properties(unique: pa.Array, keys: pa.Array) -> pa.Array:
    count = len(unique)
    names = pa.array(["UNIQ_KEY", "KEYS", "TAGS", "WAIT"])
    values = pa.concat_arrays([unique, keys, pa.array([TAGS, "true"])])
    fixed = np.tile([2 * count, 2 * count + 1], (count, 1))
    order = np.column_stack([np.arange(count), np.arange(count) + count, fixed]).ravel()
    return pa.MapArray.from_arrays(
        pa.array(np.arange(count + 1) * len(names), pa.int32()),
        names.take(pa.array(np.tile(np.arange(len(names)), count))),
        values.take(pa.array(order)),
    )
