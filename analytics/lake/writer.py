"""Writers do a lake's heavy work: they decode the log, run queries and write Parquet.

Both writers give equal results. `ArrowWriter` works in this process with pyarrow and DuckDB, in
bounded memory; `analytics.spark_writer` runs Spark tasks. Neither commits anything.

Queries are Spark SQL within the subset that DuckDB understands with the macros in `MACROS`.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import duckdb
import pyarrow as pa

from analytics.lake.files import PREFIX, FileWriter
from analytics.lake.parsing import write_parsed
from analytics.lake.parts import write_part
from analytics.lake.rewriting import ROWS_AT_ONCE, rows_of
from analytics.store.plan import SPLIT_BYTES_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analytics.lake.files import WrittenFile
    from analytics.lake.parsing import ParseTask
    from analytics.lake.parts import WriteTask, WrittenPart
    from analytics.lake.place import LakePlace
    from analytics.lake.rewriting import LakeFile, StoredFile
    from analytics.lake.tables import LakeTable
    from analytics.store.plan import Split

ARROW, SPARK = "arrow", "spark"
BATCH_BYTES = 64 * 1024 * 1024
GIVEN = "given"
MEMORY_BYTES_MAX = 256 * 1024 * 1024
MACROS = (
    "unix_micros(moment) AS epoch_us(moment)",
    "unix_millis(moment) AS epoch_ms(moment)",
    "timestamp_micros(number) AS make_timestamp(number)",
    "shiftleft(number, bits) AS number << bits",
    "shiftright(number, bits) AS number >> bits",
    "explode(list) AS unnest(list)",
)


@dataclass(frozen=True, slots=True)
class Query:
    """A query over the rows of some files of one table.

    Attributes:
        text: SQL in which the rows are the table `given`.
        columns: the columns that it reads; all when empty.
        ordered_by: the columns that each written file is sorted by.
    """

    text: str
    table: LakeTable
    files: Sequence[StoredFile]
    columns: tuple[str, ...] = ()
    ordered_by: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns that the query reads, in the order of the table."""
        return pa.schema(
            [one for one in self.table.schema if not self.columns or one.name in self.columns]
        )


class Writer(Protocol):
    """Writes files that no commit references yet. One thread."""

    @property
    def name(self) -> str:
        """The engine's name in commits."""
        ...

    @property
    def batch_bytes(self) -> int:
        """The largest part of the log that one batch reads."""
        ...

    @property
    def split_bytes(self) -> int:
        """The largest part of the log that one task reads."""
        ...

    def parts(self, task: WriteTask, splits: Sequence[Split]) -> list[WrittenPart]:
        """Write the messages and events of ranges of the log.

        Raises:
            ReportError: writing failed; no commit references any files that were left.
        """
        ...

    def rows(
        self, place: LakePlace, query: Query, target: LakeTable, prefix: str = PREFIX
    ) -> list[WrittenFile]:
        """Write the result of a query to files of a table, one for each day.

        Raises:
            ReportError: as above.
        """
        ...

    def parsed(self, task: ParseTask, files: Sequence[LakeFile]) -> dict[str, list[WrittenFile]]:
        """Parse bodies and write them to files of silver, by table name.

        Raises:
            ReportError: as above.
        """
        ...

    def table(self, place: LakePlace, query: Query, schema: pa.Schema) -> pa.Table:
        """Return the result of a query, which must be small.

        Raises:
            ReportError: as above.
        """
        ...


class ArrowWriter:
    """A writer in this process, with pyarrow and DuckDB; needs no Java."""

    name = ARROW
    batch_bytes = BATCH_BYTES
    split_bytes = SPLIT_BYTES_DEFAULT

    def parts(self, task: WriteTask, splits: Sequence[Split]) -> list[WrittenPart]:
        return [write_part(task, splits)] if splits else []

    def rows(
        self, place: LakePlace, query: Query, target: LakeTable, prefix: str = PREFIX
    ) -> list[WrittenFile]:
        with FileWriter(place, target, prefix) as writer:
            for batch in _computed(place, query, target.schema):
                writer.write(batch)
        return writer.written

    def parsed(self, task: ParseTask, files: Sequence[LakeFile]) -> dict[str, list[WrittenFile]]:
        return write_parsed(task, files)

    def table(self, place: LakePlace, query: Query, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches(_computed(place, query, schema), schema)


def _computed(place: LakePlace, query: Query, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    columns = query.columns or None
    rows = (batch for file in query.files for batch in rows_of(place, file, columns, query.table))
    text = query.text
    if query.ordered_by:
        text = f"SELECT * FROM ({text}) ORDER BY {', '.join(query.ordered_by)}"
    with _duckdb(place) as connection:
        connection.register(GIVEN, pa.RecordBatchReader.from_batches(query.schema, rows))
        yield from connection.sql(text).to_arrow_reader(ROWS_AT_ONCE).cast(schema)


@contextmanager
def _duckdb(place: LakePlace) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open DuckDB with one thread; it spills to the state directory."""
    place.state.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="lake-sort-", dir=place.state))
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{MEMORY_BYTES_MAX}B",
        "temp_directory": str(scratch),
        "threads": 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        # An unknown table name must not resolve to a Python variable.
        "python_enable_replacements": False,
    }
    try:
        with duckdb.connect(":memory:", config=settings) as connection:
            for macro in MACROS:
                connection.execute(f"CREATE TEMP MACRO {macro}")
            yield connection
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
