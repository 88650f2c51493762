"""Engine: the DuckDB that runs a person's SQL, with access only to permitted rows.

It opens no file, no connection and no extension. The tables are streams of Arrow, whose rows are
filtered and masked before they arrive (analytics.query.lake_reader). So even a query that bypasses
the checks (analytics.query.validation) finds nothing else.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from analytics.query.cells import kind_of, lines_of
from analytics.query.lake_reader import LakeReader
from analytics.query.scan import TableScan
from analytics.query.validation import QueryError, check, sentence_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    from analytics.lake.place import LakePlace
    from analytics.query.views import View

THREADS = 2
MEMORY = "400MB"
ROWS_A_BATCH = 1_000


class Engine:
    """One connection, with the tables that one person may query."""

    def __init__(self, place: LakePlace, views: Sequence[View], zone: str) -> None:
        self._names = [view.name for view in views]
        self._lake = LakeReader(place)
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": MEMORY,
                "threads": THREADS,
                "temp_directory": "",
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
                "python_scan_all_frames": False,
                "allow_persistent_secrets": False,
            },
        )
        for view in views:
            self._add(view)
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET enable_progress_bar = true")
        self._connection.execute("SET enable_progress_bar_print = false")
        try:
            self._connection.execute("SET TimeZone = $1", [zone])
        except duckdb.Error as error:
            raise QueryError(sentence_of(error)) from error
        self._connection.execute("SET lock_configuration = true")

    def _add(self, view: View) -> None:
        name = view.lake_view.sql_name
        schema = view.name.partition(".")[0]
        maps = ", ".join(f"map_from_entries({name}) AS {name}" for name in view.maps)
        columns = f"* REPLACE ({maps})" if maps else "*"
        self._connection.register(view.name, TableScan(self._lake, view))
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        self._connection.execute(f'CREATE VIEW {name} AS SELECT {columns} FROM "{view.name}"')

    def progress(self) -> float:
        """Return the percentage of the query that is done. Thread-safe."""
        # DuckDB doesn't know the length of a stream, only of other tables.
        return max(0.0, self._connection.query_progress(), self._lake.percent())

    @contextmanager
    def reader(self, sql: str) -> Iterator[pa.RecordBatchReader]:
        """Check a query and start it; rows arrive as they are read.

        Raises:
            QueryError: the query isn't allowed, or fails at any point.
            LakeError: a table of the lake isn't readable.
        """
        self._lake.failure = None
        try:
            text = check(self._connection, sql, self._names)
            with self._connection.sql(text).to_arrow_reader(ROWS_A_BATCH) as rows:
                yield rows
        except (duckdb.Error, pa.ArrowException) as error:
            if self._lake.failure is not None:
                raise self._lake.failure from error
            raise QueryError(sentence_of(error)) from error


def write(
    reader: pa.RecordBatchReader,
    rows_file: BinaryIO,
    parquet_file: BinaryIO,
    limits: tuple[int, int],
    tell: Callable[[int], None],
) -> dict[str, Any]:
    """Write rows as JSON lines and as Parquet until a limit of rows or bytes.

    Returns:
        The columns, the number of rows and bytes, and the limit that cut them off, if any.
    """
    rows_max, bytes_max = limits
    rows = size = 0
    cut = ""
    with pq.ParquetWriter(parquet_file, reader.schema, compression="zstd") as writer:
        for batch in reader:
            kept = 0
            for line in lines_of(batch):
                if rows + kept >= rows_max:
                    cut = "rows"
                elif size + len(line) > bytes_max:
                    cut = "bytes"
                if cut:
                    break
                size += rows_file.write(line)
                kept += 1
            writer.write_batch(batch.slice(0, kept))
            rows += kept
            tell(rows)
            if cut:
                break
    rows_file.flush()
    columns = [
        {"name": field.name, "type": str(field.type), "kind": kind_of(field.type)}
        for field in reader.schema
    ]
    return {"columns": columns, "rows": rows, "bytes": size, "cut": cut}
