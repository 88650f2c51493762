"""The store times of a queue's messages, from its broker's records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.remote.pull import record_at
from analytics.store.bulk import chosen
from broker_core.formats.record_columns import RecordBuffer

if TYPE_CHECKING:
    from analytics.remote.cluster import Cluster, Queue


async def stored_ms_at(cluster: Cluster, queue: Queue, offset: int, group: str) -> int | None:
    """Return when the message at an offset was stored, or None.

    Raises:
        ReportError: the broker doesn't respond.
    """
    data = await record_at(cluster, queue, offset, group)
    buffer = RecordBuffer(memoryview(data))
    found = chosen().walk(buffer, 0, len(data))
    if not len(found.positions):
        return None
    records = chosen().columns(buffer, found.positions)
    records.keep(records.is_whole & (records["queue_offset"] == offset))
    return int(records["store_timestamp"][0]) if len(records) else None


async def first_stored_from(
    cluster: Cluster, queue: Queue, timestamp_ms: int, extent: tuple[int, int], group: str
) -> int:
    """Return the offset of the first message stored at or after a time, or the queue's end.

    Brokers return some offset nearby, so compare the messages around it.

    Raises:
        ReportError: the broker doesn't respond.
    """
    low, high = extent
    probe, step, direction = await cluster.offset_by_time(queue, timestamp_ms), 1, 0
    while low < high:
        at = min(max(probe, low), high - 1)
        stored = await stored_ms_at(cluster, queue, at, group)
        is_late = stored is not None and stored >= timestamp_ms
        if is_late:
            high = at
        else:
            low = at + 1
        if direction and direction != (1 if is_late else -1):
            probe = (low + high) // 2
            continue
        direction = 1 if is_late else -1
        probe = high - step if is_late else low + step - 1
        step *= 2
    return low
