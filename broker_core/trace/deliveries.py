"""Deliveries: which messages groups were handed while somebody watched.

An acknowledgement is an offset on the wire; what it covers is looked up here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        order: what was noted, the oldest first, each with what waits of its queue. What is taken
            goes when nothing older waits, so that it stays as short as what waits.
    """

    __slots__ = ("_tell_noted", "order", "queues")

    def __init__(self, tell_noted: Callable[[], None] = lambda: None) -> None:
        """`tell_noted` is called first, for what the native turn has noted until then."""
        self._tell_noted = tell_noted
        self.queues: dict[Queue, dict[int, Delivered]] = {}
        self.order: deque[tuple[dict[int, Delivered], int]] = deque()

    def note(self, queue: Queue, queue_offset: int, delivered: Delivered) -> None:
        """Remember a delivery, the last one of a message that comes again."""
        self._tell_noted()
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
        self._tell_noted()
        waiting = self.queues.get(queue, {})
        offsets = sorted(offset for offset in waiting if first <= offset < end)
        taken = [(offset, waiting.pop(offset)) for offset in offsets]
        self._forget_taken()
        return taken

    def clear(self) -> None:
        self._tell_noted()
        self.queues = {}
        self.order.clear()

    def _forget_taken(self) -> None:
        order = self.order
        while order:
            waiting, oldest = order[0]
            if oldest in waiting:
                break
            order.popleft()
