"""LakeReader: the only part of a query's process that opens the lake's files.

It has its own DuckDB, runs only SQL that this program wrote, and returns rows that are already
filtered to a person's topics and masked. SQL from a person runs in another DuckDB
(analytics.query.engine), which sees only these rows.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.fs
from deltalake.exceptions import DeltaError

from analytics.errors import LakeError
from analytics.lake.masks import add_hiding
from analytics.lake.tables import DAY
from analytics.lake.views import identifier
from analytics.query.validation import OUT_OF_MEMORY
from analytics.query.views import unreadable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from datetime import date

    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    from analytics.lake.place import LakePlace
    from analytics.query.conditions import Condition
    from analytics.query.views import View

THREADS = 2
MEMORY = "256MB"
# Long batches cost less per row. Batches with bodies must fit into memory several times.
ROWS_A_BATCH, ROWS_A_BATCH_OF_CONTENT = 16_384, 2_048
CONTENT = frozenset({"body", "properties"})
STORED = "stored"


class LakeReader:
    """Reads tables of a lake; every read of a table sees its state at the first read.

    Any thread may read, and several streams may be open at once.

    Attributes:
        failure: why reading failed, which is also why the query failed.
    """

    def __init__(self, place: LakePlace) -> None:
        self.failure: LakeError | None = None
        self._place = place
        self._tables: dict[str, _Table] = {}
        self._streams: list[_Stream] = []
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": MEMORY,
                "threads": THREADS,
                "temp_directory": "",
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
            },
        )
        self._connection.execute("SET TimeZone = 'UTC'")
        add_hiding(self._connection)

    def rows(
        self, view: View, columns: Sequence[str], condition: Condition, of_day: Condition
    ) -> pa.RecordBatchReader:
        """Read columns of the rows that meet a condition.

        Args:
            of_day: the part of the condition that concerns the day; skips whole files.

        Raises:
            LakeError: the table isn't readable; the returned reader raises it, too.
        """
        schema = pa.schema([view.streamed.field(name) for name in columns])
        selected = ", ".join(
            f"map_entries({name}) AS {name}" if name in view.maps else identifier(name)
            for name in columns
        )
        try:
            if view.name not in self._tables:
                self._tables.setdefault(view.name, _Table(self._place, view))
            table = self._tables[view.name]
            rows = table.query(self._days(table, of_day))
        except (duckdb.Error, DeltaError, pa.ArrowException, OSError) as error:
            raise self._failure(error) from error
        query = f"SELECT {selected} FROM ({rows}) WHERE {condition.sql}"
        batches = self._batches(query, condition.values, table.stored, CONTENT.isdisjoint(columns))
        return pa.RecordBatchReader.from_batches(schema, batches)

    def percent(self) -> float:
        """Return the percentage of the opened streams that has been read. Thread-safe."""
        streams = list(self._streams)
        return sum(each.percent() for each in streams) / max(len(streams), 1)

    def _days(self, table: _Table, of_day: Condition) -> set[date | None] | None:
        """Return the days of a table that meet a condition, None for all."""
        if not of_day.values:
            return None
        days = f"SELECT unnest(${len(of_day.values) + 1}::DATE[]) AS {DAY}"
        query = f"SELECT {DAY} FROM ({days}) WHERE {of_day.sql}"
        values = [*of_day.values, [each for _file, each in table.files]]
        with self._connection.cursor() as connection:
            return {day for (day,) in connection.execute(query, values).fetchall()}

    def _batches(
        self, query: str, values: Sequence[Any], stored: ds.Dataset | None, is_narrow: bool
    ) -> Iterator[pa.RecordBatch]:
        rows = ROWS_A_BATCH if is_narrow else ROWS_A_BATCH_OF_CONTENT
        try:
            # A connection has one result at a time, and its own temporary names.
            with self._connection.cursor() as connection:
                stream = _Stream(connection)
                self._streams.append(stream)
                if stored is not None:
                    connection.register(STORED, stored)
                try:
                    yield from connection.sql(query, params=list(values)).to_arrow_reader(rows)
                finally:
                    stream.has_ended = True
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> LakeError:
        """Record and return the error to show."""
        is_full = isinstance(error, duckdb.OutOfMemoryException)
        self.failure = LakeError(OUT_OF_MEMORY) if is_full else unreadable(error)
        return self.failure


class _Table:
    """A table in its state when it was opened.

    Attributes:
        files: the files on this machine, each with its day if the table has days.
        stored: the rows as Arrow reads them, if they are in S3.
    """

    def __init__(self, place: LakePlace, view: View) -> None:
        self.files: list[tuple[str, date | None]] = []
        self.stored: ds.Dataset | None = None
        self._view = view
        if not view.table.exists(place):
            return
        opened = view.table.existing(place)
        if place.is_local:
            self.files = sorted(_files(place, view, opened))
        elif opened.file_uris():
            # DuckDB would have to download an extension for S3.
            root = pyarrow.fs.SubTreeFileSystem(place.path_of(view.name), place.filesystem())
            self.stored = opened.to_pyarrow_dataset(filesystem=root)

    def query(self, days: Collection[date | None] | None) -> str:
        """Return the query for the rows of these days, None for all."""
        view = self._view
        if self.stored is not None:
            return view.lake_view.query_over(STORED, view.topics, view.masks)
        files = [file for file, day in self.files if days is None or day in days]
        return view.lake_view.query(files, view.topics, view.masks)


class _Stream:
    """Rows that are being read, through their own connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.has_ended = False
        self._connection = connection
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")

    def percent(self) -> float:
        try:
            return 100.0 if self.has_ended else max(0.0, self._connection.query_progress())
        except duckdb.Error:  # the query has just ended
            return 100.0


def _files(place: LakePlace, view: View, opened: DeltaTable) -> Iterator[tuple[str, date | None]]:
    actions = pa.table(opened.get_add_actions(flatten=True))
    paths = actions["path"].to_pylist()
    days = actions[f"partition.{DAY}"].to_pylist() if view.table.partition_by else repeat(None)
    for path, day in zip(paths, days, strict=False):
        yield place.path_of(view.name, path), day
