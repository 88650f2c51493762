"""What an operator does to a lake by hand: rebuild, forget, verify."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.errors import LakeError
from analytics.lake.events import EventNotes, erase, take_out
from analytics.lake.files import FileWriter
from analytics.lake.forgotten import forgotten_offsets
from analytics.lake.gaps import drop_gaps
from analytics.lake.gold import bring_up, differences, erase_key
from analytics.lake.gold_tables import KEYS
from analytics.lake.parts import without_content
from analytics.lake.rewriting import LakeFile, files_of, rewritten, rows_of
from analytics.lake.tables import EVENTS, FORGOTTEN, MESSAGES, OFFSET
from analytics.lake.watermark import (
    ReadAgain,
    Watermark,
    dropped_before_ms,
    dropped_state,
    dropped_to,
)
from analytics.store.decode import COLUMN_TYPES, RowFilter
from analytics.store.fingerprint import fingerprint_before

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from analytics.lake.gold import Difference
    from analytics.lake.ingest import Source
    from analytics.lake.place import LakePlace
    from analytics.store.reader import StoreReader

# As much of the log is compared at once.
COMPARED_BYTES = 64 * 1024 * 1024
DIFFERENCES_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """What a rebuild does: rows at and behind `log_from` go, the log is read again from there."""

    log_from: int
    log_to: int
    rows: int


@dataclass(frozen=True, slots=True)
class Verified:
    """What a comparison of lake and log found in the range that both have."""

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
        """Whether bronze is what the log says; gold may still differ from bronze."""
        return not (self.repeated or self.missing or self.surplus or self.events)


def rebuilding(place: LakePlace, source: Source) -> Rebuilding:
    """Return what a rebuild would do."""
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
    """Take away what the lake has of the log as far as it is there; the next batch reads it again.

    What has expired in the log stays in the lake, and what the retention dropped stays dropped.
    """
    with place.locked():
        bring_up(place)
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
            # Where the dropped days end in this log is not known by offsets.
            states |= ReadAgain(todo.log_to, dropped_before_ms(table)).states(broker)
            states[dropped_state(broker)] = 0
        MESSAGES.commit(
            place,
            table,
            kept,
            removed=[file.path for file in files],
            states=states,
        )
        drop_gaps(place, broker, todo.log_from)
        take_out(place, broker, todo.log_from)
        bring_up(place)
        return todo


def rebuild_gold(place: LakePlace) -> bool:
    """Count each day that bronze has from the beginning; return whether there is a bronze.

    What bronze has no more stays in gold.
    """
    with place.locked():
        return bring_up(place, anew=True)


def forget(place: LakePlace, key: str) -> int:
    """Erase what messages with a key say, in the lake; return how many there were.

    A key is one of KEYS, or the UNIQ_KEY. That there was a message, when and in which topic, stays:
    numbers of messages do not change. Files with the content are deleted at once.
    """
    if not key.strip():
        raise LakeError("forget needs a key: one of a message's KEYS, or its UNIQ_KEY.")
    with place.locked():
        if not MESSAGES.exists(place):
            return 0
        # Before anything else: what is cut short here is found when it is done again.
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
                for broker, offset in zip(
                    rows.column("broker").to_pylist(), rows.column(OFFSET).to_pylist(), strict=True
                ):
                    found.setdefault(broker, set()).add(offset)
                    files[had:] = [file]
        events = erase(place, uniq_keys)
        if files or events:
            _remember(
                place,
                {
                    broker: found.get(broker, set()) | events.get(broker, set())
                    for broker in found | events
                },
            )
        if files:
            written = rewritten(place, files, lambda batch: _masked(batch, found))
            MESSAGES.commit(place, table, written, removed=[file.path for file in files])
            bring_up(place)
        # Files that no version of the future names, however young: they hold the content. So do
        # those of a call that was killed.
        for each in (MESSAGES, EVENTS, KEYS.table):
            if each.exists(place):
                each.existing(place).vacuum(
                    retention_hours=0, dry_run=False, enforce_retention_duration=False
                )
                place.sync_log(each.name)
        return sum(len(offsets) for offsets in found.values())


def verify(place: LakePlace, source: Source) -> Verified:
    """Compare the messages of the lake with those of the log, where both have the range.

    Raises:
        LakeError: the lake has nothing of this broker yet.
    """
    with place.locked():
        watermark = None
        if MESSAGES.exists(place):
            watermark = Watermark.of(MESSAGES.open(place), source.broker)
        if watermark is None:
            raise LakeError(f"The lake {place.uri} has nothing of {source.broker} yet.")
        bring_up(place)
        reader = source.task(place).reader()
        table = MESSAGES.existing(place)
        again = ReadAgain.of(table, source.broker)
        first, _ = reader.extent()
        first = max(first, dropped_to(table, source.broker))
        start = min(first, watermark.offset)
        schema = pa.schema([(OFFSET, COLUMN_TYPES[OFFSET])])
        messages = repeated = 0
        missing: list[int] = []
        surplus: list[int] = []
        last = max(first, watermark.offset)
        edge = min(max(first, again.to), last)
        splits = [
            *reader.plan(from_offset=first, to_offset=edge).splits,
            *reader.plan(from_offset=edge, to_offset=last).splits,
        ]
        for split in splits:
            wanted = RowFilter(from_ms=again.from_ms_at(split.commit_log_from))
            batches = list(reader.read(split, schema, wanted, fail_on_data_loss=False))
            of_log = np.unique(pa.Table.from_batches(batches, schema)[OFFSET].to_numpy())
            every = _offsets(place, source.broker, split.commit_log_from, split.commit_log_to)
            of_lake = np.unique(every)
            repeated += len(every) - len(of_lake)
            messages += len(of_lake)
            missing += np.setdiff1d(of_log, of_lake).tolist()
            surplus += np.setdiff1d(of_lake, of_log).tolist()
        task = source.task(place)
        files = [file for file in files_of(table) if file.may_hold(source.broker, first, last)]
        events = 0
        for log_from, log_to in ((first, edge), (edge, last)):
            kept = replace(
                task,
                forgotten=forgotten_offsets(place, source.broker, log_from, log_to),
                from_ms=again.from_ms_at(log_from),
            )
            events += EventNotes(place, kept, reader).differences(files, log_from, log_to)
        found = (messages, repeated, missing, surplus, differences(place), events)
        return Verified(max(start, first), watermark.offset, *found)


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


def _offsets(place: LakePlace, broker: str, log_from: int, log_to: int) -> NDArray[np.int64]:
    found: list[NDArray[np.int64]] = []
    for file in files_of(MESSAGES.existing(place)):
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
