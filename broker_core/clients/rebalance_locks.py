"""Queue locks of orderly consumers: one client of a group holds a queue, for a minute at a time.

Source: broker/client/rebalance/RebalanceLockManager.java (4.9.7).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from broker_core.clients.memberships import SYSTEM_ERROR
from broker_core.config.limits import LIMITS
from broker_core.errors import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker_core.clock import Clock
    from broker_core.config.limits import LimitsConfig

LOCK_LIVE_SECONDS_MAX = 60.0


class LockedQueue(NamedTuple):
    """A queue as named in a lock request."""

    topic: str
    broker_name: str
    queue_id: int


class _Lock(NamedTuple):
    client_id: str
    host: str
    expires: float
    """Monotonic seconds."""


class RebalanceLocks:
    """The locks of all queues. Event loop only.

    A disconnected client keeps its locks until they expire, because it may still be consuming.
    Differs: expired locks are forgotten, and the number of locks is limited; RocketMQ keeps
    each lock forever.
    """

    def __init__(self, clock: Clock, limits: LimitsConfig = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._groups: dict[str, dict[LockedQueue, _Lock]] = {}
        self._by_host: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return how many locks are kept, including expired ones."""
        return self._by_host.total()

    def lock(
        self, group: str, queues: Iterable[LockedQueue], client_id: str, host: str = ""
    ) -> list[LockedQueue]:
        """Lock queues that are free, expired or the client's own; return the queues it now holds.

        Raises:
            RequestRefusedError: the client's host holds too many locks, or all hosts together.
        """
        now = self._clock.monotonic()
        lock = _Lock(client_id, host, now + LOCK_LIVE_SECONDS_MAX)
        held = []
        free = self._room_of(host)
        table = self._groups.get(group) or {}
        for queue in queues:
            owner = table.get(queue)
            if owner is not None:
                if owner.client_id != client_id and owner.expires > now:
                    continue
                self._release(owner)
            elif free <= 0:
                raise self._refusal()
            free -= owner is None
            # Store it now: if the next queue is refused, earlier locks are kept.
            self._groups[group] = table
            table[queue] = lock
            self._by_host[host] += 1
            held.append(queue)
        return held

    def unlock(self, group: str, queues: Iterable[LockedQueue], client_id: str) -> None:
        """Release the queues in this list that the client holds."""
        table = self._groups.get(group, {})
        for queue in queues:
            owner = table.get(queue)
            if owner is not None and owner.client_id == client_id:
                del table[queue]
                self._release(owner)
        if not table:
            self._groups.pop(group, None)

    def purge(self) -> None:
        """Forget expired locks."""
        now = self._clock.monotonic()
        for group, table in list(self._groups.items()):
            for queue, owner in list(table.items()):
                if owner.expires <= now:
                    del table[queue]
                    self._release(owner)
            if not table:
                del self._groups[group]

    def _room_of(self, host: str) -> int:
        return min(
            self._limits.queue_lock_nums_max - len(self),
            self._limits.host_queue_lock_nums_max - self._by_host[host],
        )

    def _release(self, lock: _Lock) -> None:
        self._by_host[lock.host] -= 1
        if not self._by_host[lock.host]:
            del self._by_host[lock.host]

    def _refusal(self) -> RequestRefusedError:
        limits = self._limits
        return RequestRefusedError(
            SYSTEM_ERROR,
            f"too many queues are locked: hostQueueLockNumsMax={limits.host_queue_lock_nums_max}, "
            f"queueLockNumsMax={limits.queue_lock_nums_max}",
        )
