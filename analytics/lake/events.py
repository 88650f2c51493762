"""bronze.events: what happened to messages: retries, dead letters, delays, transactions.

The writer of a part also writes its events (`parts`), which are committed before the batch. The
table stores the offset up to which it has events, so that a repeated batch doesn't write them
twice.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.files import FileWriter
from analytics.lake.parts import events_in
from analytics.lake.rewriting import rows_of, stored_files_of
from analytics.lake.tables import EVENTS, OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analytics.lake.files import WrittenFile
    from analytics.lake.parts import WriteTask
    from analytics.lake.place import LakePlace
    from analytics.store.plan import Split

    Event = tuple[int, str, int | None]


def events_end(place: LakePlace, broker: str) -> int:
    """Return the log offset up to which a broker's events are in the lake."""
    return EVENTS.open(place).transaction_version(_state(broker)) or 0


def note(
    place: LakePlace, broker: str, files: Sequence[WrittenFile], log_to: int, engine: str
) -> None:
    """Commit the events of a broker's log up to an offset, if there are any."""
    if any(file.rows for file in files):
        EVENTS.commit(
            place, EVENTS.open(place), files, states={_state(broker): log_to}, engine=engine
        )
        EVENTS.checkpoint(place)


def differences(task: WriteTask, splits: Iterable[Split], log_from: int, log_to: int) -> int:
    """Return how many events of a range differ between the lake and the log."""
    there: Counter[Event] = Counter()
    if EVENTS.exists(task.place):
        for file in stored_files_of(EVENTS.existing(task.place)):
            for batch in rows_of(task.place, file, table=EVENTS):
                is_before = pc.less(batch.column(OFFSET), log_to)
                wanted = pc.and_(_is_from(batch, task.broker, log_from), is_before)
                there.update(_identities(batch.filter(wanted)))
    expected: Counter[Event] = Counter()
    for split in splits:
        for batch in events_in(task, split):
            expected.update(_identities(batch))
    return ((there - expected) + (expected - there)).total()


def remove_from(place: LakePlace, broker: str, log_from: int) -> None:
    """Remove a broker's events from an offset on, before the log is read again from there."""
    if not EVENTS.exists(place):
        return
    table = EVENTS.open(place)
    touched = []
    with FileWriter(place, EVENTS) as writer:
        for file in stored_files_of(table):
            batches = list(rows_of(place, file, table=EVENTS))
            gone = [_is_from(batch, broker, log_from) for batch in batches]
            if any(pc.any(each).as_py() for each in gone):
                touched.append(file.path)
                for batch, is_gone in zip(batches, gone, strict=True):
                    writer.write(batch.filter(pc.invert(is_gone)))
    states = {_state(broker): log_from}
    EVENTS.commit(place, table, writer.written, removed=touched, states=states)


def erase(place: LakePlace, uniq_keys: set[str]) -> dict[str, set[int]]:
    """Erase some keys from all events; return the offsets of these events for each broker."""
    found: dict[str, set[int]] = {}
    if not EVENTS.exists(place):
        return found
    table = EVENTS.open(place)
    wanted = pa.array(sorted(uniq_keys), pa.string())
    at = EVENTS.schema.get_field_index("uniq_key")
    touched = []
    with FileWriter(place, EVENTS) as writer:
        for file in stored_files_of(table):
            batches = list(rows_of(place, file, table=EVENTS))
            said = [pc.is_in(batch.column("uniq_key"), value_set=wanted) for batch in batches]
            if not any(pc.any(each).as_py() for each in said):
                continue
            touched.append(file.path)
            for batch, says in zip(batches, said, strict=True):
                rows = batch.filter(says)
                brokers, offsets = rows.column("broker").to_pylist(), rows.column(OFFSET)
                for broker, offset in zip(brokers, offsets.to_pylist(), strict=True):
                    found.setdefault(broker, set()).add(offset)
                hidden = pc.if_else(says, pa.scalar(None, pa.string()), batch.column("uniq_key"))
                writer.write(batch.set_column(at, EVENTS.schema.field(at), hidden))
    if touched:
        EVENTS.commit(place, table, writer.written, removed=touched)
    return found


def _is_from(batch: pa.RecordBatch, broker: str, log_from: int) -> pa.BooleanArray:
    return pc.and_(
        pc.equal(batch.column("broker"), broker), pc.greater_equal(batch.column(OFFSET), log_from)
    )


def _identities(batch: pa.RecordBatch) -> Sequence[Event]:
    names_of = (OFFSET, "event", "half_queue_offset")
    return list(zip(*(batch.column(name).to_pylist() for name in names_of), strict=True))


def _state(broker: str) -> str:
    return f"events-{broker}"
