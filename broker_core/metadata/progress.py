"""Progress: each group's position in each topic, and since when its first message is unread.

A message's store time is looked up once and kept while it is the first unread message.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from broker_core.metadata.consumer_offsets import TOPIC_GROUP_SEPARATOR

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.store.message_store import MessageStore

ROWS_AT_ONCE = 250
"""How many topics or progress rows are read before yielding to the loop: about a millisecond."""
NEW_TIMES_MAX = 2_000
"""Maximum number of messages whose time is read per call; each message's time is read once."""
TIMES_KEPT = 200_000


class ProgressRow(NamedTuple):
    """A group in a topic.

    `numbers` concatenates queue_id, consumer_offset, max_offset, unread_since_ms of each queue.

    unread_since_ms is -1 when nothing is unread, or when the time is unknown.
    """

    group: str
    topic: str
    numbers: list[int]


class Progress:
    """Event loop only."""

    def __init__(self, offsets: ConsumerOffsets, store: MessageStore, clock: Clock) -> None:
        self._offsets = offsets
        self._store = store
        self._clock = clock
        self._times: dict[tuple[str, str, int], tuple[int, int]] = {}

    async def rows(self, rows_max: int | None = None) -> list[ProgressRow]:
        """Return a row for each group and topic, or the first rows_max, oldest entries first."""
        table = self._offsets.table
        keys = sorted(table) if rows_max is None else list(islice(table, rows_max))
        times: dict[tuple[str, str, int], tuple[int, int]] = {}
        room = NEW_TIMES_MAX
        rows = []
        for index, key in enumerate(keys):
            topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
            queues = self._store.files.queues.table.get(topic, {})
            numbers: list[int] = []
            for queue_id, consumer_offset in list(table.get(key, {}).items()):
                queue = queues.get(queue_id)
                end = 0 if queue is None else queue.max_offset
                since = -1
                if queue is not None and consumer_offset < end:
                    first = max(consumer_offset, queue.min_offset)
                    place = (group, topic, queue_id)
                    known = self._times.get(place, (-1, -1))
                    if known[0] != first and room > 0:
                        room -= 1
                        known = (first, self._store.store_timestamp(topic, queue_id, first))
                    if known[0] == first:
                        since = known[1]
                        if len(times) < TIMES_KEPT:
                            times[place] = known
                numbers += (queue_id, consumer_offset, end, since)
            rows.append(ProgressRow(group, topic, numbers))
            if index % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
                await self._clock.sleep(0)
        self._times = times
        return rows
