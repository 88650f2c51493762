"""Timer messages that haven't been delivered yet, ordered by due time.

A timer is represented by its queue offset in rmq_sys_wheel_timer. Two heaps contain one integer per
timer, which combines its due time and its queue offset. A timer uses about 60 bytes, and the cost
of an operation grows at most with the logarithm of the number of timers.

The wall clock decides when a timer with an absolute time (TIMER_DELIVER_MS) is due, even after
someone sets that clock. The steady clock decides for a timer with a delay, so setting the wall
clock makes it neither early nor late. After a restart or a promotion only the wall time is known.
"""

from __future__ import annotations

from enum import IntEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

OFFSET_BITS = 44
_OFFSET_MASK = (1 << OFFSET_BITS) - 1
TRIM_MIN = 65_536
"""States of finished timers are dropped in portions of at least this size."""
SCAN_MAX = 4_096


class TimerClock(IntEnum):
    """The clock that decides when a timer is due; 0 marks a timer that isn't pending."""

    WALL = 1
    STEADY = 2


class PendingTimers:
    """Pending timers. Event loop only.

    Attributes:
        next_offset: queue offset of the next timer to add.
        count: number of pending timers.
    """

    def __init__(self, first_offset: int = 0) -> None:
        self.next_offset = first_offset
        self.count = 0
        self._wall: list[int] = []
        self._steady: list[int] = []
        self._base = first_offset
        self._first = first_offset
        self._states = bytearray()
        """The clock of each timer, indexed by queue offset minus `_base`; 0 if not pending."""

    @property
    def size(self) -> int:
        """Number of heap entries in memory, including removed timers until they are due."""
        return len(self._wall) + len(self._steady)

    @property
    def span(self) -> int:
        """Number of queue offsets that a restart has to read."""
        return self.next_offset - self.first_offset

    @property
    def first_offset(self) -> int:
        """The lowest pending queue offset; `next_offset` if no timer is pending."""
        if not self.count:
            self._first = self.next_offset
        elif not self._states[self._first - self._base]:
            at = self._first - self._base
            while not (rest := self._states[at : at + SCAN_MAX].lstrip(b"\0")):
                at += SCAN_MAX
            self._first = self._base + min(at + SCAN_MAX, len(self._states)) - len(rest)
        if self._first - self._base >= max(TRIM_MIN, len(self._states) >> 1):
            del self._states[: self._first - self._base]
            self._base = self._first
        return self._first

    def add(self, queue_offset: int, due_ms: int, clock: TimerClock) -> None:
        """Add a timer at the end; queue offsets before it that were never added aren't pending.

        `due_ms`: milliseconds since the epoch, by `clock`.
        """
        skipped = queue_offset - self.next_offset
        if skipped > 0:
            self.skip(skipped)
        self._states.append(clock)
        self.next_offset = queue_offset + 1
        self.count += 1
        heap = self._wall if clock is TimerClock.WALL else self._steady
        heappush(heap, max(due_ms, 0) << OFFSET_BITS | queue_offset)

    def skip(self, offsets: int) -> None:
        """Skip queue offsets without pending timers."""
        if self.count:
            self._states.extend(bytes(offsets))
        else:
            # No earlier timer is pending, so no state has to be kept.
            self._states.clear()
            self._base = self._first = self.next_offset + offsets
        self.next_offset += offsets

    def is_pending(self, queue_offset: int) -> bool:
        at = queue_offset - self._base
        return 0 <= at < len(self._states) and self._states[at] != 0

    def remove(self, queue_offset: int) -> bool:
        """Remove a timer; return whether it was pending."""
        if not self.is_pending(queue_offset):
            return False
        self._states[queue_offset - self._base] = 0
        self.count -= 1
        if not self.count:
            self._wall.clear()
            self._steady.clear()
            self._states.clear()
            self._base = self._first = self.next_offset
        return True

    def next_due(self, clock: TimerClock) -> tuple[int, int] | None:
        """Return (due_ms, queue_offset) of the next timer that uses a clock."""
        heap = self._wall if clock is TimerClock.WALL else self._steady
        while heap:
            entry = heap[0]
            queue_offset = entry & _OFFSET_MASK
            if self.is_pending(queue_offset):
                return entry >> OFFSET_BITS, queue_offset
            heappop(heap)
        return None

    def due(self, wall_ms: int, steady_ms: int) -> int | None:
        """Return the queue offset of the most overdue timer, without removing it."""
        found = None
        late_ms = -1
        for clock, now_ms in ((TimerClock.WALL, wall_ms), (TimerClock.STEADY, steady_ms)):
            entry = self.next_due(clock)
            if entry is not None and now_ms - entry[0] > late_ms:
                late_ms, found = now_ms - entry[0], entry[1]
        return found

    def wait_ms(self, wall_ms: int, steady_ms: int) -> int | None:
        """Return the milliseconds until the next timer is due, or None without timers."""
        waits = [
            max(0, entry[0] - now_ms)
            for clock, now_ms in ((TimerClock.WALL, wall_ms), (TimerClock.STEADY, steady_ms))
            if (entry := self.next_due(clock)) is not None
        ]
        return min(waits, default=None)

    def upcoming(self, count: int, wall_ms: int, steady_ms: int) -> list[tuple[int, int]]:
        """Return (wait_ms, queue_offset) of the next timers, soonest first."""
        found: list[tuple[int, int]] = []
        for heap, now_ms in ((self._wall, wall_ms), (self._steady, steady_ms)):
            entries = _smallest(heap, count, self.is_pending)
            found += [(max(0, due_ms - now_ms), offset) for due_ms, offset in entries]
        return sorted(found)[:count]


def _smallest(
    heap: list[int], count: int, is_pending: Callable[[int], bool]
) -> list[tuple[int, int]]:
    """Return (due_ms, queue_offset) of a heap's smallest pending entries; the heap is unchanged."""
    found: list[tuple[int, int]] = []
    candidates = [(heap[0], 0)] if heap else []
    scanned = 0
    while candidates and len(found) < count and scanned < SCAN_MAX:
        entry, at = heappop(candidates)
        scanned += 1
        queue_offset = entry & _OFFSET_MASK
        if is_pending(queue_offset):
            found.append((entry >> OFFSET_BITS, queue_offset))
        for child in (2 * at + 1, 2 * at + 2):
            if child < len(heap):
                heappush(candidates, (heap[child], child))
    return found
