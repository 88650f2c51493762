"""FormerOffsets: the queues that groups had read when their topics were deleted.

A client that read a deleted topic keeps its offsets and commits them again every few seconds. If
the topic is created again and grows past such an offset, storing it would make the group skip the
new topic's first messages.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from broker_core.clock import Clock

DISCARD_S = 60.0
"""By then a client has rebalanced three times; a pull that commits triggers this sooner."""
QUEUES_MAX = 20_000
"""Maximum number of queues remembered for all groups; the oldest are forgotten first."""


class FormerOffsets:
    """Detects commits for a deleted topic. Event loop only.

    A queue is forgotten once the group asks for its offset in it, or gets one there: from then on
    its clients use the new topic. If a client does neither, its commits are accepted DISCARD_S
    after its first discarded commit.

    Attributes:
        count: number of queues remembered.
    """

    __slots__ = ("_clock", "_queues", "count")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: OrderedDict[tuple[str, str], dict[int, float]] = OrderedDict()
        """(group, topic) -> queue_id -> until when commits are discarded, 0 before the first."""
        self.count = 0

    def remember(self, group: str, topic: str, queue_ids: Collection[int]) -> None:
        """Record in which queues of a deleted topic a group had offsets."""
        self._forget_pair((group, topic))
        if not queue_ids:
            return
        self._queues[group, topic] = dict.fromkeys(queue_ids, 0.0)
        self.count += len(queue_ids)
        while self.count > QUEUES_MAX:
            self._forget_pair(next(iter(self._queues)))

    def is_former(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a group's first commit in a queue may be for the deleted topic."""
        queues = self._queues.get((group, topic))
        until = None if queues is None else queues.get(queue_id)
        if queues is None or until is None:
            return False
        now = self._clock.monotonic()
        if not until:
            queues[queue_id] = now + DISCARD_S
            return True
        if now < until:
            return True
        self.forget(group, topic, queue_id)
        return False

    def forget(self, group: str, topic: str, queue_id: int) -> None:
        """Accept the next commit of a group in a queue."""
        queues = self._queues.get((group, topic))
        if queues is not None and queues.pop(queue_id, None) is not None:
            self.count -= 1
            if not queues:
                del self._queues[group, topic]

    def forget_group(self, group: str) -> None:
        """Forget a deleted group."""
        for pair in [pair for pair in self._queues if pair[0] == group]:
            self._forget_pair(pair)

    def _forget_pair(self, pair: tuple[str, str]) -> None:
        self.count -= len(self._queues.pop(pair, ()))
