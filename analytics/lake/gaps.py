"""bronze.gaps: which ranges of a broker's log the lake could not read, and why.

Gaps are committed before the batch that has them. How far they are written is a number in their own
table, so that a batch which is done again does not write them again.
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
    """Write those gaps that are not written yet."""
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


def drop_gaps(place: LakePlace, broker: str, log_from: int) -> None:
    """Take away a broker's gaps from an offset on: the log is read again from there."""
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
