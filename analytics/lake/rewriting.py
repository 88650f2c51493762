"""The files of a table, their rows, and new files made from them for one commit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
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

# Rows in memory at a time.
ROWS_AT_ONCE = 64 * 1024


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the current version of a table with days."""

    path: str
    size: int
    rows: int
    day: Any

    @property
    def order(self) -> tuple[str, int]:
        """The sort key among the files of a day."""
        return self.path, 0


@dataclass(frozen=True, slots=True)
class LakeFile(StoredFile):
    """A file of bronze.messages; `least` and `greatest` are commit log offsets."""

    broker_from: str
    broker_to: str
    least: int
    greatest: int

    @property
    def order(self) -> tuple[str, int]:
        return self.broker_from, self.least

    def may_hold(self, broker: str, log_from: int, log_to: int) -> bool:
        """Return whether the file may have messages of a range of a broker's log."""
        return (
            self.broker_from <= broker <= self.broker_to
            and self.least < log_to
            and self.greatest >= log_from
        )


@dataclass(frozen=True, slots=True)
class TimedFile(StoredFile):
    """A file with the least and greatest of its brokers and times, None if not recorded."""

    broker_from: str | None
    broker_to: str | None
    first: datetime | None
    last: datetime | None

    def may_be_of(self, broker: str) -> bool:
        """Return whether the file may have rows of a broker."""
        known = self.broker_from, self.broker_to
        return known[0] is None or known[1] is None or known[0] <= broker <= known[1]

    def may_be_within(self, begin: datetime | None, end: datetime | None) -> bool:
        """Return whether the file may have rows of a range of time."""
        is_before = begin is not None and self.last is not None and self.last < begin
        is_after = end is not None and self.first is not None and self.first >= end
        return not (is_before or is_after)


def timed_files_of(table: DeltaTable, column: str) -> list[TimedFile]:
    """Return the files of a table with days, with the time range of a column."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = (
        *("path", "size_bytes", "num_records", f"partition.{DAY}"),
        *("min.broker", "max.broker", f"min.{column}", f"max.{column}"),
    )
    columns = [
        actions[name].to_pylist() if name in actions.column_names else [None] * actions.num_rows
        for name in names
    ]
    return [TimedFile(*row) for row in zip(*columns, strict=True)]


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


def brokers_in(table: DeltaTable) -> set[str]:
    """Return the brokers whose messages bronze.messages has."""
    return {name for file in files_of(table) for name in (file.broker_from, file.broker_to)}


def stored_of(file: WrittenFile) -> StoredFile:
    """Describe a file that isn't committed yet as if it were."""
    day = file.partition.get(DAY)
    return StoredFile(file.path, file.size, file.rows, day and date.fromisoformat(day))


def stored_files_of(table: DeltaTable) -> list[StoredFile]:
    """Return the files of any table; without days the day is None."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "size_bytes", "num_records", f"partition.{DAY}")
    columns = [
        actions[name].to_pylist() if name in actions.column_names else [None] * actions.num_rows
        for name in names
    ]
    return [StoredFile(*row) for row in zip(*columns, strict=True)]


def rows_of(
    place: LakePlace,
    file: StoredFile,
    columns: Sequence[str] | None = None,
    table: LakeTable = MESSAGES,
    *,
    is_staged: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, with its day, and null in columns that were added later."""
    wanted = [name for name in table.schema.names if columns is None or name in columns]
    where = place.staged if is_staged else place.path_of
    path = where(table.name, file.path)
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
    """Write the rows of some files, transformed by `change`, to new unpublished files."""
    with FileWriter(place, MESSAGES) as writer:
        for file in files:
            for batch in rows_of(place, file):
                writer.write(change(batch))
    return writer.written
