"""The messages that each concurrent group has leased, ordered by the end of the lease."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from broker_core.pop.checkpoint import OFFSETS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_core.config.limits import LimitsConfig
    from broker_core.pop.checkpoint import Checkpoint, Handle, QueueKey

CHECKPOINT_BYTES = 900
LEASE_BYTES = 150
"""Memory of a checkpoint and of each of its messages, rounded up from tracemalloc."""
ENDED_MAX = 1_000
"""Entries of finished checkpoints in the heap, in addition to as many as there are checkpoints."""


class InFlight(NamedTuple):
    """Leased messages of a group in a queue."""

    message_count: int
    oldest_ms: int
    """Wall time when the oldest lease began, in milliseconds."""


class _QueueLeases:
    __slots__ = ("by_handle", "by_offset")

    def __init__(self) -> None:
        self.by_handle: OrderedDict[Handle, Checkpoint] = OrderedDict()
        self.by_offset: dict[int, Checkpoint] = {}


class Leases:
    """All leases of concurrent consumers. Event loop only; no method waits.

    Attributes:
        count: number of leased messages.
        byte_count: their memory in bytes.
    """

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits
        self._queues: dict[QueueKey, _QueueLeases] = {}
        self._counts: dict[str, list[int]] = {}
        # In the order of their records.
        self._by_record: OrderedDict[Checkpoint, None] = OrderedDict()
        self._heap: list[tuple[float, int, Checkpoint]] = []
        self._numbers = itertools.count()
        self._checkpoint_count = 0
        self.count = 0
        self.byte_count = 0

    def __iter__(self) -> Iterator[Checkpoint]:
        for queue in self._queues.values():
            yield from queue.by_handle.values()

    def __len__(self) -> int:
        """Return the number of checkpoints."""
        return self._checkpoint_count

    def room(self, group: str) -> int:
        """Return how many more messages a group may lease; its limit is half of the total."""
        limits = self._limits
        count, byte_count = self._counts.get(group, (0, 0))
        bytes_left = min(
            limits.pop_lease_bytes_max - self.byte_count,
            limits.pop_lease_bytes_max // 2 - byte_count,
        )
        count_left = min(
            limits.pop_lease_nums_max - self.count, limits.pop_lease_nums_max // 2 - count
        )
        return max(0, min(count_left, (bytes_left - CHECKPOINT_BYTES) // LEASE_BYTES))

    @property
    def ordered_queues_max(self) -> int:
        """The number of queues in which ordered groups may lease messages."""
        return self._limits.pop_lease_nums_max // OFFSETS_MAX

    def add(self, checkpoint: Checkpoint) -> None:
        """Lease the messages of a checkpoint; older leases of these messages end."""
        queue = self._queues.get(checkpoint.key)
        if queue is None:
            queue = self._queues[checkpoint.key] = _QueueLeases()
        for offset in checkpoint.leased():
            older = queue.by_offset.get(offset)
            if older is not None:
                self.end(older, offset)
                # The end of a queue's last lease removes the queue.
                queue = self._queues.setdefault(checkpoint.key, queue)
            queue.by_offset[offset] = checkpoint
        queue.by_handle[checkpoint.handle] = checkpoint
        self._by_record[checkpoint] = None
        self._checkpoint_count += 1
        leased = len(checkpoint.leased())
        self._account(checkpoint.key.group, leased, CHECKPOINT_BYTES + leased * LEASE_BYTES)
        self._schedule(checkpoint)

    def find(self, key: QueueKey, handle: Handle) -> Checkpoint | None:
        """Return the checkpoint of a handle, or None if all its leases have ended."""
        queue = self._queues.get(key)
        return None if queue is None else queue.by_handle.get(handle)

    def is_leased(self, key: QueueKey, offset: int) -> bool:
        queue = self._queues.get(key)
        return queue is not None and offset in queue.by_offset

    def leased_offsets(self, key: QueueKey) -> dict[int, Checkpoint]:
        """Return the leased offsets of a queue. Callers must not change the dict."""
        queue = self._queues.get(key)
        return {} if queue is None else queue.by_offset

    def end(self, checkpoint: Checkpoint, offset: int) -> bool:
        """End the lease of a message; return False if this checkpoint doesn't lease it."""
        bit = checkpoint.bit_of(offset)
        if not bit or checkpoint.acked & bit:
            return False
        checkpoint.acked |= bit
        queue = self._queues[checkpoint.key]
        del queue.by_offset[offset]
        self._account(checkpoint.key.group, -1, -LEASE_BYTES)
        if checkpoint.is_done:
            self._remove(checkpoint, queue)
        return True

    def drop(self, checkpoint: Checkpoint) -> None:
        """End all leases of a checkpoint."""
        for offset in checkpoint.leased():
            self.end(checkpoint, offset)

    def drop_queues(self, *, group: str | None = None, topics: frozenset[str] | None = None) -> int:
        """End the leases of a group or in topics; return their number."""
        before = self.count
        for key in list(self._queues):
            if (group is None or key.group == group) and (topics is None or key.topic in topics):
                for checkpoint in list(self._queues[key].by_handle.values()):
                    self.drop(checkpoint)
        return before - self.count

    def clear(self) -> None:
        """Drop all leases."""
        self._queues.clear()
        self._counts.clear()
        self._by_record.clear()
        self._heap.clear()
        self._checkpoint_count = self.count = self.byte_count = 0

    def postpone(self, checkpoint: Checkpoint, due: float) -> None:
        """Schedule a checkpoint from `pop_due` again."""
        checkpoint.due = due
        self._schedule(checkpoint)

    def pop_due(self, now: float) -> Checkpoint | None:
        """Unschedule and return a checkpoint that is due by `now`, or None."""
        heap = self._heap
        while heap and (heap[0][0] <= now or heap[0][2].is_done):
            _, _, checkpoint = heapq.heappop(heap)
            if not checkpoint.is_done:
                return checkpoint
        return None

    @property
    def next_due(self) -> float | None:
        """The end of the next lease, in monotonic seconds."""
        heap = self._heap
        while heap and heap[0][2].is_done:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    @property
    def oldest_record(self) -> Checkpoint | None:
        """The checkpoint with the oldest record in the revive log."""
        return next(iter(self._by_record), None)

    def record_moved(self, checkpoint: Checkpoint, record_offset: int) -> None:
        """Store the offset of a checkpoint's new record in the revive log."""
        checkpoint.record_offset = record_offset
        self._by_record.move_to_end(checkpoint)

    def queues(self) -> list[QueueKey]:
        """Return the queues with leases."""
        return list(self._queues)

    def first_offsets(self, group: str) -> list[tuple[QueueKey, int]]:
        """Return the first leased offset of each of a group's queues."""
        return [
            (key, min(queue.by_offset))
            for key, queue in self._queues.items()
            if key.group == group and queue.by_offset
        ]

    def in_flight_of(self, key: QueueKey) -> InFlight:
        """Return a group's leased messages in a queue, or zeros."""
        queue = self._queues.get(key)
        return InFlight(0, 0) if queue is None else _in_flight(queue)

    def _schedule(self, checkpoint: Checkpoint) -> None:
        heapq.heappush(self._heap, (checkpoint.due, next(self._numbers), checkpoint))

    def _remove(self, checkpoint: Checkpoint, queue: _QueueLeases) -> None:
        if queue.by_handle.get(checkpoint.handle) is checkpoint:
            del queue.by_handle[checkpoint.handle]
        if not queue.by_handle and not queue.by_offset:
            self._queues.pop(checkpoint.key, None)
        del self._by_record[checkpoint]
        self._checkpoint_count -= 1
        self._account(checkpoint.key.group, 0, -CHECKPOINT_BYTES)
        if len(self._heap) > 2 * self._checkpoint_count + ENDED_MAX:
            self._heap = [each for each in self._heap if not each[2].is_done]
            heapq.heapify(self._heap)

    def _account(self, group: str, count: int, byte_count: int) -> None:
        self.count += count
        self.byte_count += byte_count
        of_group = self._counts.setdefault(group, [0, 0])
        of_group[0] += count
        of_group[1] += byte_count
        if not any(of_group):
            del self._counts[group]


def _in_flight(queue: _QueueLeases) -> InFlight:
    oldest = next(iter(queue.by_handle.values()))
    return InFlight(len(queue.by_offset), oldest.pop_time_ms)
