"""A sample as columns of numbers, so that thousands of queues are cheap to process.

Everything that depends on names alone is computed once and reused by later readings until a topic,
group or progress is added or removed.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from console.gateway.answers import TopicKind
from console.gateway.kinds import is_system_group, topic_kind
from console.observe.history import metrics
from console.observe.history.metrics import Subject
from console.observe.history.points import ints_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from console.gateway.sample import BrokerSample

    Ints = NDArray[np.int64]
    Truths = NDArray[np.bool_]

RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
KEPT_KINDS = {TopicKind.NORMAL, TopicKind.RETRY, TopicKind.DLQ}
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
"""All Java clients join this group, including consumers, which use it to send failed messages back.
"""
CLIENTS_MAX = 2_000
NUMBER_MAX = 1 << 46
"""The largest offset kept; a queue needs two years at a million messages per second to reach it."""
NONE = -1
"""The index for "no subject"."""


class Queues:
    """The queues of many owners in one table: `numbers` is [queue, number], its ID first."""

    def __init__(self, rows: Sequence[Sequence[int]], width: int) -> None:
        self.counts: Ints = np.fromiter(map(len, rows), np.int64, len(rows)) // width
        self.owners: Ints = np.repeat(np.arange(len(rows)), self.counts)
        count = len(self.owners) * width
        try:
            flat: Ints = np.fromiter(chain.from_iterable(rows), np.int64, count)
        except OverflowError:
            flat = ints_of(list(chain.from_iterable(rows)))
        # A client may have committed any offset, and sums over queues must fit.
        self.numbers: Ints = np.clip(flat, -NUMBER_MAX, NUMBER_MAX).reshape(-1, width)
        self._is_filled: Truths = self.counts > 0
        self._starts: Ints = (np.cumsum(self.counts) - self.counts)[self._is_filled]

    @property
    def ids(self) -> Ints:
        ids: Ints = self.numbers[:, 0]
        return ids

    def sums(self, values: Ints) -> Ints:
        """Return the sum of each owner's queues, 0 for owners without queues."""
        return self._reduced(np.add, values)

    def sums_of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of each owner's floating-point values."""
        sums: NDArray[np.float64] = np.bincount(self.owners, values, len(self.counts)).astype(float)
        return sums

    def maxima(self, values: Ints) -> Ints:
        """Return the maximum of each owner's values, 0 for owners without queues."""
        return self._reduced(np.maximum, values)

    def all_of(self, truths: Truths) -> Truths:
        """Return for each owner whether the condition is true for all its queues."""
        found: Truths = self.sums((~truths).astype(np.int64)) == 0
        return found

    def _reduced(self, function: np.ufunc, values: Ints) -> Ints:
        found = np.zeros(len(self.counts), dtype=np.int64)
        if len(self._starts):
            found[self._is_filled] = function.reduceat(values, self._starts)
        return found


class Names:
    """The subjects of a sample, and for each row the index of its subject or NONE."""

    def __init__(self, sample: BrokerSample) -> None:
        self.topics = [each.name for each in sample.topics]
        self.groups = [each.name for each in sample.groups]
        self.pairs = [(each.group, each.topic) for each in sample.progress]
        self._broker = sample.broker_name
        numbers = self._numbers = dict[Subject, int]()

        def about(kind: str, name: str, *, is_kept: bool) -> int:
            if not is_kept:
                return NONE
            return numbers.setdefault(Subject(kind, sample.broker_name, name), len(numbers))

        self.broker = about(metrics.BROKER, str(sample.broker_id), is_kept=True)
        kept = {name for name in self.topics if topic_kind(name) in KEPT_KINDS}
        others = {topic for _, topic in self.pairs} - kept
        kept |= {name for name in others if topic_kind(name) in KEPT_KINDS}
        clients = {
            name
            for name in {*self.groups, *(group for group, _ in self.pairs)}
            if not is_system_group(name)
        }
        self.of_topics = indices(
            about(metrics.TOPIC, name, is_kept=name in kept) for name in self.topics
        )
        self.of_groups = indices(
            about(metrics.GROUP, name, is_kept=name in clients) for name in self.groups
        )
        is_kept = [group in clients and topic in kept for group, topic in self.pairs]
        self.of_pairs = indices(
            about(metrics.PROGRESS, metrics.pair(*pair), is_kept=each)
            for pair, each in zip(self.pairs, is_kept, strict=True)
        )
        self.groups_of_pairs = indices(
            about(metrics.GROUP, group, is_kept=each)
            for (group, _), each in zip(self.pairs, is_kept, strict=True)
        )
        self.clients = clients_of(sample)
        self.of_clients = indices(
            about(kind, metrics.pair(group, version), is_kept=True)
            for kind, group, version in self.clients
        )
        self.subjects = list(numbers)
        self.of_groups_with_pairs = np.unique(self.groups_of_pairs[self.groups_of_pairs != NONE])
        places = {name: index for index, name in enumerate(self.topics)}
        self.retries = indices(places.get(RETRY_PREFIX + name, NONE) for name in self.groups)
        self.dead = indices(places.get(DLQ_PREFIX + name, NONE) for name in self.groups)

    def number_of(self, kind: str, name: str) -> int:
        """Return the index of a subject, or NONE if it isn't stored."""
        return self._numbers.get(Subject(kind, self._broker, name), NONE)

    def describes(self, sample: BrokerSample) -> bool:
        return (
            self.subjects[self.broker] == (metrics.BROKER, self._broker, str(sample.broker_id))
            and self._broker == sample.broker_name
            and self.topics == [each.name for each in sample.topics]
            and self.groups == [each.name for each in sample.groups]
            and self.pairs == [(each.group, each.topic) for each in sample.progress]
            and list(self.clients) == list(clients_of(sample))
        )


class Reading:
    """A sample with its names and tables."""

    def __init__(self, sample: BrokerSample, before: Reading | None = None) -> None:
        """Reuses the names of `before` if they are equal."""
        self.sample = sample
        self.names: Names = (
            before.names if before is not None and before.names.describes(sample) else Names(sample)
        )
        self.topics = Queues([each.queues for each in sample.topics], 3)
        self.write_queues: Ints = ints_of([each.write_queues for each in sample.topics])
        self.progress = Queues([each.queues for each in sample.progress], 4)


def clients_of(sample: BrokerSample) -> dict[tuple[str, str, str], int]:
    """Return the number of clients by kind, group, language and version.

    Brokers with more than CLIENTS_MAX combinations are left out, because each is a series.
    """
    found = {
        (kind, row.group, version): count
        for kind, rows in (
            (metrics.CONSUMERS, sample.consumers),
            (metrics.PRODUCERS, sample.producers),
        )
        for row in rows or ()
        if not is_system_group(row.group) and row.group != INNER_PRODUCER
        for version, count in row.versions.items()
    }
    return found if len(found) <= CLIENTS_MAX else {}


def indices(found: Iterable[int]) -> Ints:
    made: Ints = np.fromiter(found, np.int64)
    return made


def places_of(
    names: Sequence[object], now: Queues, names_before: Sequence[object], before: Queues
) -> Ints:
    """Return each queue's row in the previous table, or NONE for a new queue."""
    if (
        names == names_before
        and np.array_equal(now.counts, before.counts)
        and np.array_equal(now.ids, before.ids)
    ):
        return np.arange(len(now.ids))
    rows = zip(before.owners.tolist(), before.ids.tolist(), strict=True)
    places = {(names_before[owner], queue): index for index, (owner, queue) in enumerate(rows)}
    rows = zip(now.owners.tolist(), now.ids.tolist(), strict=True)
    return indices(places.get((names[owner], queue), NONE) for owner, queue in rows)
