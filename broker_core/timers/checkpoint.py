"""RocketMQ 5's config/timercheck: which timer messages a RocketMQ broker has delivered.

Big-endian longs: lastReadTimeMs, lastTimerLogFlushPos, lastTimerQueueOffset, then others.

Source: store/timer/TimerCheckpoint.java (5.3.3).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.storage import Storage

_FIELDS = Struct(">qqq")


class Checkpoint(NamedTuple):
    """Which timers a RocketMQ broker has delivered."""

    read_ms: int
    queue_offset: int

    def covers(self, queue_offset: int, due_ms: int) -> bool:
        """Return whether RocketMQ has delivered the timer at a queue offset."""
        return queue_offset < self.queue_offset and due_ms < self.read_ms


def read_checkpoint(storage: Storage, path: Path) -> Checkpoint:
    """Read the file; without a usable file, return a checkpoint that covers no timer."""
    data = storage.read(path)
    if data is None or len(data) < _FIELDS.size:
        return Checkpoint(0, 0)
    read_ms, _, queue_offset = _FIELDS.unpack_from(data)
    return Checkpoint(read_ms, queue_offset)
