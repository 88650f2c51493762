"""The files that a table names, their rows, and new files made of them for one commit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.lake.files import FileWriter
from analytics.lake.tables import DAY, MESSAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deltalake import DeltaTable

    from analytics.lake.files import WrittenFile
    from analytics.lake.place import LakePlace
    from analytics.lake.tables import LakeTable

# Rows that are in memory at once.
ROWS_AT_ONCE = 64 * 1024


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that a table with days names now."""

    path: str
    size: int
    rows: int
    day: Any


@dataclass(frozen=True, slots=True)
class LakeFile(StoredFile):
    """One of bronze.messages; least and greatest are of commit log offsets."""

    broker_from: str
    broker_to: str
    least: int
    greatest: int

    def may_hold(self, broker: str, log_from: int, log_to: int) -> bool:
        """Whether messages of a range of a broker's log may be in it."""
        return (
            self.broker_from <= broker <= self.broker_to
            and self.least < log_to
            and self.greatest >= log_from
        )


def files_of(table: DeltaTable) -> list[LakeFile]:
    """Return the files of bronze.messages."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = (
        *("path", "size_bytes", "num_records", f"partition.{DAY}"),
        *("min.broker", "max.broker", "min.commit_log_offset", "max.commit_log_offset"),
    )
    return [
        LakeFile(*row) for row in zip(*(actions[name].to_pylist() for name in names), strict=True)
    ]


def stored_of(file: WrittenFile) -> StoredFile:
    """Return a file that no table names yet as one that does."""
    day = file.partition.get(DAY)
    return StoredFile(file.path, file.size, file.rows, day and date.fromisoformat(day))


def stored_files_of(table: DeltaTable) -> list[StoredFile]:
    """Return the files of any table with days."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "size_bytes", "num_records", f"partition.{DAY}")
    return [
        StoredFile(*row) for row in zip(*(actions[name].to_pylist() for name in names), strict=True)
    ]


def rows_of(
    place: LakePlace,
    file: StoredFile,
    columns: Sequence[str] | None = None,
    table: LakeTable = MESSAGES,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, with its day and null in columns that were added later."""
    wanted = [name for name in table.schema.names if columns is None or name in columns]
    path = place.path_of(table.name, file.path)
    with pq.ParquetFile(path, filesystem=place.filesystem()) as opened:
        there = [name for name in wanted if name in opened.schema_arrow.names]
        for batch in opened.iter_batches(batch_size=ROWS_AT_ONCE, columns=there):
            arrays = [
                pa.repeat(pa.scalar(file.day, pa.date32()), batch.num_rows)
                if name == DAY
                else batch.column(name)
                if name in there
                else pa.nulls(batch.num_rows, table.schema.field(name).type)
                for name in wanted
            ]
            schema = pa.schema([table.schema.field(name) for name in wanted])
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def rewritten(
    place: LakePlace,
    files: Sequence[LakeFile],
    change: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> list[WrittenFile]:
    """Write new files with what `change` makes of the rows of some; nobody names them yet."""
    with FileWriter(place, MESSAGES) as writer:
        for file in files:
            for batch in rows_of(place, file):
                writer.write(change(batch))
    return writer.written
