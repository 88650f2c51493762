"""Engine: DuckDB over the lake's views, and closed to everything else before a query is seen.

Order matters: the views are made while files may be opened, then files other than theirs may not,
then no setting can be changed. Nothing is written, not even what does not fit into memory.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from analytics.errors import LakeError
from analytics.lake.gold_tables import EVERY_TABLE
from analytics.query.cells import kind_of, lines_of
from analytics.query.checking import QueryError, check, sentence_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    import pyarrow.dataset as ds

    from analytics.lake.place import LakePlace
    from analytics.query.views import View

THREADS = 2
MEMORY = "400MB"
ROWS_A_BATCH = 1_000


class Engine:
    """One connection; it is made for one query."""

    def __init__(self, place: LakePlace, views: Sequence[View], zone: str) -> None:
        """Raises LakeError where a file of a view cannot be read."""
        self._names = [view.name for view in views]
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
            },
        )
        try:
            for view in views:
                self._add(place, view)
            files = [file for view in views for file in view.files if place.is_local]
            self._close(zone, files)
        except (duckdb.Error, OSError) as error:
            raise LakeError(f"The lake {place.uri} cannot be read: {sentence_of(error)}") from error

    def _add(self, place: LakePlace, view: View) -> None:
        if view.files and not place.is_local:
            # Nobody can name it: what is narrowed is the view over it.
            source = f"source_{secrets.token_hex(16)}"
            self._connection.register(source, _dataset(place, view.name))
            statements = view.lake_view.over(source, view.topics, view.masks)
        else:
            statements = view.lake_view.definition(view.files, view.topics, view.masks)
        for statement in statements:
            self._connection.execute(statement)

    def _close(self, zone: str, files: Sequence[str]) -> None:
        connection = self._connection
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")
        connection.execute(f"SET TimeZone = '{_quoted(zone)}'")
        listed = ", ".join(f"'{_quoted(file)}'" for file in files)
        connection.execute(f"SET allowed_paths = [{listed}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")

    def progress(self) -> float | None:
        """Return how many percent of the query are done, from any thread; None where unknown."""
        found = self._connection.query_progress()
        return found if found >= 0 else None

    @contextmanager
    def reader(self, sql: str) -> Iterator[pa.RecordBatchReader]:
        """Check a query and begin it; the rows come as they are read.

        Raises:
            QueryError: it may not be run, or fails at any point.
        """
        try:
            text = check(self._connection, sql, self._names)
            relation = self._connection.sql(text)
            with relation.to_arrow_reader(ROWS_A_BATCH) as reader:
                yield reader
        except (duckdb.Error, pa.ArrowException) as error:
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
        The columns, how many rows and bytes there are, and which limit cut them off, if one did.
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


def _dataset(place: LakePlace, name: str) -> ds.Dataset:
    """A table in S3, read by Arrow: DuckDB's own way there is an extension to download."""
    root = pyarrow.fs.SubTreeFileSystem(place.path_of(name), place.filesystem())
    table = next(each for each in EVERY_TABLE if each.name == name)
    return table.existing(place).to_pyarrow_dataset(filesystem=root)


def _quoted(text: str) -> str:
    return text.replace("'", "''")
