"""Helpers for the tests of plan and read: the rows and damages of a whole store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from analytics.store.decode import COLUMN_TYPES, CheckCrc, Damage, RowFilter
from analytics.store.reader import StoreReader

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.store.plan import ReadPlan
    from tests.analytics.store_builder import StoreBuilder

OFFSETS = pa.schema([("commit_log_offset", pa.int64()), ("store_size", pa.int32())])
WITH_DAMAGE = pa.schema([("commit_log_offset", pa.int64()), ("damage", COLUMN_TYPES["damage"])])
BODIES = pa.schema([("body", pa.binary()), ("topic", pa.string())])
EVERY_TOPIC = RowFilter(include_system_topics=True)


def read(reader: StoreReader, plan: ReadPlan, schema: pa.Schema = OFFSETS) -> list[dict[str, Any]]:
    rows = [
        row
        for split in plan.splits
        for batch in reader.read(
            split, schema, EVERY_TOPIC, check_crc=CheckCrc.TRUE, fail_on_data_loss=False
        )
        for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: row.get("commit_log_offset") or 0)


def offsets(root: Path) -> list[int]:
    reader = StoreReader(root)
    return [row["commit_log_offset"] for row in read(reader, reader.plan())]


def damages(root: Path) -> list[Damage]:
    reader = StoreReader(root)
    return [damage for split in reader.plan().splits for damage in reader.damages(split)]


def expected(builder: StoreBuilder, *, without: tuple[int, ...] = ()) -> list[int]:
    return [
        one.commit_log_offset
        for number, one in enumerate(builder.stored)
        if number not in without and number - len(builder.stored) not in without
    ]
