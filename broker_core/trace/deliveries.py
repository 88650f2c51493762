"""Deliveries: which messages groups were handed while somebody watched.

An acknowledgement is an offset on the wire; what it covers is looked up here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

DELIVERIES_MAX = 10_000
"""Also the most events that one acknowledgement causes."""


class Delivered(NamedTuple):
    """A message that a group was handed."""

    properties: Mapping[str, str]
    commit_log_offset: int
    offset_msg_id: str
    body_size: int
    at_s: float
    """By the monotonic clock."""
    stored_s: float | None
    """When it was stored, by the same clock, if that is known."""


Queue = tuple[str, str, int]
"""Group, topic and queue id."""


class Deliveries:
    """The newest DELIVERIES_MAX that are not acknowledged; those before are forgotten.

    Attributes:
        queues: what there is, by queue and queue offset. The native turn notes, takes and
            forgets as well.
        order: all that were noted, the oldest first.
    """

    def __init__(self) -> None:
        self.queues: dict[Queue, dict[int, Delivered]] = {}
        self.order: deque[tuple[Queue, int]] = deque()

    def note(self, queue: Queue, queue_offset: int, delivered: Delivered) -> None:
        """Remember a delivery, the last one of a message that comes again."""
        if len(self.order) >= DELIVERIES_MAX:
            self._forget(*self.order.popleft())
        self.queues.setdefault(queue, {})[queue_offset] = delivered
        self.order.append((queue, queue_offset))

    def take(self, queue: Queue, first: int, end: int) -> list[tuple[int, Delivered]]:
        """Return, by offset, what an acknowledgement from `first` up to `end` covers; forget it."""
        waiting = self.queues.get(queue)
        if waiting is None:
            return []
        offsets = sorted(offset for offset in waiting if first <= offset < end)
        taken = [(offset, waiting[offset]) for offset in offsets]
        for offset in offsets:
            self._forget(queue, offset)
        return taken

    def clear(self) -> None:
        self.queues.clear()
        self.order.clear()

    def _forget(self, queue: Queue, queue_offset: int) -> None:
        waiting = self.queues.get(queue, {})
        waiting.pop(queue_offset, None)
        if not waiting:
            self.queues.pop(queue, None)
