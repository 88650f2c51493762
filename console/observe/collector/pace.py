"""Detects hot queues: queues that recently received most of their topic's messages.

Increases decay by half in HALF_MS. Queues are therefore compared over several minutes rather than
ten seconds, with one array instead of a series per queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from console.observe.collector.reading import NONE
from console.observe.history.metrics import PARTS_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from console.observe.collector.reading import Reading

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

HALF_MS = 300_000
MESSAGES_MIN = 2_000
"""A topic with fewer messages in that time (seven per second) is ignored as noise."""
TIMES_OTHERS = 4.0
"""A queue is hot if it receives this many times the average of the topic's other queues."""


class Pace:
    """Tracks one broker. Not thread-safe."""

    def __init__(self) -> None:
        self._lately: Floats | None = None
        self._at_ms = 0

    def forget(self) -> None:
        """Start again, because the increases since the last sample are unknown."""
        self._lately = None

    def hot(self, now: Reading, places: Ints, added: Ints) -> list[tuple[int, int, int]]:
        """Add each queue's increase; return hot ones as (index of topic, queue, share per mille).

        `places` has the row of each queue in the previous sample.
        """
        passed = max(0, now.sample.sampled_at - self._at_ms)
        self._at_ms = now.sample.sampled_at
        lately = np.zeros(len(added))
        if self._lately is not None:
            is_old = (places != NONE) & (places < len(self._lately))
            lately[is_old] = self._lately[places[is_old]] * 0.5 ** (passed / HALF_MS)
        lately += added
        self._lately = lately
        queues = now.topics
        total = queues.sums_of(lately)
        # Queues without messages have no row.
        counts = np.maximum(queues.counts, now.write_queues)
        of_topic = total[queues.owners]
        others = (of_topic - lately) / np.maximum(counts[queues.owners] - 1, 1)
        is_hot = (
            (of_topic >= MESSAGES_MIN)
            & (counts[queues.owners] > 1)
            & (lately >= TIMES_OTHERS * others)
            & (queues.ids >= 0)
            & (queues.ids < PARTS_MAX)
        )
        return [
            (
                int(queues.owners[each]),
                int(queues.ids[each]),
                round(1000 * lately[each] / of_topic[each]),
            )
            for each in np.flatnonzero(is_hot).tolist()
        ]
