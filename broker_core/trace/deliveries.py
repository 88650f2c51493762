"""Remember which messages groups received while a watcher was active.

On the wire an acknowledgement is an offset; this module finds the messages that it covers.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DELIVERIES_MAX = 10_000
"""Also the maximum number of events for one acknowledgement."""
QUEUES_MAX = 2 * DELIVERIES_MAX
"""Queues, including those without deliveries; at most half of them have any."""


class Delivered(NamedTuple):
    """A message that was delivered to a group."""

    properties: Mapping[str, str]
    commit_log_offset: int
    offset_msg_id: str
    body_size: int
    at_s: float
    """By the monotonic clock."""
    stored_s: float | None
    """When the message was stored, by the same clock, if known."""


Queue = tuple[str, str, int]
"""Group, topic and queue id."""


class Deliveries:
    """The newest DELIVERIES_MAX unacknowledged deliveries; older ones are dropped.

    Attributes:
        queues: deliveries by queue and queue offset. Replaced by a new dict when queues without
            deliveries are removed. The native turn also adds and removes entries.
        order: deliveries from oldest to newest, each with its queue's waiting deliveries. An
            acknowledged entry is removed once nothing older waits, which keeps this short.
    """

    __slots__ = ("_emit_noted", "order", "queues")

    def __init__(self, emit_noted: Callable[[], None] = lambda: None) -> None:
        """Call `emit_noted` before each access, to include the native turn's notes."""
        self._emit_noted = emit_noted
        self.queues: dict[Queue, dict[int, Delivered]] = {}
        self.order: deque[tuple[dict[int, Delivered], int]] = deque()

    def note(self, queue: Queue, queue_offset: int, delivered: Delivered) -> None:
        """Remember a delivery; a redelivery replaces the previous one."""
        self._emit_noted()
        if len(self.order) >= DELIVERIES_MAX:
            waiting, oldest = self.order.popleft()
            waiting.pop(oldest, None)
        waiting = self.waiting(queue)
        waiting[queue_offset] = delivered
        self.order.append((waiting, queue_offset))

    def waiting(self, queue: Queue) -> dict[int, Delivered]:
        """Return a queue's waiting deliveries; valid as long as `queues` is the same dict."""
        found = self.queues.get(queue)
        if found is None:
            if len(self.queues) >= QUEUES_MAX:
                self.queues = {key: each for key, each in self.queues.items() if each}
            found = self.queues[queue] = {}
        return found

    def take(self, queue: Queue, first: int, end: int) -> list[tuple[int, Delivered]]:
        """Remove and return, by offset, the deliveries acknowledged from `first` up to `end`."""
        self._emit_noted()
        waiting = self.queues.get(queue, {})
        offsets = sorted(offset for offset in waiting if first <= offset < end)
        taken = [(offset, waiting.pop(offset)) for offset in offsets]
        self._forget_acknowledged()
        return taken

    def clear(self) -> None:
        self._emit_noted()
        self.queues = {}
        self.order.clear()

    def _forget_acknowledged(self) -> None:
        order = self.order
        while order:
            waiting, oldest = order[0]
            if oldest in waiting:
                break
            order.popleft()
