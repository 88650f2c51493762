"""Maintenance: closed days are compacted, old ones dropped, files that nobody names deleted.

A day is closed when the one after the next has begun: messages arrive in the order of the log, and
clocks differ. DuckDB sorts a day by topic and offset within a bound of memory, the rest on disk.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from analytics.lake.files import FileWriter
from analytics.lake.rewriting import ROWS_AT_ONCE, files_of, rows_of
from analytics.lake.tables import MESSAGES, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from analytics.lake.place import LakePlace
    from analytics.lake.rewriting import LakeFile

logger = logging.getLogger(__name__)

FILE_BYTES = 128 * 1024 * 1024
BRONZE_DAYS = 30
OPEN_DAYS = 2
SORT_BYTES_MAX = 256 * 1024 * 1024
ORPHAN_HOURS = 24
_ORDERED = "SELECT * FROM day_rows ORDER BY topic, broker, commit_log_offset"


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done."""

    compacted: list[date]
    dropped: list[date]
    deleted_files: int


def maintain(
    place: LakePlace, today: date, *, bronze_days: int = BRONZE_DAYS, file_bytes: int = FILE_BYTES
) -> Maintained:
    """Do all that is due.

    Raises:
        LakeBusyError: somebody else works on the lake.
    """
    with place.locked():
        if not MESSAGES.exists(place):
            return Maintained([], [], 0)
        dropped = _drop(place, today - timedelta(days=bronze_days))
        compacted = _compact(place, today - timedelta(days=OPEN_DAYS), file_bytes)
        deleted = 0
        for table in TABLES:
            if table.exists(place):
                opened = table.open(place)
                # What killed processes left is named by no commit: full finds it.
                deleted += len(opened.vacuum(ORPHAN_HOURS, dry_run=False, full=True))
                opened.cleanup_metadata()
                place.sync_log(table.name)
        return Maintained(compacted, dropped, deleted)


def _drop(place: LakePlace, before: date) -> list[date]:
    table = MESSAGES.open(place)
    old = [file for file in files_of(table) if file.day is not None and file.day < before]
    if old:
        MESSAGES.commit(place, table, [], removed=[file.path for file in old])
    return sorted({file.day for file in old})


def _compact(place: LakePlace, last_closed: date, file_bytes: int) -> list[date]:
    by_day: dict[date, list[LakeFile]] = defaultdict(list)
    for file in files_of(MESSAGES.open(place)):
        if file.day is not None and file.day <= last_closed:
            by_day[file.day].append(file)
    done = []
    for day, files in sorted(by_day.items()):
        small = [file for file in files if file.size < file_bytes // 2]
        if len(small) > 1:
            _compact_day(place, files, file_bytes)
            done.append(day)
    return done


def _compact_day(place: LakePlace, files: list[LakeFile], file_bytes: int) -> None:
    table = MESSAGES.open(place)
    written = []
    writer = FileWriter(place, MESSAGES)
    rows_a_file = _rows_a_file(files, file_bytes)
    count = 0
    for batch in _ordered(place, files):
        if count >= rows_a_file:
            with writer:
                count = 0
            written += writer.written
            writer = FileWriter(place, MESSAGES)
        writer.write(batch)
        count += batch.num_rows
    with writer:
        pass
    written += writer.written
    if sum(file.rows for file in written) != sum(file.rows for file in files):
        raise AssertionError("sorting lost rows")
    MESSAGES.commit(
        place, table, written, removed=[file.path for file in files], changes_data=False
    )


def _rows_a_file(files: list[LakeFile], file_bytes: int) -> int:
    size, rows = sum(file.size for file in files), sum(file.rows for file in files)
    return max(1, rows * file_bytes // max(1, size))


def _ordered(place: LakePlace, files: list[LakeFile]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some files by topic and offset."""
    scratch = Path(tempfile.mkdtemp(prefix="lake-sort-", dir=_scratch_home(place)))
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{SORT_BYTES_MAX}B",
        "temp_directory": str(scratch),
        "threads": 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    rows = pa.RecordBatchReader.from_batches(
        MESSAGES.schema, (batch for file in files for batch in rows_of(place, file))
    )
    try:
        with duckdb.connect(":memory:", config=settings) as connection:
            connection.register("day_rows", rows)
            yield from connection.sql(_ORDERED).to_arrow_reader(ROWS_AT_ONCE).cast(MESSAGES.schema)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _scratch_home(place: LakePlace) -> str:
    place.state.mkdir(parents=True, exist_ok=True)
    return str(place.state)
