"""bronze.gaps: the ranges of a broker's log that the lake couldn't read, and why.

Gaps are committed before the batch that found them. The table stores the offset up to which gaps
are written, so that a repeated batch doesn't write them twice.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.files import FileWriter
from analytics.lake.tables import GAPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.lake.parts import Unread
    from analytics.lake.place import LakePlace


def note_gaps(place: LakePlace, broker: str, unread: Sequence[Unread]) -> None:
    """Write the gaps that aren't in the table yet."""
    opened = GAPS.open(place)
    noted_to = opened.transaction_version(_state(broker)) or 0
    now = datetime.now(UTC)
    rows = [
        (broker, max(each.commit_log_from, noted_to), each.commit_log_to, each.reason, now)
        for each in unread
        if each.commit_log_to > noted_to
    ]
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        with FileWriter(place, GAPS) as writer:
            writer.write(_batch(columns))
        states = {_state(broker): max(row[2] for row in rows)}
        GAPS.commit(place, opened, writer.written, states=states)


def has_gap_since(place: LakePlace, broker: str, ms: int) -> bool:
    """Return whether messages since a time may be missing: a gap is older than its discovery."""
    if not GAPS.exists(place):
        return False
    found = GAPS.dataset(place)
    since = pa.scalar(ms * 1000, pa.timestamp("us", tz="UTC"))
    wanted = (pc.field("broker") == broker) & (pc.field("found_at") >= since)
    return int(found.count_rows(filter=wanted)) > 0


def drop_gaps(place: LakePlace, broker: str, log_from: int) -> None:
    """Remove a broker's gaps from an offset on, before the log is read again from there."""
    if not GAPS.exists(place):
        return
    opened = GAPS.open(place)
    if not opened.transaction_version(_state(broker)):
        return
    rows = opened.to_pyarrow_dataset().to_table().select(GAPS.schema.names).combine_chunks()
    is_dropped = pc.and_(
        pc.equal(rows["broker"], broker), pc.greater_equal(rows["commit_log_from"], log_from)
    )
    with FileWriter(place, GAPS) as writer:
        for batch in rows.filter(pc.invert(is_dropped)).cast(GAPS.schema).to_batches():
            writer.write(batch)
    names = pa.table(opened.get_add_actions(flatten=True))["path"].to_pylist()
    GAPS.commit(place, opened, writer.written, removed=names, states={_state(broker): log_from})


def _state(broker: str) -> str:
    return f"gaps-{broker}"


def _batch(columns: list[list[Any]]) -> pa.RecordBatch:
    arrays = [
        pa.array(values, field.type) for values, field in zip(columns, GAPS.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=GAPS.schema)
