"""Gold: counts over bronze.messages, updated for each of its versions exactly once.

A gold table stores the version of bronze that it has counted in its own log, so the counts and
their version are one commit. Rows of new files are counted and added. A day whose rows have been
removed or rewritten is counted again, and so is every day if bronze's log no longer says what
changed. Gold keeps its counts when retention drops messages from bronze.

The functions acquire UPKEEP, or the caller holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.changes import Difference, changes_since, days_of, files_by_day
from analytics.lake.compaction import FILE_BYTES, groups_due
from analytics.lake.files import PREFIX, FileWriter
from analytics.lake.gold_tables import GOLD, KEYS, TRAFFIC
from analytics.lake.place import UPKEEP
from analytics.lake.rewriting import rows_of, stored_of
from analytics.lake.tables import MESSAGES
from analytics.lake.writer import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import date

    from deltalake import DeltaTable

    from analytics.lake.files import WrittenFile
    from analytics.lake.gold_tables import GoldTable
    from analytics.lake.place import LakePlace
    from analytics.lake.rewriting import LakeFile, StoredFile
    from analytics.lake.writer import Writer

GOLD_DAYS = 400
STATE = "gold-messages"
CLOSED = "closed"
_SUMS = pa.schema([("broker", pa.string()), ("topic", pa.string()), ("messages", pa.int64())])


def is_behind(place: LakePlace) -> bool:
    """Return whether bronze has a version that gold hasn't counted."""
    if not MESSAGES.exists(place):
        return False
    version = MESSAGES.existing(place).version()
    return any(
        not gold.table.exists(place)
        or gold.table.existing(place).transaction_version(STATE) != version
        for gold in GOLD
    )


def catch_up(
    place: LakePlace,
    writer: Writer,
    *,
    recount: bool = False,
    observer: Callable[[str], None] | None = None,
) -> bool:
    """Count new rows of bronze; return whether there were any.

    Args:
        recount: count each day of bronze from the beginning.
        observer: called with the name of each step once it is done.

    Raises:
        LakeBusyError: another process is working on gold, or wrote to it meanwhile.
        LakeError: the lake isn't usable.
    """
    with place.locked(UPKEEP):
        if not MESSAGES.exists(place):
            return False
        with place.locked():
            bronze = MESSAGES.open(place)
            tables = [(gold, gold.table.open(place)) for gold in GOLD]
        tell = observer or (lambda _: None)
        behind = [
            (gold, table)
            for gold, table in tables
            if recount or table.transaction_version(STATE) != bronze.version()
        ]
        for gold, table in behind:
            _catch_up(place, writer, gold, table, bronze, tell, recount=recount)
        return bool(behind)


def close_days(
    place: LakePlace, writer: Writer, before: date, last_closed: date
) -> Iterator[tuple[str, date]]:
    """Drop the days before one, merge small files, and close all days that have ended.

    The caller holds UPKEEP. Yields table and day after each step, and may be stopped there.
    """
    for gold in GOLD:
        if not gold.table.exists(place):
            continue
        by_day = files_by_day(gold.table.existing(place))
        old = [file for day, files in by_day.items() if day < before for file in files]
        if old:
            gold.table.replace(place, [], old)
        for day, files in sorted(by_day.items(), reverse=True):
            if day < before or _is_closed(files):
                continue
            if day <= last_closed:
                _merge(place, writer, gold, files, gold.closed, gold.ordered_by, CLOSED)
                yield gold.table.name, day
                continue
            for group in groups_due(files, is_closed=False, file_bytes=FILE_BYTES):
                _merge(place, writer, gold, group, gold.table.merged)
                yield gold.table.name, day


def erase_key(place: LakePlace, key: str) -> None:
    """Erase a key from all days of gold; its counts are added to the other keys' row."""
    if not KEYS.table.exists(place):
        return
    for files in files_by_day(KEYS.table.existing(place)).values():
        if any(_says(batch, key) for batch in _rows(place, KEYS, files)):
            prefix = CLOSED if _is_closed(files) else PREFIX
            with FileWriter(place, KEYS.table, prefix) as writer:
                for batch in _rows(place, KEYS, files):
                    writer.write(_without(batch, key))
            KEYS.table.replace(place, writer.written, files)


def counted_bronze(place: LakePlace) -> DeltaTable | None:
    """Return bronze.messages at the version that gold has counted, or None."""
    version = TRAFFIC.table.existing(place).transaction_version(STATE)
    if version is None:
        return None
    bronze = MESSAGES.existing(place)
    bronze.load_as_version(version)
    return bronze


def differences(place: LakePlace, bronze: DeltaTable, writer: Writer) -> list[Difference]:
    """Compare the sums of gold with bronze, for each day of bronze."""
    found = []
    days = sorted(days_of(bronze).items())
    for gold in GOLD:
        by_day = files_by_day(gold.table.existing(place))
        for day, files in days:
            sums = (
                "SELECT broker, topic, CAST(sum(messages) AS BIGINT) AS messages "
                f"FROM ({gold.counted}) GROUP BY broker, topic"
            )
            query = Query(sums, MESSAGES, files, gold.reads)
            in_bronze = _sums(writer.table(place, query, _SUMS).to_batches())
            in_gold = _sums(_rows(place, gold, by_day.get(day, [])))
            if in_gold != in_bronze:
                totals = (sum(each.values()) for each in (in_gold, in_bronze))
                found.append(Difference(gold.table.name, day, *totals))
    return found


def _catch_up(
    place: LakePlace,
    writer: Writer,
    gold: GoldTable,
    table: DeltaTable,
    bronze: DeltaTable,
    tell: Callable[[str], None],
    *,
    recount: bool,
) -> None:
    changes = changes_since(place, None if recount else table.transaction_version(STATE), bronze)
    days = days_of(bronze)
    removed: list[StoredFile] = []
    there = files_by_day(table)
    written = _counted(place, writer, gold, changes.added)
    for day in sorted(changes.recounted):
        files = days.get(day, [])
        written += _counted(place, writer, gold, files)
        # Brokers that bronze dropped still have rows in gold.
        counted = pa.array(sorted(_brokers(place, files) | changes.removed_brokers), pa.string())
        with FileWriter(place, gold.table) as kept:
            for batch in _rows(place, gold, there.get(day, [])):
                is_counted = pc.is_in(batch.column("broker"), value_set=counted)
                kept.write(batch.filter(pc.invert(is_counted)))
        written += kept.written
        removed += there.get(day, [])
    tell("gold written")
    with place.locked():
        gold.table.commit(
            place,
            table,
            written,
            removed=[file.path for file in removed],
            states={STATE: bronze.version()},
            engine=writer.name,
        )
        tell("gold committed")
        gold.table.checkpoint(place)


def _is_closed(files: Sequence[StoredFile]) -> bool:
    return len(files) == 1 and f"/{CLOSED}-" in files[0].path


def _brokers(place: LakePlace, files: Iterable[LakeFile]) -> set[str]:
    found: set[str] = set()
    for file in files:
        found |= {file.broker_from, file.broker_to}
        if file.broker_from != file.broker_to:
            for batch in rows_of(place, file, ("broker",)):
                found |= set(pc.unique(batch.column("broker")).to_pylist())
    return found


def _counted(
    place: LakePlace, writer: Writer, gold: GoldTable, files: Sequence[LakeFile]
) -> list[WrittenFile]:
    """Write the rows of a gold table for the messages in some files."""
    if not files:
        return []
    return writer.rows(place, Query(gold.counted, MESSAGES, files, gold.reads), gold.table)


def _rows(
    place: LakePlace, gold: GoldTable, files: Iterable[StoredFile], *, is_staged: bool = False
) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from rows_of(place, file, table=gold.table, is_staged=is_staged)


def _merge(
    place: LakePlace,
    writer: Writer,
    gold: GoldTable,
    files: Sequence[StoredFile],
    text: str,
    ordered_by: tuple[str, ...] = (),
    prefix: str = PREFIX,
) -> None:
    """Replace some files of a day by one equivalent file."""
    query = Query(text, gold.table, files, ordered_by=ordered_by)
    written = writer.rows(place, query, gold.table, prefix)
    after = _sums(_rows(place, gold, map(stored_of, written), is_staged=True))
    if _sums(_rows(place, gold, files)) != after:
        raise AssertionError("merging changed the sums")
    gold.table.replace(place, written, files, changes_data=False, engine=writer.name)


def _sums(batches: Iterable[pa.RecordBatch]) -> dict[tuple[str, str], int]:
    """Return the number of messages of each broker and topic."""
    found: dict[tuple[str, str], int] = {}
    for batch in batches:
        _add_sums(found, batch)
    return found


def _add_sums(found: dict[tuple[str, str], int], batch: pa.RecordBatch) -> None:
    rows = pa.table(batch.select(["broker", "topic", "messages"]))
    summed = rows.group_by(["broker", "topic"]).aggregate([("messages", "sum")])
    for row in summed.to_pylist():
        place = (row["broker"], row["topic"])
        found[place] = found.get(place, 0) + row["messages_sum"]


def _says(batch: pa.RecordBatch, key: str) -> bool:
    return bool(pc.any(pc.equal(batch.column("key"), key)).as_py())


def _without(batch: pa.RecordBatch, key: str) -> pa.RecordBatch:
    keys = batch.column("key")
    is_said = pc.fill_null(pc.equal(keys, key), False)
    hidden = pc.if_else(is_said, pa.scalar(None, pa.string()), keys)
    return batch.set_column(
        batch.schema.get_field_index("key"), KEYS.table.schema.field("key"), hidden
    )
