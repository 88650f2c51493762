"""DuckDB for somebody who waits: bounded memory, stopped in time, over files of some days."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.fs

from analytics.lake.rewriting import stored_files_of
from analytics.lake.views import file_list

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from deltalake import DeltaTable

    from analytics.lake.place import LakePlace
    from analytics.lake.tables import LakeTable

THREADS = 2
MEMORY = "400MB"
SECONDS_MAX = 20.0
# What analytics.reports.report says by the same name for Spark. A step of an hour has more
# microseconds than 32 bits, which a small parameter is given.
START_OF_STEP = """
CREATE TEMP MACRO start_of_step(moment, seconds) AS
    make_timestamp(epoch_us(moment) // (seconds::BIGINT * 1000000) * (seconds::BIGINT * 1000000))
"""


@contextmanager
def asking() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open DuckDB until the block ends.

    SQL there has `start_of_step(moment, seconds)`: the time at which the step begins that holds the
    moment, steps being counted from the epoch.

    Raises:
        duckdb.InterruptException: the block takes longer than SECONDS_MAX.
    """
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY,
        "threads": THREADS,
        "temp_directory": "",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        # A name that is no table must not be a variable of Python's.
        "python_enable_replacements": False,
    }
    with duckdb.connect(":memory:", config=settings) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(START_OF_STEP)
        interrupter = threading.Timer(SECONDS_MAX, connection.interrupt)
        interrupter.daemon = True
        interrupter.start()
        try:
            yield connection
        finally:
            interrupter.cancel()


def source_of(
    connection: duckdb.DuckDBPyConnection,
    place: LakePlace,
    table: LakeTable,
    opened: DeltaTable,
    first: date | None = None,
    last: date | None = None,
) -> str:
    """Return what SQL reads a table's rows from, of files of the days from first to last."""
    paths = [
        file.path
        for file in stored_files_of(opened)
        if (not first or file.day >= first) and (not last or file.day <= last)
    ]
    if not paths:
        connection.register("none", table.schema.empty_table())
        return "none"
    if not place.is_local:
        connection.register("stored", dataset_of(place, table, opened))
        return "stored"
    files = [place.path_of(table.name, path) for path in paths]
    return f"read_parquet({file_list(files)}, hive_partitioning=false)"


def dataset_of(place: LakePlace, table: LakeTable, opened: DeltaTable) -> Any:
    """Return a table as pyarrow reads it, wherever it is."""
    root = pyarrow.fs.SubTreeFileSystem(place.path_of(table.name), place.filesystem())
    return opened.to_pyarrow_dataset(filesystem=root)
