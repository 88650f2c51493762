"""Maintenance: merges small files, drops old days and deletes unreferenced files.

It works in steps of a few seconds, most urgent first, until the caller's time is up. The next call
does the rest. A day is closed once the second day after it has begun, because clocks differ.

A file that is merged from others is sorted by topic and offset, so that a query for one topic reads
few of its row groups.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.compaction import FILE_BYTES, groups_due
from analytics.lake.derived import catch_up
from analytics.lake.gold import GOLD_DAYS, close_days
from analytics.lake.place import UPKEEP
from analytics.lake.rewriting import files_of, rows_of, stored_files_of
from analytics.lake.silver_tables import silver_in, tables_in
from analytics.lake.tables import EVENTS, MESSAGES, OFFSET, SAMPLES
from analytics.lake.watermark import (
    DROPPED_BEFORE_STATE,
    dropped_before_ms,
    dropped_state,
    dropped_to,
)
from analytics.lake.writer import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import date

    from analytics.lake.place import LakePlace
    from analytics.lake.rewriting import LakeFile, StoredFile
    from analytics.lake.tables import LakeTable
    from analytics.lake.writer import Writer

logger = logging.getLogger(__name__)

BRONZE_DAYS = 30
OPEN_DAYS = 2
ORPHAN_HOURS = 24
_EVERYTHING = "SELECT * FROM given"
# The tables of bronze that have days, and the sort order of their merged files.
_ORDERS = (
    (MESSAGES, ("topic", OFFSET)),
    (EVENTS, ("broker", OFFSET)),
    (SAMPLES, ("kind", "topic", "consumer_group", "broker", "name", "metric", "part", "minute")),
)


@dataclass(slots=True)
class Maintained:
    """The result of a maintenance; `is_done` when no work is left."""

    merged: list[tuple[str, date]] = field(default_factory=list)
    dropped: list[date] = field(default_factory=list)
    deleted_files: int = 0
    is_done: bool = False


def maintain(
    place: LakePlace,
    today: date,
    writer: Writer,
    *,
    bronze_days: int = BRONZE_DAYS,
    gold_days: int = GOLD_DAYS,
    file_bytes: int = FILE_BYTES,
    deletes: bool = True,
    is_over: Callable[[], bool] = lambda: False,
) -> Maintained:
    """Do the work that is due until `is_over`, at least one step.

    Args:
        deletes: also delete unreferenced files, which lists every file of the lake.

    Raises:
        LakeBusyError: another process is working on the lake.
        LakeError: the lake isn't usable.
    """
    done = Maintained()
    before, last_closed = today - timedelta(days=bronze_days), today - timedelta(days=OPEN_DAYS)
    with place.locked(UPKEEP):
        if MESSAGES.exists(place):
            # Count rows before they are dropped.
            catch_up(place, writer)
            done.dropped = _drop(place, before)
        for step in _steps(place, writer, before, last_closed, today, gold_days, file_bytes):
            done.merged.append(step)
            if is_over():
                return done
        if deletes:
            done.deleted_files = sum(_deleted(place, table) for table in tables_in(place))
    done.is_done = True
    return done


def _steps(
    place: LakePlace,
    writer: Writer,
    before: date,
    last_closed: date,
    today: date,
    gold_days: int,
    file_bytes: int,
) -> Iterator[tuple[str, date]]:
    """Merge one group of files after another; yield the table and the day of each."""
    yield from close_days(place, writer, today - timedelta(days=gold_days), last_closed)
    silver = [(table, ("broker", OFFSET)) for topic in silver_in(place) for table in topic.tables]
    for table, ordered_by in (*_ORDERS, *silver):
        if not table.exists(place):
            continue
        by_day: dict[date, dict[str, list[StoredFile]]] = defaultdict(lambda: defaultdict(list))
        if table is MESSAGES:
            # Merge each broker's files separately: offsets are per broker.
            for file in files_of(table.existing(place)):
                by_day[file.day][file.broker_from].append(file)
        else:
            for stored in stored_files_of(table.existing(place)):
                by_day[stored.day][""].append(stored)
        # Newest first, because it is queried most.
        for day, shares in sorted(by_day.items(), reverse=True):
            if day < before and table is not MESSAGES:
                table.replace(place, [], shares[""])
                continue
            for files in shares.values():
                closed = day <= last_closed
                for group in groups_due(files, is_closed=closed, file_bytes=file_bytes):
                    _merge(place, writer, table, group, ordered_by)
                    yield table.name, day


def _merge(
    place: LakePlace,
    writer: Writer,
    table: LakeTable,
    files: Sequence[StoredFile],
    ordered_by: tuple[str, ...],
) -> None:
    query = Query(_EVERYTHING, table, files, ordered_by=ordered_by)
    written = writer.rows(place, query, table)
    if sum(file.rows for file in written) != sum(file.rows for file in files):
        raise AssertionError("merging lost rows")
    table.replace(place, written, files, changes_data=False, engine=writer.name)


def _drop(place: LakePlace, before: date) -> list[date]:
    with place.locked():
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


def _deleted(place: LakePlace, table: LakeTable) -> int:
    """Delete files of killed processes, and files unreferenced by any version of the last day."""
    if not table.exists(place):
        return 0
    with place.locked():
        opened = table.open(place)
        # No commit references the files of killed processes; only a full vacuum finds them.
        count = len(opened.vacuum(ORPHAN_HOURS, dry_run=False, full=True))
        opened.cleanup_metadata()
        place.sync_log(table.name)
    return count + place.clear_staging(table.name, ORPHAN_HOURS * 3600)


def _start_ms(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp()) * 1000


def _ends(place: LakePlace, files: list[LakeFile]) -> dict[str, int]:
    """Return the end offset of each broker's last message."""
    last: dict[str, LakeFile] = {}
    mixed = [file for file in files if file.broker_from != file.broker_to]
    for file in files:
        if file.broker_from == file.broker_to:
            known = last.get(file.broker_from)
            last[file.broker_from] = max(file, known or file, key=lambda one: one.greatest)
    ends: dict[str, int] = {}
    for file in (*last.values(), *mixed):
        for batch in rows_of(place, file, ("broker", OFFSET, "store_size")):
            end = pc.add(batch.column(OFFSET), batch.column("store_size"))
            rows = pa.table({"broker": batch.column("broker"), "end": end})
            for row in rows.group_by("broker").aggregate([("end", "max")]).to_pylist():
                ends[row["broker"]] = max(ends.get(row["broker"], 0), row["end_max"])
    return ends
