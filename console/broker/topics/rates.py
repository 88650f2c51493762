"""Write rates of queues: the difference between two readings of their maximum offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.cache import cache

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.gateway.answers import QueueStatus
    from console.lib.stored import BrokerQueue

# A rate over a shorter time would be too noisy.
INTERVAL_MS = 4_000
KEPT_S = 120


def queue_rates(topic: str, rows: Iterable[QueueStatus], now_ms: int) -> dict[BrokerQueue, float]:
    """Return messages per second by queue since an earlier reading; empty for the first one."""
    ends = {row.queue: row.max_offset for row in rows}
    key = f"queue-ends:{topic.encode().hex()}"
    readings: list[tuple[int, dict[BrokerQueue, int]]] = cache.get(key, [])
    earlier = [reading for reading in readings if now_ms - reading[0] >= INTERVAL_MS]
    base = earlier[-1] if earlier else None
    if not readings or now_ms - readings[-1][0] >= INTERVAL_MS:
        cache.set(key, [*readings[-1:], (now_ms, ends)], KEPT_S)
    if base is None:
        return {}
    at_ms, before = base
    seconds = (now_ms - at_ms) / 1000
    return {
        queue: (end - before[queue]) / seconds
        for queue, end in ends.items()
        if queue in before and end >= before[queue]
    }
