"""Gold and silver: the tables derived from bronze.messages, updated together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.lake import gold, silver
from analytics.lake.place import UPKEEP

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.lake.place import LakePlace
    from analytics.lake.writer import Writer


def is_behind(place: LakePlace) -> bool:
    """Return whether bronze has a version that gold or silver hasn't read."""
    return gold.is_behind(place) or silver.is_behind(place)


def catch_up(
    place: LakePlace,
    writer: Writer,
    *,
    recount: bool = False,
    observer: Callable[[str], None] | None = None,
) -> bool:
    """Bring gold and silver up to date with bronze; return whether there was anything new.

    Raises:
        LakeBusyError: another process is working on them, or wrote to them meanwhile.
        LakeError: the lake isn't usable.
    """
    with place.locked(UPKEEP):
        in_gold = gold.catch_up(place, writer, recount=recount, observer=observer)
        return silver.catch_up(place, writer, recount=recount, observer=observer) or in_gold
