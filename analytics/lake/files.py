"""The Parquet files of a table: one per day, durable, described for the commit.

They are staged until the commit that names them publishes them: see `LakePlace`.
"""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analytics.lake.tables import DAY

if TYPE_CHECKING:
    from datetime import date
    from types import TracebackType
    from typing import Self

    from analytics.lake.place import LakePlace
    from analytics.lake.tables import LakeTable

COMPRESSION = "zstd"
PREFIX = "part"
# Wrong clocks could open a file for every day; at this limit, the first is closed early.
FILES_OPEN_MAX = 16
# Minimum rows in each row group, except the last; rows are buffered in memory until then.
ROWS_A_GROUP = 64 * 1024
WAITING_BYTES_MAX = 64 * 1024 * 1024
# Distinct values in a row group of a column with a Bloom filter, and the filter's error rate.
BLOOM_VALUES = 100_000
BLOOM_ERROR_RATE = 0.01


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A durable file that isn't in any commit yet; `path` is its future path in the table."""

    path: str
    size: int
    rows: int
    partition: dict[str, str | None] = field(default_factory=dict)
    statistics: str = "{}"


class FileWriter:
    """Writes the rows of a table to new files, one for each day; a context manager.

    Attributes:
        written: the files, once the context has ended.
    """

    def __init__(self, place: LakePlace, table: LakeTable, prefix: str = PREFIX) -> None:
        """`prefix` starts the name of each file."""
        self.written: list[WrittenFile] = []
        self._place = place
        self._table = table
        self._prefix = prefix
        self._open: dict[date | None, _OpenFile] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                while self._open:
                    self.written.append(self._open.pop(next(iter(self._open))).close())
        finally:
            if self._open or error is not None:
                for left in self._open.values():
                    left.abandon()
                self._place.discard(self._table.name, [one.path for one in self.written])

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows that have the columns of the table."""
        if not self._table.partition_by:
            self._file(None).write(batch)
            return
        days = batch.column(DAY)
        distinct = pc.unique(days).to_pylist()
        rows = batch.select(self._table.file_schema.names)
        for day in distinct:
            of_day = rows if len(distinct) == 1 else rows.filter(pc.equal(days, day))
            self._file(day).write(of_day)
        if sum(file.waiting_bytes for file in self._open.values()) > WAITING_BYTES_MAX:
            for file in self._open.values():
                file.flush()

    def _file(self, day: date | None) -> _OpenFile:
        if day not in self._open:
            if len(self._open) >= FILES_OPEN_MAX:
                self.written.append(self._open.pop(next(iter(self._open))).close())
            self._open[day] = _OpenFile(self._place, self._table, day, self._prefix)
        return self._open[day]


class _OpenFile:
    """A file that is being written; `waiting_bytes` counts rows that aren't in a row group yet."""

    def __init__(self, place: LakePlace, table: LakeTable, day: date | None, prefix: str) -> None:
        self._place = place
        self._table = table
        self._partition: dict[str, str | None] = {} if day is None else {DAY: day.isoformat()}
        folder = "".join(f"{name}={value}/" for name, value in self._partition.items())
        self._path = f"{folder}{prefix}-{uuid.uuid4()}.parquet"
        self._stack = ExitStack()
        self._found: list[Any] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self.waiting_bytes = 0
        self._stream = self._stack.enter_context(place.new_file(table.name, self._path))
        self._writer = self._stack.enter_context(
            parquet_writer(self._stream, table, metadata_collector=self._found)
        )

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            self.waiting_bytes += batch.nbytes
            if self._waiting_rows >= ROWS_A_GROUP:
                self.flush()

    def flush(self) -> None:
        """Write the waiting rows as a row group."""
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._waiting.clear()
            self._waiting_rows = self.waiting_bytes = 0

    def close(self) -> WrittenFile:
        self.flush()
        self._writer.close()
        size = self._stream.tell()
        self._stack.close()
        return described(self._table, self._path, size, self._found[0], self._partition)

    def abandon(self) -> None:
        """Close the file and delete it."""
        try:
            self._stack.close()
        finally:
            self._place.discard(self._table.name, [self._path])


def parquet_writer(where: object, table: LakeTable, **more: object) -> pq.ParquetWriter:
    """Return a writer of one file of a table."""
    bloom_options = {
        name: {"ndv": BLOOM_VALUES, "fpp": BLOOM_ERROR_RATE} for name in table.bloom_columns
    }
    # Dictionaries of mostly unique values waste time and space; deltas of ascending numbers don't.
    columns = dict.fromkeys(table.ascending, "DELTA_BINARY_PACKED")
    return pq.ParquetWriter(
        where,
        table.file_schema,
        compression=COMPRESSION,
        compression_level=1,
        bloom_filter_options=bloom_options or None,
        use_dictionary=list(table.repeated) if table.repeated else not columns,
        column_encoding=columns or None,
        **more,
    )


def described(
    table: LakeTable, path: str, size: int, metadata: Any, partition: dict[str, str | None]
) -> WrittenFile:
    """Return a file's entry for a commit, from its Parquet footer."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            name = column.path_in_schema
            known = column.statistics
            if name not in table.statistics or known is None or not known.has_min_max:
                continue
            least[name] = min(least.get(name, known.min), known.min)
            greatest[name] = max(greatest.get(name, known.max), known.max)
    statistics = {
        "numRecords": metadata.num_rows,
        "minValues": {name: _stated(value) for name, value in least.items()},
        "maxValues": {name: _stated(value) for name, value in greatest.items()},
        "nullCount": {},
    }
    return WrittenFile(path, size, metadata.num_rows, partition, json.dumps(statistics))


def _stated(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value
