"""Records erased messages, so that reading the log again doesn't restore them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from analytics.lake.tables import FORGOTTEN

if TYPE_CHECKING:
    from analytics.lake.place import LakePlace


def erasures(place: LakePlace) -> int | None:
    """Return a number that changes with each erasure, None before the first."""
    return FORGOTTEN.existing(place).version() if FORGOTTEN.exists(place) else None


def erased_offsets(place: LakePlace, broker: str, log_from: int, log_to: int) -> frozenset[int]:
    """Return the offsets of erased messages in a range of a broker's log."""
    if not FORGOTTEN.exists(place):
        return frozenset()
    dataset = FORGOTTEN.dataset(place)
    wanted = (
        (pc.field("broker") == broker)
        & (pc.field("commit_log_offset") >= log_from)
        & (pc.field("commit_log_offset") < log_to)
    )
    found = dataset.to_table(columns=["commit_log_offset"], filter=wanted)
    return frozenset(found.column("commit_log_offset").to_pylist())


def erased_count(place: LakePlace, broker: str) -> int:
    """Return how many messages of a broker have lost their content."""
    if not FORGOTTEN.exists(place):
        return 0
    dataset = FORGOTTEN.dataset(place)
    return int(dataset.count_rows(filter=pc.field("broker") == broker))
