"""The writing of one part of a batch: from a range of the log to Parquet files, in any process.

Both executors run this: our own process, or Spark's workers. Nothing is visible to readers before
the batch is committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.bodies import BodyRules
from analytics.lake.files import FileWriter
from analytics.lake.tables import DAY, MESSAGES, OF_A_MESSAGE
from analytics.store.decode import COLUMN_TYPES, DAMAGE_TYPE, RowFilter
from analytics.store.plan import SPLIT_BYTES_DEFAULT
from analytics.store.reader import StoreReader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Protocol

    from analytics.lake.files import WrittenFile
    from analytics.lake.place import LakePlace
    from analytics.store.plan import Split

    class Executor(Protocol):
        """Runs `write_part` for each part of a batch, wherever; parts are of so many bytes."""

        @property
        def split_bytes(self) -> int: ...

        def write(self, task: WriteTask, parts: Sequence[Split]) -> list[WrittenPart]: ...


# What a person or their business is told by; the rest says that a message was there.
CONTENT = ("tags", "keys", "uniq_key", "properties", "born_host", "body")


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What all parts of a batch have in common.

    Attributes:
        forgotten: offsets of messages whose content must not come back.
        from_ms: messages stored earlier are left out.
    """

    place: LakePlace
    store: Path
    commit_log: Path | None
    broker: str
    rules: BodyRules = field(default_factory=BodyRules)
    forgotten: frozenset[int] = frozenset()
    from_ms: int | None = None

    def reader(self, split_bytes: int = SPLIT_BYTES_DEFAULT) -> StoreReader:
        return StoreReader(self.store, commit_log_path=self.commit_log, split_bytes=split_bytes)


@dataclass(frozen=True, slots=True)
class Unread:
    """A range of the log that could not be read."""

    commit_log_from: int
    commit_log_to: int
    reason: str


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """What became of one part."""

    files: list[WrittenFile]
    unread: list[Unread]


class HereExecutor:
    """Writes the parts of a batch in this process, one after the other; needs no Java."""

    split_bytes = SPLIT_BYTES_DEFAULT

    def write(self, task: WriteTask, parts: Sequence[Split]) -> list[WrittenPart]:
        return [write_part(task, parts)] if parts else []


def write_part(task: WriteTask, splits: Sequence[Split]) -> WrittenPart:
    """Write the messages of some ranges of the log to durable files that nobody names yet."""
    schema = _read_schema(task)
    reader = task.reader()
    unread: list[Unread] = []
    rows = RowFilter(from_ms=task.from_ms)
    with FileWriter(task.place, MESSAGES) as writer:
        for split in splits:
            for batch in reader.read(split, schema, rows, fail_on_data_loss=False):
                damage = batch.column("damage")
                if damage.null_count < len(damage):
                    unread += [
                        Unread(one["commit_log_from"], one["commit_log_to"], one["reason"])
                        for one in damage.to_pylist()
                    ]
                    continue
                writer.write(lake_rows(batch, task))
    return WrittenPart(writer.written, unread)


def lake_rows(batch: pa.RecordBatch, task: WriteTask) -> pa.RecordBatch:
    """Return what the lake keeps of decoded messages."""
    count = batch.num_rows
    # Never null: a record whose time of storing is no date is damage.
    days = batch.column("store_timestamp").cast(pa.date32())
    columns = {name: batch.column(name) for name in batch.schema.names}
    if task.rules:
        columns["body"] = task.rules.applied(columns["topic"], columns["body"])
    else:
        columns["body"] = pa.nulls(count, pa.binary())
    columns |= {DAY: days, "broker": pa.repeat(task.broker, count)}
    rows = pa.RecordBatch.from_arrays(
        [columns[name] for name in MESSAGES.schema.names], schema=MESSAGES.schema
    )
    return without_content(rows, task.forgotten) if task.forgotten else rows


def without_content(rows: pa.RecordBatch, offsets: frozenset[int]) -> pa.RecordBatch:
    """Return the rows, those at some offsets without what they said."""
    wanted = pa.array(sorted(offsets), type=pa.int64())
    is_forgotten = pc.is_in(rows.column("commit_log_offset"), value_set=wanted)
    if not pc.any(is_forgotten).as_py():
        return rows
    kept = pc.if_else(is_forgotten, None, pa.array(range(rows.num_rows), type=pa.int64()))
    return pa.RecordBatch.from_arrays(
        [
            rows.column(field.name).take(kept) if field.name in CONTENT else rows.column(field.name)
            for field in rows.schema
        ],
        schema=rows.schema,
    )


def _read_schema(task: WriteTask) -> pa.Schema:
    names = [name for name in OF_A_MESSAGE if name != "body" or task.rules]
    return pa.schema(
        [*(pa.field(name, COLUMN_TYPES[name]) for name in names), pa.field("damage", DAMAGE_TYPE)]
    )
