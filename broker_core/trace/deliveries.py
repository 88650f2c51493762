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
QUEUES_MAX = 2 * DELIVERIES_MAX
"""Queues, those without deliveries among them: at most half of these have any."""


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
        queues: what there is, by queue and queue offset. Another dict when queues without
            deliveries went. The native turn notes, takes and forgets as well.
        order: all that were noted, the oldest first, each with what waits of its queue.
    """

    __slots__ = ("order", "queues")

    def __init__(self) -> None:
        self.queues: dict[Queue, dict[int, Delivered]] = {}
        self.order: deque[tuple[dict[int, Delivered], int]] = deque()

    def note(self, queue: Queue, queue_offset: int, delivered: Delivered) -> None:
        """Remember a delivery, the last one of a message that comes again."""
        if len(self.order) >= DELIVERIES_MAX:
            waiting, oldest = self.order.popleft()
            waiting.pop(oldest, None)
        waiting = self.waiting(queue)
        waiting[queue_offset] = delivered
        self.order.append((waiting, queue_offset))

    def waiting(self, queue: Queue) -> dict[int, Delivered]:
        """Return what waits of a queue, which holds as long as `queues` is the same dict."""
        found = self.queues.get(queue)
        if found is None:
            if len(self.queues) >= QUEUES_MAX:
                self.queues = {key: each for key, each in self.queues.items() if each}
            found = self.queues[queue] = {}
        return found

    def take(self, queue: Queue, first: int, end: int) -> list[tuple[int, Delivered]]:
        """Return, by offset, what an acknowledgement from `first` up to `end` covers; forget it."""
        waiting = self.queues.get(queue, {})
        offsets = sorted(offset for offset in waiting if first <= offset < end)
        return [(offset, waiting.pop(offset)) for offset in offsets]

    def clear(self) -> None:
        self.queues = {}
        self.order.clear()
