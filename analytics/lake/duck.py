"""DuckDB as the lake's own hands: bounded memory, the rest on disk, one thread."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from analytics.lake.rewriting import ROWS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from analytics.lake.place import LakePlace

MEMORY_BYTES_MAX = 256 * 1024 * 1024
GIVEN = "given"


@dataclass(frozen=True, slots=True)
class Duck:
    """A connection without tables. One query at a time: its rows are taken before the next."""

    place: LakePlace
    connection: duckdb.DuckDBPyConnection

    def computed(
        self, query: str, batches: Iterable[pa.RecordBatch], columns: pa.Schema, result: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield what a query makes of rows, which it knows by the name `given`."""
        rows = pa.RecordBatchReader.from_batches(columns, iter(batches))
        self.connection.register(GIVEN, rows)
        try:
            yield from self.connection.sql(query).to_arrow_reader(ROWS_AT_ONCE).cast(result)
        finally:
            self.connection.unregister(GIVEN)


@contextmanager
def duck_beside(place: LakePlace) -> Iterator[Duck]:
    """Open DuckDB until the block ends; what it needs on disk is in the directory of the state."""
    place.state.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="lake-sort-", dir=place.state))
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{MEMORY_BYTES_MAX}B",
        "temp_directory": str(scratch),
        "threads": 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        # A name that is no table must not be a variable of Python's.
        "python_enable_replacements": False,
    }
    try:
        with duckdb.connect(":memory:", config=settings) as connection:
            yield Duck(place, connection)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
