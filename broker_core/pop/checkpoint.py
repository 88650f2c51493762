"""The messages of one queue that a pop leased together."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

OFFSETS_MAX = 32
"""Messages in a checkpoint. RocketMQ keeps their acknowledgements in the bits of an int."""


class QueueKey(NamedTuple):
    """A queue of one consumer group. `topic` is the topic or the group's retry topic for it."""

    group: str
    topic: str
    queue_id: int


class Handle(NamedTuple):
    """Identifies a checkpoint within its queue. Consumers send it back in their receipts."""

    start_offset: int
    pop_time_ms: int


class Checkpoint:
    """Event loop only.

    Attributes:
        start_offset: queue offset where the pop started to read. Together with pop_time_ms, it
            identifies the checkpoint within its queue.
        offsets: queue offsets of the messages, ascending.
        acked: bit i is set when the lease of offsets[i] has ended.
        due: end of the leases, in monotonic seconds.
        record_offset: queue offset of its record in the revive log, -1 before it is written.
        is_suspended: the delivery doesn't count as an attempt: the consumer postponed the message.
    """

    __slots__ = (
        "acked",
        "due",
        "invisible_ms",
        "is_suspended",
        "key",
        "offsets",
        "pop_time_ms",
        "record_offset",
        "start_offset",
    )

    def __init__(
        self,
        key: QueueKey,
        start_offset: int,
        offsets: list[int],
        pop_time_ms: int,
        invisible_ms: int,
        due: float,
    ) -> None:
        self.key = key
        self.start_offset = start_offset
        self.offsets = offsets
        self.pop_time_ms = pop_time_ms
        self.invisible_ms = invisible_ms
        self.due = due
        self.acked = 0
        self.record_offset = -1
        self.is_suspended = False

    @property
    def handle(self) -> Handle:
        return Handle(self.start_offset, self.pop_time_ms)

    @property
    def is_done(self) -> bool:
        """Whether all leases have ended."""
        return self.acked == (1 << len(self.offsets)) - 1

    def bit_of(self, offset: int) -> int:
        """Return the bit of an offset, or 0 if it isn't in the checkpoint."""
        index = bisect_left(self.offsets, offset)
        is_here = index < len(self.offsets) and self.offsets[index] == offset
        return 1 << index if is_here else 0

    def is_leased(self, offset: int) -> bool:
        bit = self.bit_of(offset)
        return bit != 0 and not self.acked & bit

    def leased(self) -> list[int]:
        """Return the offsets that are still leased."""
        acked = self.acked
        return [offset for index, offset in enumerate(self.offsets) if not acked >> index & 1]
