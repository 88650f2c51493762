"""LakeReader: the only part of a query's process that opens the lake's files.

It has a DuckDB of its own, runs only SQL that this program wrote, and hands out rows that are
already narrowed to a person's topics and masked. SQL that a person wrote runs in another DuckDB
(analytics.query.engine), which sees these rows and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.fs
from deltalake.exceptions import DeltaError

from analytics.errors import LakeError
from analytics.lake.views import files_in
from analytics.query.checking import OUT_OF_MEMORY
from analytics.query.views import unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.dataset as ds

    from analytics.lake.place import LakePlace
    from analytics.query.views import View

THREADS = 2
MEMORY = "256MB"
# Long batches cost less for each row. Those with bodies must fit into memory several times.
ROWS_A_BATCH, ROWS_A_BATCH_OF_CONTENT = 16_384, 2_048
CONTENT = frozenset({"body", "properties"})
STORED = "stored"


class LakeReader:
    """Reads tables of a lake; a table stays as it was when it was first read.

    Any thread may read, and several streams may be open at once.

    Attributes:
        failure: why reading failed, which is why the query that reads from here failed.
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
        if place.is_local:
            self._connection.execute("SET allowed_directories = $1", [[place.uri]])
        self._connection.execute("SET enable_external_access = false")

    def rows(
        self, view: View, columns: Sequence[str], condition: str, values: Sequence[Any]
    ) -> pa.RecordBatchReader:
        """Read columns of the rows that meet a condition.

        Args:
            condition: SQL over the view's columns, with a parameter for each of the values.

        Raises:
            LakeError: the table can't be read; so does the reader when that shows later.
        """
        schema = pa.schema([view.streamed.field(name) for name in columns])
        selected = ", ".join(
            f"map_entries({name}) AS {name}" if name in view.maps else name for name in columns
        )
        try:
            if view.name not in self._tables:
                self._tables.setdefault(view.name, _table(self._place, view))
        except (DeltaError, pa.ArrowException, OSError) as error:
            raise self._failure(error) from error
        table = self._tables[view.name]
        query = f"SELECT {selected} FROM ({table.query}) WHERE {condition}"
        batches = self._batches(query, values, table.stored, CONTENT.isdisjoint(columns))
        return pa.RecordBatchReader.from_batches(schema, batches)

    def percent(self) -> float:
        """Return how much of the streams that were opened has been read, from any thread."""
        streams = list(self._streams)
        return sum(each.percent() for each in streams) / max(len(streams), 1)

    def _batches(
        self, query: str, values: Sequence[Any], stored: ds.Dataset | None, is_narrow: bool
    ) -> Iterator[pa.RecordBatch]:
        rows = ROWS_A_BATCH if is_narrow else ROWS_A_BATCH_OF_CONTENT
        try:
            # A connection has one result at a time, and temporary names of its own.
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
        """Keep and return the error to show."""
        is_full = isinstance(error, duckdb.OutOfMemoryException)
        self.failure = LakeError(OUT_OF_MEMORY) if is_full else unreadable(error)
        return self.failure


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as it was when it was opened: the query of its rows, which may be over `stored`."""

    query: str
    stored: ds.Dataset | None = None


class _Stream:
    """Rows that are being read, by a connection of their own."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.has_ended = False
        self._connection = connection
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")

    def percent(self) -> float:
        try:
            return 100.0 if self.has_ended else max(0.0, self._connection.query_progress())
        except duckdb.Error:  # it has ended just now
            return 100.0


def _table(place: LakePlace, view: View) -> _Table:
    files = sorted(files_in(place, view.lake_view))
    if place.is_local or not files:
        return _Table(view.lake_view.query(files, view.topics, view.masks))
    # Arrow reads S3: DuckDB would have to download an extension.
    root = pyarrow.fs.SubTreeFileSystem(place.path_of(view.name), place.filesystem())
    stored = view.table.existing(place).to_pyarrow_dataset(filesystem=root)
    return _Table(view.lake_view.query_over(STORED, view.topics, view.masks), stored)
