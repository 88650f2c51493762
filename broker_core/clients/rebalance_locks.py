"""Queue locks of orderly consumers: one client of a group holds a queue, for a minute at a time.

Source: broker/client/rebalance/RebalanceLockManager.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker_core.clock import Clock

LOCK_LIVE_SECONDS_MAX = 60.0
LOCKS_PER_GROUP_MAX = 100_000


class LockedQueue(NamedTuple):
    """A queue as a lock request names it."""

    topic: str
    broker_name: str
    queue_id: int


class RebalanceLocks:
    """Who holds which queue. Event loop only.

    Nothing is unlocked when a client disconnects: the next owner waits for the lock to expire,
    since the old one may still be consuming.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[LockedQueue, tuple[str, float]]] = {}

    def lock(self, group: str, queues: Iterable[LockedQueue], client_id: str) -> list[LockedQueue]:
        """Lock what is free, expired or already the client's; returns all it now holds of these."""
        now = self._clock.monotonic()
        table = self._groups.setdefault(group, {})
        held = []
        for queue in queues:
            owner = table.get(queue)
            if owner is not None and owner[0] != client_id and owner[1] > now:
                continue
            if owner is None and len(table) >= LOCKS_PER_GROUP_MAX:
                continue
            table[queue] = (client_id, now + LOCK_LIVE_SECONDS_MAX)
            held.append(queue)
        return held

    def unlock(self, group: str, queues: Iterable[LockedQueue], client_id: str) -> None:
        """Release the client's own locks among these."""
        table = self._groups.get(group, {})
        for queue in queues:
            owner = table.get(queue)
            if owner is not None and owner[0] == client_id:
                del table[queue]
        if not table:
            self._groups.pop(group, None)
