"""Maintenance: closed days are compacted, old ones dropped, files that nobody names deleted.

A day is closed when the one after the next has begun: messages arrive in the order of the log, and
clocks differ. DuckDB sorts a day by topic and offset within a bound of memory, the rest on disk.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.duck import duck_beside
from analytics.lake.files import FileWriter
from analytics.lake.gold import GOLD_DAYS, bring_up, tidy
from analytics.lake.gold_tables import EVERY_TABLE
from analytics.lake.rewriting import files_of, rows_of, stored_files_of
from analytics.lake.tables import EVENTS, MESSAGES, OFFSET, SAMPLES
from analytics.lake.watermark import (
    DROPPED_BEFORE_STATE,
    dropped_before_ms,
    dropped_state,
    dropped_to,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from analytics.lake.place import LakePlace
    from analytics.lake.rewriting import LakeFile, StoredFile
    from analytics.lake.tables import LakeTable

logger = logging.getLogger(__name__)

FILE_BYTES = 128 * 1024 * 1024
BRONZE_DAYS = 30
OPEN_DAYS = 2
ORPHAN_HOURS = 24
_ORDERED = "SELECT * FROM given ORDER BY topic, broker, commit_log_offset"
# What becomes one file a day, and in which order.
_SMALL = (
    (EVENTS, "broker, commit_log_offset"),
    (SAMPLES, "kind, topic, consumer_group, broker, name, metric, part, minute"),
)


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done."""

    compacted: list[date]
    dropped: list[date]
    deleted_files: int


def maintain(
    place: LakePlace,
    today: date,
    *,
    bronze_days: int = BRONZE_DAYS,
    gold_days: int = GOLD_DAYS,
    file_bytes: int = FILE_BYTES,
) -> Maintained:
    """Do all that is due.

    Raises:
        LakeBusyError: somebody else works on the lake.
    """
    with place.locked():
        before, last_closed = today - timedelta(days=bronze_days), today - timedelta(days=OPEN_DAYS)
        dropped: list[date] = []
        compacted: list[date] = []
        if MESSAGES.exists(place):
            # What is dropped must have been counted.
            bring_up(place)
            dropped = _drop(place, before)
            compacted = _compact(place, last_closed, file_bytes)
            tidy(place, today - timedelta(days=gold_days), last_closed)
        for table, ordered in _SMALL:
            _tidy_days(place, table, ordered, before, last_closed)
        deleted = 0
        for table in EVERY_TABLE:
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
        states = {
            dropped_state(broker): max(offset, dropped_to(table, broker))
            for broker, offset in _ends(place, old).items()
        }
        states[DROPPED_BEFORE_STATE] = max(_start_ms(before), dropped_before_ms(table))
        MESSAGES.commit(place, table, [], removed=[file.path for file in old], states=states)
    return sorted({file.day for file in old})


def _tidy_days(
    place: LakePlace, table: LakeTable, ordered: str, before: date, last_closed: date
) -> None:
    """Drop the days before one, and make one file of each day up to the last that has ended."""
    if not table.exists(place):
        return
    by_day: dict[date, list[StoredFile]] = defaultdict(list)
    for file in stored_files_of(table.open(place)):
        by_day[file.day].append(file)
    for day, files in sorted(by_day.items()):
        if day < before:
            table.replace(place, [], files)
        elif day <= last_closed and len(files) > 1:
            rows = (batch for file in files for batch in rows_of(place, file, table=table))
            query = f"SELECT * FROM given ORDER BY {ordered}"
            with duck_beside(place) as duck, FileWriter(place, table) as writer:
                for batch in duck.computed(query, rows, table.schema, table.schema):
                    writer.write(batch)
            table.replace(place, writer.written, files, changes_data=False)


def _start_ms(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp()) * 1000


def _ends(place: LakePlace, files: list[LakeFile]) -> dict[str, int]:
    """Return where the last message of each broker ends."""
    ends: dict[str, int] = {}
    for file in files:
        for batch in rows_of(place, file, ("broker", OFFSET, "store_size")):
            end = pc.add(batch.column(OFFSET), batch.column("store_size"))
            rows = pa.table({"broker": batch.column("broker"), "end": end})
            for row in rows.group_by("broker").aggregate([("end", "max")]).to_pylist():
                ends[row["broker"]] = max(ends.get(row["broker"], 0), row["end_max"])
    return ends


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
    rows = (batch for file in files for batch in rows_of(place, file))
    with duck_beside(place) as duck:
        yield from duck.computed(_ORDERED, rows, MESSAGES.schema, MESSAGES.schema)
