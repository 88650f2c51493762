"""What was erased on request, and must not come back when the log is read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from analytics.lake.tables import FORGOTTEN

if TYPE_CHECKING:
    from analytics.lake.place import LakePlace


def forgotten_offsets(place: LakePlace, broker: str, log_from: int, log_to: int) -> frozenset[int]:
    """Return the offsets of a range of a broker's log whose messages were forgotten."""
    if not FORGOTTEN.exists(place):
        return frozenset()
    dataset = FORGOTTEN.existing(place).to_pyarrow_dataset()
    wanted = (
        (pc.field("broker") == broker)
        & (pc.field("commit_log_offset") >= log_from)
        & (pc.field("commit_log_offset") < log_to)
    )
    found = dataset.to_table(columns=["commit_log_offset"], filter=wanted)
    return frozenset(found.column("commit_log_offset").to_pylist())
