"""Gold: what is counted of bronze.messages, brought up to each of its versions exactly once.

A table of gold keeps the version of bronze that it has counted among the numbers of its own log:
what was counted, and up to where, are one commit. Files that batches added are counted by
themselves, and their rows added. A day whose rows were taken out or rewritten since is counted
anew; so is every day when the log of bronze no longer says what changed. What the retention dropped
from bronze stays in gold.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.duck import duck_beside
from analytics.lake.files import PREFIX, FileWriter
from analytics.lake.gold_tables import GOLD, KEYS
from analytics.lake.place import LOG
from analytics.lake.rewriting import files_of, rows_of, stored_files_of
from analytics.lake.tables import MESSAGES
from analytics.lake.watermark import STATE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from deltalake import DeltaTable

    from analytics.lake.duck import Duck
    from analytics.lake.gold_tables import GoldTable
    from analytics.lake.place import LakePlace
    from analytics.lake.rewriting import LakeFile, StoredFile

GOLD_DAYS = 400
STATE = "gold-messages"
# So many small files of a day become one.
FILES_A_DAY_MAX = 16
SMALL_BYTES = 8 * 1024 * 1024
CLOSED = "closed"
_DAY_IN_PATH = re.compile(r"day=(\d{4}-\d{2}-\d{2})/")


@dataclass(slots=True)
class Changes:
    """What happened to bronze.messages since a version.

    Attributes:
        anew: days that are to be counted anew.
        taken_out: of whom a rebuild took rows out.
        added: files whose rows are to be added, of other days.
    """

    anew: set[date] = field(default_factory=set)
    taken_out: set[str] = field(default_factory=set)
    added: list[LakeFile] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Difference:
    """A table and day whose sums are not those of bronze."""

    table: str
    day: date
    messages_in_gold: int
    messages_in_bronze: int


def bring_up(
    place: LakePlace,
    *,
    anew: bool = False,
    observer: Callable[[str], None] | None = None,
) -> bool:
    """Count what is new in bronze; return whether anything was. The caller has the lake's lock.

    Args:
        anew: count each day that bronze has from the beginning.
        observer: is told the name of each step that has been done.

    Raises:
        LakeBusyError: somebody else has written to gold meanwhile.
        LakeError: the lake cannot be used.
    """
    if not MESSAGES.exists(place):
        return False
    bronze = MESSAGES.open(place)
    tell = observer or (lambda _: None)
    tables = [(gold, gold.table.open(place)) for gold in GOLD]
    behind = [
        (gold, table)
        for gold, table in tables
        if anew or table.transaction_version(STATE) != bronze.version()
    ]
    if behind:
        with duck_beside(place) as duck:
            for gold, table in behind:
                _bring_up(duck, gold, table, bronze, tell, anew=anew)
    return bool(behind)


def tidy(place: LakePlace, before: date, last_closed: date) -> None:
    """Drop days before one, and close those up to the last that has ended."""
    with duck_beside(place) as duck:
        for gold in GOLD:
            if not gold.table.exists(place):
                continue
            by_day = _by_day(gold.table.open(place))
            old = [file for day, files in by_day.items() if day < before for file in files]
            if old:
                gold.table.replace(place, [], old)
            for day, files in sorted(by_day.items()):
                if before <= day <= last_closed and not _is_closed(files):
                    _replaced(duck, gold, files, gold.closed, CLOSED)


def erase_key(place: LakePlace, key: str) -> None:
    """Have no row of gold say a key, on whichever day; its numbers stay, among the others'."""
    if not KEYS.table.exists(place):
        return
    schema = KEYS.table.schema
    with duck_beside(place) as duck:
        for files in _by_day(KEYS.table.open(place)).values():
            if any(_says(batch, key) for batch in _rows(place, KEYS, files)):
                hidden = (_without(batch, key) for batch in _rows(place, KEYS, files))
                prefix = CLOSED if _is_closed(files) else PREFIX
                with FileWriter(place, KEYS.table, prefix) as writer:
                    for batch in duck.computed(KEYS.table.merged, hidden, schema, schema):
                        writer.write(batch)
                KEYS.table.replace(place, writer.written, files)


def differences(place: LakePlace) -> list[Difference]:
    """Compare the sums of gold with those of bronze, for each day that bronze has."""
    found = []
    days = sorted(_days_of(MESSAGES.open(place)).items())
    with duck_beside(place) as duck:
        for gold in GOLD:
            by_day = _by_day(gold.table.open(place))
            for day, files in days:
                in_bronze = _sums(_counted(duck, gold, files))
                in_gold = _sums(_rows(place, gold, by_day.get(day, [])))
                if in_gold != in_bronze:
                    totals = (sum(each.values()) for each in (in_gold, in_bronze))
                    found.append(Difference(gold.table.name, day, *totals))
    return found


def _bring_up(
    duck: Duck,
    gold: GoldTable,
    table: DeltaTable,
    bronze: DeltaTable,
    tell: Callable[[str], None],
    *,
    anew: bool,
) -> None:
    place = duck.place
    changes = _changes(place, None if anew else table.transaction_version(STATE), bronze)
    days = _days_of(bronze)
    removed: list[StoredFile] = []
    there = _by_day(table)
    with FileWriter(place, gold.table) as writer:
        for batch in _counted(duck, gold, changes.added):
            writer.write(batch)
        for day in sorted(changes.anew):
            files = days.get(day, [])
            for batch in _counted(duck, gold, files):
                writer.write(batch)
            # What bronze dropped of somebody is here alone.
            counted = pa.array(sorted(_brokers(place, files) | changes.taken_out), pa.string())
            for batch in _rows(place, gold, there.get(day, [])):
                is_counted = pc.is_in(batch.column("broker"), value_set=counted)
                writer.write(batch.filter(pc.invert(is_counted)))
            removed += there.get(day, [])
    tell("gold written")
    states = {STATE: bronze.version()}
    gold.table.commit(
        place, table, writer.written, removed=[file.path for file in removed], states=states
    )
    tell("gold committed")
    for stored in _by_day(gold.table.existing(place)).values():
        small = [file for file in stored if file.size < SMALL_BYTES]
        if len(small) > FILES_A_DAY_MAX:
            _replaced(duck, gold, small, gold.table.merged)
            tell("gold merged")
    gold.table.checkpoint(place)


def _changes(place: LakePlace, known: int | None, bronze: DeltaTable) -> Changes:
    """Return what happened since a version, every day anew when that cannot be told."""
    current = {file.path: file for file in files_of(bronze)}
    every_day = Changes(anew={file.day for file in current.values()})
    if known is None or known > bronze.version():
        return every_day
    changes = Changes()
    added: set[str] = set()
    for version in range(known + 1, bronze.version() + 1):
        actions = _actions(place, version)
        if actions is None:
            return every_day
        adds, removes = (
            {one[kind]["path"] for one in actions if kind in one and one[kind]["dataChange"]}
            for kind in ("add", "remove")
        )
        if removes:
            changes.anew |= set(map(_day_of, adds | removes))
            changes.taken_out |= _rebuilt(actions)
        else:
            added |= adds
    # Added, and rewritten before it was counted: the day tells.
    changes.anew |= {_day_of(path) for path in added if path not in current}
    changes.added = [current[path] for path in sorted(added) if _day_of(path) not in changes.anew]
    return changes


def _actions(place: LakePlace, version: int) -> list[dict[str, Any]] | None:
    """Return what one commit to bronze.messages says, None when it is not there any more."""
    path = place.path_of(MESSAGES.name, f"{LOG}/{version:020}.json")
    try:
        with place.filesystem().open_input_stream(path) as stream:
            return [json.loads(line) for line in stream.read().splitlines()]
    except FileNotFoundError:
        return None


def _rebuilt(actions: Sequence[dict[str, Any]]) -> set[str]:
    """Return of whose log the watermark was moved together with what was removed."""
    names = [one["txn"]["appId"] for one in actions if "txn" in one]
    return {
        name.removeprefix(STATE_PREFIX)
        for name in names
        if name.startswith(STATE_PREFIX) and f"{name}-fingerprint" in names
    }


def _day_of(path: str) -> date:
    found = _DAY_IN_PATH.search(path)
    assert found, path
    return date.fromisoformat(found[1])


def _days_of(bronze: DeltaTable) -> dict[date, list[LakeFile]]:
    found: dict[date, list[LakeFile]] = defaultdict(list)
    for file in files_of(bronze):
        found[file.day].append(file)
    return found


def _by_day(table: DeltaTable) -> dict[date, list[StoredFile]]:
    found: dict[date, list[StoredFile]] = defaultdict(list)
    for file in stored_files_of(table):
        found[file.day].append(file)
    return found


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


def _counted(duck: Duck, gold: GoldTable, files: Sequence[LakeFile]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table of gold for the messages in some files."""
    if files:
        columns = pa.schema([one for one in MESSAGES.schema if one.name in gold.reads])
        rows = (batch for file in files for batch in rows_of(duck.place, file, gold.reads))
        yield from duck.computed(gold.counted, rows, columns, gold.table.schema)


def _rows(
    place: LakePlace, gold: GoldTable, files: Iterable[StoredFile]
) -> Iterator[pa.RecordBatch]:
    return (batch for file in files for batch in rows_of(place, file, table=gold.table))


def _replaced(
    duck: Duck, gold: GoldTable, files: Sequence[StoredFile], query: str, prefix: str = PREFIX
) -> None:
    """Have one file say what several do."""
    place = duck.place
    before = _sums(_rows(place, gold, files))
    after: dict[tuple[str, str], int] = {}
    schema = gold.table.schema
    with FileWriter(place, gold.table, prefix) as writer:
        for batch in duck.computed(query, _rows(place, gold, files), schema, schema):
            _add_sums(after, batch)
            writer.write(batch)
    if before != after:
        raise AssertionError("merging changed the sums")
    gold.table.replace(place, writer.written, files, changes_data=False)


def _sums(batches: Iterable[pa.RecordBatch]) -> dict[tuple[str, str], int]:
    """Return the messages of each broker and topic."""
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
