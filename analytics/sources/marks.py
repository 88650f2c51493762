"""Marks: how a stream notices that a topic was deleted and recreated.

A queue of the new topic starts at 0, and may have grown past the offset of the old one. So the
message of a mark is read again: a different store time means a different topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.remote.cluster import Queue, at_once
from analytics.sources.stored_times import stored_ms_at
from analytics.sources.stream_progress import Mark, Place, place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.remote.cluster import Cluster

    Extents = Mapping[Queue, tuple[int, int]]


async def find_marks(
    cluster: Cluster,
    group: str,
    ends: Mapping[Queue, int],
    extents: Extents,
    begun: Mapping[Queue, int],
) -> dict[Place, Mark]:
    """Return marks for the topics of these queues; topics without messages get no mark.

    `ends` are the offsets where the reading ends, and `begun` where it began, if known.

    Raises:
        ReportError: a broker doesn't respond.
    """
    chosen: dict[Place, Queue] = {}
    for queue in ends:
        known = chosen.get(place_of(queue))
        if known is None or _rank(queue, ends, extents, begun) > _rank(known, ends, extents, begun):
            chosen[place_of(queue)] = queue

    async def mark(queue: Queue) -> Mark | None:
        least, behind = extents[queue]
        end = ends[queue]
        offset = end - 1 if end > least else end
        if offset < behind:
            stored = await stored_ms_at(cluster, queue, offset, group)
            return None if stored is None else Mark(queue.queue_id, offset, stored)
        return Mark(queue.queue_id, least, None) if least else None

    found = await at_once(mark, list(chosen.values()))
    return {place: one for place, one in zip(chosen, found, strict=True) if one is not None}


async def recreated(
    cluster: Cluster, group: str, marks: Mapping[Place, Mark], extents: Extents
) -> frozenset[Place]:
    """Return the places whose topic isn't the marked one.

    A place whose marked message has expired can't be checked, and isn't returned.

    Raises:
        ReportError: a broker doesn't respond.
    """

    async def is_other(place: Place) -> bool:
        mark = marks[place]
        queue = Queue(*place, mark.queue_id)
        if queue not in extents:
            return False
        least, behind = extents[queue]
        if mark.stored_ms is None:
            return least < mark.offset
        if least > mark.offset:
            return False
        if behind <= mark.offset:
            return True
        stored = await stored_ms_at(cluster, queue, mark.offset, group)
        return stored is not None and stored != mark.stored_ms

    places = list(marks)
    found = await at_once(is_other, places)
    return frozenset(place for place, other in zip(places, found, strict=True) if other)


def _rank(
    queue: Queue, ends: Mapping[Queue, int], extents: Extents, begun: Mapping[Queue, int]
) -> tuple[bool, bool, int]:
    """Sort key for choosing the queue of a mark: queues with a recently read message first."""
    least, behind = extents[queue]
    end = ends[queue]
    return end > least, end < behind, end - begun.get(queue, least)
