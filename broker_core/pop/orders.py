"""Each ordered group's last batch of a queue, which blocks the messages after it.

Source: broker/offset/ConsumerOrderInfoManager.java (5.3.3).
Differs: a redelivery of a batch leaves out acknowledged messages; RocketMQ repeats the batch
from its first open message.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import TYPE_CHECKING

from broker_core.pop.checkpoint import OFFSETS_MAX, QueueKey

if TYPE_CHECKING:
    from collections.abc import Callable

ENDS_MAX = 1_000
"""Outdated entries in the heap of the queues' ends, in addition to two for each queue."""


class Order:
    """The last batch of an ordered group in one queue. Event loop only.

    Attributes:
        committed: the group's consumer offset after this batch. If the table of offsets has a
            different one, an administrator has reset it.
        end: offset where the next read starts once the batch is acknowledged.
        times: number of earlier deliveries of each open message, by offset.
        due: end of the lease of each open message in the batch, in monotonic seconds, by offset.
        suspended: offsets whose delivery doesn't count as an attempt: the consumer postponed them.
        acked: acknowledged offsets after `committed`.
        attempt_id: the client's ID of the request, which lets it repeat the request.
    """

    __slots__ = (
        "acked",
        "attempt_id",
        "committed",
        "due",
        "end",
        "invisible_ms",
        "key",
        "pop_time_ms",
        "record_offset",
        "suspended",
        "times",
    )

    def __init__(self, key: QueueKey, committed: int) -> None:
        self.key = key
        self.committed = committed
        self.end = committed
        self.pop_time_ms = 0
        self.invisible_ms = 0
        self.attempt_id: str | None = None
        self.due: dict[int, float] = {}
        self.acked: set[int] = set()
        self.times: dict[int, int] = {}
        self.suspended: set[int] = set()
        self.record_offset = -1

    def blocked_until(self, attempt_id: str | None) -> float:
        """Return when a request may read the queue, in monotonic seconds; 0 for now."""
        if not self.due or (attempt_id is not None and attempt_id == self.attempt_id):
            return 0.0
        return max(self.due.values())

    def is_dead(self, offset: int, attempt_id: str | None, retries_max: int | None) -> bool:
        """Return whether a message has used up its redeliveries. A repeated request doesn't count
        as another delivery.
        """
        is_repeated = attempt_id is not None and attempt_id == self.attempt_id
        return (
            retries_max is not None
            and not is_repeated
            and self.times.get(offset, -1) >= retries_max
        )

    def repeats_handles(self, now_ms: int, attempt_id: str | None) -> bool:
        """Return whether a pop at `now_ms` would get the same handles as the last batch."""
        is_repeated = attempt_id is not None and attempt_id == self.attempt_id
        return self.pop_time_ms == now_ms and not is_repeated and bool(self.times)

    def lease(
        self,
        offsets: list[int],
        end: int,
        pop_time_ms: int,
        invisible_ms: int,
        due: float,
        attempt_id: str | None,
    ) -> None:
        """Lease a batch; `end` is the offset where the next read starts."""
        is_repeated = attempt_id is not None and attempt_id == self.attempt_id
        uncounted = set(offsets) if is_repeated else self.suspended
        before = self.times
        self.times = {
            offset: before[offset] + (offset not in uncounted) if offset in before else 0
            for offset in offsets
        }
        self.suspended = self.suspended.difference(offsets)
        self.end = max(self.end, end)
        behind = sorted(offset for offset in before if offset > offsets[-1])
        for offset in behind[:OFFSETS_MAX]:
            self.times[offset] = before[offset]
        if len(behind) > OFFSETS_MAX:
            # A consumer that changes its filter with each batch would add open messages without
            # limit. Later reads find the farthest ones again.
            self.end = behind[OFFSETS_MAX]
        self.due = dict.fromkeys(offsets, due)
        self.pop_time_ms = pop_time_ms
        self.invisible_ms = invisible_ms
        self.attempt_id = attempt_id

    def end_lease(self, offset: int) -> bool:
        """Acknowledge a message; return whether it was leased."""
        if self.due.pop(offset, None) is None:
            return False
        self.times.pop(offset, None)
        self.suspended.discard(offset)
        self.acked.add(offset)
        self._advance()
        return True

    def skip(self, offset: int) -> None:
        """Count a dead letter as acknowledged."""
        self.times.pop(offset, None)
        self.due.pop(offset, None)
        self.suspended.discard(offset)
        self.acked.add(offset)
        self.end = max(self.end, offset + 1)
        self._advance()

    def _advance(self) -> None:
        """Move the offset to the first open message."""
        first_open = min(self.times, default=self.end)
        self.committed = max(self.committed, first_open)
        self.acked = {offset for offset in self.acked if offset >= self.committed}


class Orders(OrderedDict[QueueKey, Order]):
    """The last batch of each queue, by age of its record, oldest first. Event loop only."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, int] = {}
        self._ends: list[tuple[float, QueueKey]] = []

    @property
    def next_end(self) -> float | None:
        """When the next queue unblocks, in monotonic seconds."""
        return self._ends[0][0] if self._ends else None

    def pop_unblocked(self, now: float) -> list[QueueKey]:
        """Remove and return the queues whose leases have ended by `now`."""
        unblocked = []
        while self._ends and self._ends[0][0] <= now:
            unblocked.append(heapq.heappop(self._ends)[1])
        return unblocked

    def schedule(self, order: Order) -> float:
        """Schedule the end of a queue's leases; return it, in monotonic seconds."""
        end = order.blocked_until(None)
        heapq.heappush(self._ends, (end, order.key))
        if len(self._ends) > 2 * len(self) + ENDS_MAX:
            self.schedule_all()
        return end

    def schedule_all(self) -> None:
        """Schedule the end of each queue's leases, for example after a restart."""
        self._ends = [(order.blocked_until(None), key) for key, order in self.items()]
        heapq.heapify(self._ends)

    def has_room(self, group: str, queues_max: int) -> bool:
        """Return whether a group may lease in one more queue; its limit is half of the total."""
        return len(self) < queues_max and self._counts.get(group, 0) < max(1, queues_max // 2)

    def __setitem__(self, key: QueueKey, order: Order) -> None:
        if key not in self:
            self._counts[key.group] = self._counts.get(key.group, 0) + 1
        super().__setitem__(key, order)

    def __delitem__(self, key: QueueKey) -> None:
        super().__delitem__(key)
        left = self._counts[key.group] - 1
        if left:
            self._counts[key.group] = left
        else:
            del self._counts[key.group]

    def drop_queues(self, is_dropped: Callable[[QueueKey], bool]) -> int:
        """Drop the batches of some queues; return their number."""
        dropped = [key for key in self if is_dropped(key)]
        for key in dropped:
            del self[key]
        return len(dropped)

    def discard(self, key: QueueKey) -> None:
        if key in self:
            del self[key]

    def clear(self) -> None:
        super().clear()
        self._counts.clear()
        self._ends.clear()
