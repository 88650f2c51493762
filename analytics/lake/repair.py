"""Manual operations on a lake: rebuild, forget, verify."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.errors import LakeError
from analytics.lake import events, iceberg, silver
from analytics.lake.derived import catch_up
from analytics.lake.files import FileWriter
from analytics.lake.gaps import drop_gaps
from analytics.lake.gold import counted_bronze, differences, erase_key
from analytics.lake.gold_tables import KEYS
from analytics.lake.parts import without_content
from analytics.lake.place import UPKEEP
from analytics.lake.rewriting import LakeFile, files_of, rewritten, rows_of
from analytics.lake.silver_tables import silver_in
from analytics.lake.tables import EVENTS, FORGOTTEN, MESSAGES, OFFSET
from analytics.lake.watermark import (
    Rereading,
    Watermark,
    dropped_before_ms,
    dropped_state,
    dropped_to,
)
from analytics.lake.writer import ArrowWriter
from analytics.store.decode import COLUMN_TYPES, RowFilter
from analytics.store.fingerprint import fingerprint_before

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable
    from numpy.typing import NDArray

    from analytics.lake.changes import Difference
    from analytics.lake.ingest import Source
    from analytics.lake.place import LakePlace
    from analytics.store.plan import Split
    from analytics.store.reader import StoreReader

DIFFERENCES_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """A planned rebuild: rows at and after `log_from` are removed, and the log is read again from
    there.
    """

    log_from: int
    log_to: int
    rows: int


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of comparing lake and log in the range that both have."""

    log_from: int
    log_to: int
    messages: int
    repeated: int
    missing: list[int]
    surplus: list[int]
    in_gold: list[Difference]
    events: int

    @property
    def is_equal(self) -> bool:
        """Whether bronze equals the log; gold may still differ from bronze."""
        return not (self.repeated or self.missing or self.surplus or self.events)


def rebuilding(place: LakePlace, source: Source) -> Rebuilding:
    """Return the plan of a rebuild."""
    reader = source.task(place).reader()
    plan = reader.plan()
    log_from = plan.log_from
    if MESSAGES.exists(place) and _is_same_log(place, source, reader):
        log_from = max(log_from, dropped_to(MESSAGES.existing(place), source.broker))
    rows = 0
    for file in _files_from(place, source.broker, log_from):
        for batch in rows_of(place, file, ("broker", OFFSET)):
            rows += int(pc.sum(_is_from(batch, source.broker, log_from)).as_py() or 0)
    return Rebuilding(log_from, plan.log_to, rows)


def rebuild(place: LakePlace, source: Source) -> Rebuilding:
    """Remove the part of the lake that the log still has; the next batch reads it again.

    The lake keeps messages that have expired in the log, and doesn't restore days that retention
    dropped.
    """
    writer = ArrowWriter()
    with place.locked(UPKEEP):
        catch_up(place, writer)
        with place.locked():
            todo = _rebuilt(place, source)
        catch_up(place, writer)
        iceberg.follow(place)
        return todo


def _rebuilt(place: LakePlace, source: Source) -> Rebuilding:
    """Remove the rows, and move the watermark back."""
    todo = rebuilding(place, source)
    broker = source.broker
    files = _files_from(place, broker, todo.log_from)
    table = MESSAGES.open(place)
    kept = rewritten(
        place,
        files,
        lambda batch: batch.filter(pc.invert(_is_from(batch, broker, todo.log_from))),
    )
    reader = source.task(place).reader()
    moved = Watermark(todo.log_from, fingerprint_before(reader.files(), todo.log_from) or 0, 0)
    states = moved.states(broker)
    if not _is_same_log(place, source, reader):
        # The offsets where the dropped days end in this log are unknown.
        states |= Rereading(todo.log_to, dropped_before_ms(table)).states(broker)
        states[dropped_state(broker)] = 0
    MESSAGES.commit(
        place,
        table,
        kept,
        removed=[file.path for file in files],
        states=states,
    )
    drop_gaps(place, broker, todo.log_from)
    events.remove_from(place, broker, todo.log_from)
    return todo


def rebuild_gold(place: LakePlace) -> bool:
    """Count each day of bronze from the beginning; return whether bronze exists.

    Gold keeps the counts of days that bronze has dropped.
    """
    with place.locked(UPKEEP):
        is_there = catch_up(place, ArrowWriter(), recount=True)
        iceberg.follow(place)
    return is_there


def forget(place: LakePlace, key: str) -> int:
    """Erase the content of messages with a key from the lake; return their number.

    A key is one of KEYS, or the UNIQ_KEY. Data that doesn't identify anyone stays: each message's
    store time, offsets, tags and host. Files with the content are deleted at once.
    """
    if not key.strip():
        raise LakeError("No key is given. Name one of a message's KEYS, or its UNIQ_KEY.")
    with place.locked(UPKEEP):
        if not MESSAGES.exists(place):
            return 0
        with place.locked():
            found = _erased(place, key)
        catch_up(place, ArrowWriter())
        # Delete unreferenced files however new they are, because they contain the content. This
        # includes files of a killed call and of a batch in progress.
        with place.locked():
            of_silver = [table for topic in silver_in(place) for table in topic.tables]
            for each in (MESSAGES, EVENTS, KEYS.table, *of_silver):
                if each.exists(place):
                    each.existing(place).vacuum(
                        retention_hours=0, dry_run=False, enforce_retention_duration=False
                    )
                    place.clear_staging(each.name)
                    place.sync_log(each.name)
        # Older snapshots name deleted files.
        iceberg.tidy(place, hours=0)
        return sum(len(offsets) for offsets in found.values())


def _erased(place: LakePlace, key: str) -> dict[str, set[int]]:
    """Erase a key from each table; return, for each broker, the offsets of its messages."""
    # First, so that repeating an interrupted call finds the key again.
    erase_key(place, key)
    table = MESSAGES.open(place)
    found: dict[str, set[int]] = {}
    uniq_keys = {key}
    files: list[LakeFile] = []
    for file in files_of(table):
        had = len(files)
        for batch in rows_of(place, file, ("broker", OFFSET, "keys", "uniq_key")):
            rows = batch.filter(_has_key(batch, key))
            uniq_keys |= set(rows.column("uniq_key").drop_null().to_pylist())
            brokers, offsets = rows.column("broker").to_pylist(), rows.column(OFFSET).to_pylist()
            for broker, offset in zip(brokers, offsets, strict=True):
                found.setdefault(broker, set()).add(offset)
                files[had:] = [file]
    of_events = events.erase(place, uniq_keys)
    if files or of_events:
        every = {
            broker: found.get(broker, set()) | of_events.get(broker, set())
            for broker in found | of_events
        }
        _remember(place, every)
    if files:
        written = rewritten(place, files, lambda batch: _masked(batch, found))
        MESSAGES.commit(place, table, written, removed=[file.path for file in files])
    return found


def verify(place: LakePlace, source: Source) -> Verified:
    """Compare the messages of the lake with the log, in the range that both have.

    Raises:
        LakeError: there is no such range yet.
    """
    writer = ArrowWriter()
    with place.locked(UPKEEP):
        catch_up(place, writer)
        # Batches continue meanwhile, so compare the version that gold has counted.
        table = counted_bronze(place) if MESSAGES.exists(place) else None
        watermark = None if table is None else Watermark.of(table, source.broker)
        if table is None or watermark is None:
            raise LakeError(f"The lake {place.uri} has no data from {source.broker} yet.")
        reader = source.task(place).reader()
        again = Rereading.of(table, source.broker)
        first, _ = reader.extent()
        first = max(first, dropped_to(table, source.broker))
        last = max(first, watermark.offset)
        if first == last < reader.end(first):
            raise LakeError(
                f"The lake {place.uri} can't be compared yet. It was rebuilt or fell behind, so it "
                f"doesn't have the messages that the log of {source.broker} has from offset "
                f"{first} on. Run `manage.py lake ingest` to read them now."
            )
        edge = min(max(first, again.to), last)
        messages = repeated = of_events = 0
        missing: list[int] = []
        surplus: list[int] = []
        schema = pa.schema([(OFFSET, COLUMN_TYPES[OFFSET])])
        for log_from, log_to in ((first, edge), (edge, last)):
            from_ms = again.from_ms_at(log_from)
            splits = reader.plan(from_offset=log_from, to_offset=log_to).splits
            for split in splits:
                rows = reader.read(
                    split, schema, RowFilter(from_ms=from_ms), fail_on_data_loss=False
                )
                of_log = np.unique(pa.Table.from_batches(rows, schema)[OFFSET].to_numpy())
                every = _offsets(place, table, source.broker, split)
                of_lake = np.unique(every)
                repeated += len(every) - len(of_lake)
                messages += len(of_lake)
                missing += np.setdiff1d(of_log, of_lake).tolist()
                surplus += np.setdiff1d(of_lake, of_log).tolist()
            of_events += events.differences(
                source.task(place, from_ms=from_ms), splits, log_from, log_to
            )
        in_gold = differences(place, table, writer) + silver.differences(place, writer)
        found = (messages, repeated, missing, surplus, in_gold, of_events)
        return Verified(first, watermark.offset, *found)


def _is_same_log(place: LakePlace, source: Source, reader: StoreReader) -> bool:
    watermark = Watermark.of(MESSAGES.existing(place), source.broker)
    if watermark is None:
        return False
    return fingerprint_before(reader.files(), watermark.offset) == watermark.fingerprint


def _files_from(place: LakePlace, broker: str, log_from: int) -> list[LakeFile]:
    if not MESSAGES.exists(place):
        return []
    return [
        file
        for file in files_of(MESSAGES.existing(place))
        if file.broker_from <= broker <= file.broker_to and file.greatest >= log_from
    ]


def _is_from(batch: pa.RecordBatch, broker: str, log_from: int) -> pa.Array:
    return pc.and_(
        pc.equal(batch.column("broker"), broker),
        pc.greater_equal(batch.column(OFFSET), log_from),
    )


def _has_key(batch: pa.RecordBatch, key: str) -> pa.Array:
    is_unique = pc.fill_null(pc.equal(batch.column("uniq_key"), key), False)
    keys = batch.column("keys")
    of_rows = pc.list_parent_indices(keys).filter(pc.equal(pc.list_flatten(keys), key))
    rows = pa.array(range(batch.num_rows), type=of_rows.type)
    return pc.or_(is_unique, pc.is_in(rows, value_set=of_rows))


def _masked(batch: pa.RecordBatch, found: dict[str, set[int]]) -> pa.RecordBatch:
    parts = []
    for broker in pc.unique(batch.column("broker")).to_pylist():
        rows = batch.filter(pc.equal(batch.column("broker"), broker))
        parts.append(without_content(rows, frozenset(found.get(broker, ()))))
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _remember(place: LakePlace, found: dict[str, set[int]]) -> None:
    rows = [(broker, offset) for broker, offsets in found.items() for offset in sorted(offsets)]
    table = FORGOTTEN.open(place)
    now = [datetime.now(UTC)] * len(rows)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([broker for broker, _ in rows], pa.string()),
            pa.array([offset for _, offset in rows], pa.int64()),
            pa.array(now, FORGOTTEN.schema.field("forgotten_at").type),
        ],
        schema=FORGOTTEN.schema,
    )
    with FileWriter(place, FORGOTTEN) as writer:
        writer.write(batch)
    FORGOTTEN.commit(place, table, writer.written)


def _offsets(place: LakePlace, table: DeltaTable, broker: str, split: Split) -> NDArray[np.int64]:
    """Return the offsets of a broker's messages in a range, including duplicates."""
    log_from, log_to = split.commit_log_from, split.commit_log_to
    found: list[NDArray[np.int64]] = []
    for file in files_of(table):
        if file.may_hold(broker, log_from, log_to):
            for batch in rows_of(place, file, ("broker", OFFSET)):
                is_of = pc.equal(batch.column("broker"), broker).to_numpy(zero_copy_only=False)
                offsets = batch.column(OFFSET).to_numpy()
                found.append(offsets[is_of & (offsets >= log_from) & (offsets < log_to)])
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def shown(offsets: Sequence[int]) -> str:
    """Return the first of some offsets as text."""
    text = ", ".join(map(str, offsets[:DIFFERENCES_SHOWN_MAX]))
    return text + (", …" if len(offsets) > DIFFERENCES_SHOWN_MAX else "")
