"""Dead letters on the brokers, combined with the record of replays and discards."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker_core.message import names
from console.gateway.access import gateway
from console.messages.dead_letters.models import Outcome, handled_items

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from console.gateway.answers import QueueStatus
    from console.gateway.copies import MessageCopy
    from console.messages.dead_letters.models import Item

READ_MAX = 2_000
"""The number of dead letters that one page reads, newest first."""
AT_ONCE = 32
# The property's name in 5.x.
PROPERTY_DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter; `item` is the record of its replay or discard."""

    copy: MessageCopy
    item: Item | None

    @property
    def place(self) -> tuple[str, int, int, int]:
        stored = self.copy.stored
        return (
            stored.broker_name,
            stored.queue_id,
            stored.queue_offset,
            stored.commit_log_offset,
        )

    @property
    def key(self) -> str:
        """The location as written in the page's form."""
        return ":".join(map(str, self.place))

    @property
    def topic(self) -> str:
        """The topic it was originally sent to."""
        return origin_topic(self.copy.stored.properties)

    @property
    def tag(self) -> str:
        return self.copy.stored.tags

    @property
    def is_open(self) -> bool:
        return self.item is None

    @property
    def outcome_label(self) -> str:
        return "" if self.item is None else str(Outcome(self.item.outcome).label)


@dataclass(frozen=True, slots=True)
class Reason:
    """Dead letters of one topic and tag."""

    topic: str
    tag: str
    count: int
    oldest_ms: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class Letters:
    """A group's newest dead letters, oldest first, out of all that its topic retains."""

    found: tuple[DeadLetter, ...]
    retained: int
    before: int | None
    """The offset below which there are older ones, or None."""

    @property
    def open(self) -> tuple[DeadLetter, ...]:
        return tuple(each for each in self.found if each.is_open)

    @property
    def reasons(self) -> list[Reason]:
        """Unhandled dead letters by topic and tag, most frequent first."""
        times: dict[tuple[str, str], list[int]] = {}
        for each in self.open:
            times.setdefault((each.topic, each.tag), []).append(each.copy.stored.store_ms)
        counts = Counter({key: len(each) for key, each in times.items()})
        return [
            Reason(topic, tag, count, min(times[topic, tag]), max(times[topic, tag]))
            for (topic, tag), count in counts.most_common()
        ]


def origin_topic(properties: Any) -> str:
    return str(
        properties.get(names.PROPERTY_RETRY_TOPIC)
        or properties.get(PROPERTY_DLQ_ORIGIN_TOPIC)
        or ""
    )


def read_letters(group: str, before: int | None = None) -> Letters:
    """Return a group's newest dead letters below an offset.

    Raises:
        NotFoundError: the group has never had dead letters.
    """
    status = gateway().topics.status(names.dlq_topic(group))
    filled = [row for row in status if row.message_count]
    share = max(1, READ_MAX // max(1, len(filled)))
    letters: list[DeadLetter] = []
    has_older = False
    lowest = None
    for row in filled:
        high = row.max_offset if before is None else min(before, row.max_offset)
        low = max(row.min_offset, high - share)
        if low > row.min_offset:
            has_older = True
            lowest = low if lowest is None else min(lowest, low)
        letters += read_queue(group, row, low, high)
    letters.sort(key=lambda each: (each.copy.stored.store_ms, each.place))
    retained = sum(row.message_count for row in filled)
    return Letters(tuple(letters), retained, lowest if has_older else None)


def read_queue(group: str, row: QueueStatus, low: int, high: int) -> Iterable[DeadLetter]:
    topic = names.dlq_topic(group)
    done = handled_items(group, row.queue, low, high)
    at = low
    while at < high:
        batch = gateway().repair.copies(topic, row.queue, at, min(AT_ONCE, high - at))
        for copy in batch.messages:
            if copy.stored.queue_offset >= high:
                return
            letter = DeadLetter(copy, None)
            yield DeadLetter(copy, done.get(letter.place))
        if batch.next_offset <= at:
            return
        at = batch.next_offset


def matching(
    letters: Sequence[DeadLetter], topic: str | None, tag: str | None
) -> tuple[DeadLetter, ...]:
    """Return the dead letters with a topic and a tag; None matches any."""
    return tuple(
        each for each in letters if topic in (None, each.topic) and tag in (None, each.tag)
    )
