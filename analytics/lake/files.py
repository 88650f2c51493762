"""The Parquet files of a table: written a day each, durable, described for the commit."""

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
# Clocks that jump could ask for a file each: then the first is closed before its time.
FILES_OPEN_MAX = 16
# Each file has its rows in groups of at least so many, the last apart; what waits for that is in
# memory.
ROWS_A_GROUP = 64 * 1024
WAITING_BYTES_MAX = 64 * 1024 * 1024
# Values of a column with a Bloom filter in a group of rows, and how often it may err.
SOUGHT_VALUES = 100_000
SOUGHT_WRONGLY = 0.01


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A durable file that no commit names yet."""

    path: str
    size: int
    rows: int
    partition: dict[str, str | None] = field(default_factory=dict)
    statistics: str = "{}"


class FileWriter:
    """Writes the rows of a table to new files, one for each day; a context.

    Attributes:
        written: the files, once the context has ended.
    """

    def __init__(self, place: LakePlace, table: LakeTable, prefix: str = PREFIX) -> None:
        """The names of the files begin with the prefix."""
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
        for each in self._open.values():
            self.written.append(each.close())
        self._open.clear()

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
    """A file that rows are written to; `waiting_bytes` of them are in no group yet."""

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
        """Make a group of the rows that wait for one."""
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


def parquet_writer(where: object, table: LakeTable, **more: object) -> pq.ParquetWriter:
    """Return a writer of one file of a table."""
    sought = {name: {"ndv": SOUGHT_VALUES, "fpp": SOUGHT_WRONGLY} for name in table.sought}
    # A dictionary of what hardly repeats costs time and room; steps of numbers that ascend cost
    # neither.
    columns = dict.fromkeys(table.ascending, "DELTA_BINARY_PACKED")
    return pq.ParquetWriter(
        where,
        table.file_schema,
        compression=COMPRESSION,
        compression_level=1,
        bloom_filter_options=sought or None,
        use_dictionary=list(table.repeated) if table.repeated else not columns,
        column_encoding=columns or None,
        **more,
    )


def described(
    table: LakeTable, path: str, size: int, metadata: Any, partition: dict[str, str | None]
) -> WrittenFile:
    """Return what a commit says of a file whose Parquet footer is given."""
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
