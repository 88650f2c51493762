"""Visibility: which part of the log and of the queues may be read.

A message is unflushed from its put until it may be read: with SYNC_FLUSH until its flush, with a
TransientStorePool until its commit, on a SYNC_MASTER until its sender is answered. Otherwise it is
readable immediately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.store.availability import Availability
    from broker_core.store.consume_queue import ConsumeQueue

    Arrival = Callable[[str, int, int], None]

NO_LIMIT = 1 << 62
UNFLUSHED_MAX = 200_000
"""The maximum number of unflushed puts; then puts are refused, so that a stalled disk or slave
doesn't exhaust the memory.
"""


class Visibility:
    """Event loop only.

    Attributes:
        make_readable: called after a put that is unflushed.
        read_limit: nothing after this log offset is shown.
        waits: whether puts are initially unflushed.
        on_arrival: called with (topic, queue_id, max_offset_in_queue) when messages become
            readable.
    """

    __slots__ = (
        "_availability",
        "_unflushed",
        "make_readable",
        "on_arrival",
        "read_limit",
        "waits",
    )

    def __init__(
        self,
        availability: Availability,
        make_readable: Callable[[], None],
        *,
        waits: bool,
        on_arrival: Arrival | None = None,
    ) -> None:
        self.read_limit = NO_LIMIT
        self.waits = waits
        self.on_arrival = on_arrival
        self._availability = availability
        self.make_readable = make_readable
        self._unflushed: list[tuple[int, ConsumeQueue, int]] = []
        """Log offset of the end, queue, and the queue's max_offset from then on."""

    def leave_unflushed(self, queue: ConsumeQueue, end: int) -> None:
        """Keep the last put to a queue hidden until the log may be read up to end."""
        self._unflushed.append((end, queue, queue.next_offset))
        if len(self._unflushed) == UNFLUSHED_MAX:
            self._availability.fall_behind(UNFLUSHED_MAX)
        self.make_readable()

    def show(self, queue: ConsumeQueue) -> None:
        """Show all messages that were put to a queue, now."""
        queue.max_offset = queue.next_offset
        if self.on_arrival is not None:
            self.on_arrival(queue.topic, queue.queue_id, queue.max_offset)

    def show_up_to(self, commit_log_offset: int) -> None:
        """Show messages that end at or before a log offset; not needed when puts don't wait."""
        if not self.waits:
            return
        self.read_limit = commit_log_offset
        count = 0
        arrived: dict[ConsumeQueue, None] = {}
        for end, queue, max_offset in self._unflushed:
            if end > commit_log_offset:
                break
            count += 1
            queue.max_offset = max_offset
            arrived[queue] = None
        del self._unflushed[:count]
        if self._availability.behind and len(self._unflushed) < UNFLUSHED_MAX:
            self._availability.catch_up()
        if self.on_arrival is not None:
            for queue in arrived:
                self.on_arrival(queue.topic, queue.queue_id, queue.max_offset)

    def show_all(self) -> None:
        """Show everything, including future puts, because puts no longer wait."""
        for _, queue, max_offset in self._unflushed:
            queue.max_offset = max_offset
            if self.on_arrival is not None:
                self.on_arrival(queue.topic, queue.queue_id, max_offset)
        self._unflushed.clear()
        self.read_limit = NO_LIMIT
        if self._availability.behind:
            self._availability.catch_up()

    def stop_at(self, commit_log_offset: int) -> None:
        """Stop reading at a log offset."""
        self.read_limit = commit_log_offset

    def forget_topic(self, topic: str) -> None:
        """Drop the unflushed messages of a topic that is being deleted."""
        self._unflushed = [one for one in self._unflushed if one[1].topic != topic]
