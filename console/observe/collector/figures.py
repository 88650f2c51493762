"""Metrics from two samples of a broker: counters are the increase, gauges the later value.

Counters never jump. A broker's counts since its start begin at 0 with each start, while queue
offsets continue. After a failover another process is the master, and its counts since its own start
are not the increase. If a number decreases for another reason (a queue that was deleted and
recreated, or a log that lost its end), the increase is unknown.

Unknown values are MISSING rather than left out, so that successive samples have the same columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from console.gateway.answers import MASTER_ID
from console.observe.collector.reading import NONE, clients_of, places_of
from console.observe.history import metrics
from console.observe.history.latency import BOUNDS_MS
from console.observe.history.points import MISSING, bounded, ints_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from console.gateway.sample import BrokerSample
    from console.observe.collector.pace import Pace
    from console.observe.collector.reading import Reading
    from console.observe.history.metrics import Metric, Subject

    Ints = NDArray[np.int64]
    Truths = NDArray[np.bool_]

COUNTERS = {
    "put": metrics.PUT,
    "putBytes": metrics.PUT_BYTES,
    "putFailed": metrics.PUT_FAILED,
    "got": metrics.GOT,
    "cpuMs": metrics.CPU,
    "refused": metrics.REFUSED,
}
GAUGES = {
    "diskUsed": metrics.DISK_USED,
    "diskTotal": metrics.DISK_TOTAL,
    "logBytes": metrics.LOG_BYTES,
    "flushBehind": metrics.FLUSH_BEHIND,
    "halfPending": metrics.HALF_PENDING,
    "halfAgeMs": metrics.HALF_AGE,
    "oldestAgeMs": metrics.OLDEST_AGE,
    "retentionMs": metrics.RETENTION,
    "rss": metrics.RSS,
    "lateMs": metrics.LATE,
    "connections": metrics.CONNECTIONS,
    "replicationBehind": metrics.REPLICATION_BEHIND,
    "replicationBehindMs": metrics.REPLICATION_AGE,
    "slaves": metrics.SLAVES,
    "slavesInSync": metrics.SLAVES_IN_SYNC,
    "replicasInSyncMin": metrics.REPLICAS_MIN,
    "epoch": metrics.EPOCH,
    "following": metrics.FOLLOWING,
    "masterSilentMs": metrics.MASTER_SILENT,
    "maxMessageSize": metrics.MESSAGE_MAX,
}
QUEUES_MAX = 2_000
"""Messages per queue are stored only for brokers with at most this many queues: one series each."""
LATENCIES = {"put": metrics.PUT_TOOK, "get": metrics.GET_TOOK, "flush": metrics.FLUSH_TOOK}


class Figures:
    """The metrics of a reading, given the previous one (None if unknown), as columns.

    Attributes:
        subjects: the subjects of the metrics.
        owners: for each value, the index of its subject.
        codes: for each value, its metric.
        parts: for each value, its part.
        values: the number, or MISSING.
    """

    def __init__(self, before: Reading | None, now: Reading, pace: Pace | None = None) -> None:
        """`pace` tracks the recent rate of each queue and is updated with the increases."""
        self._pace = pace
        self._before = before
        self._now = now
        was = before.sample if before is not None else None
        self._is_restarted = was is not None and was.boot_timestamp != now.sample.boot_timestamp
        self._is_another = was is not None and is_failover(was, now.sample)
        self._columns: list[tuple[Ints, Ints, Ints, Ints]] = []
        self._broker()
        # A slave has copies of its master's topics and offsets, which the master reports.
        if now.sample.broker_id == MASTER_ID:
            put = self._put()
            self._topics(put)
            self._groups(put)
            self._progress()
            self._findings()
        self.subjects: list[Subject] = now.names.subjects
        self.owners, self.codes, self.parts, values = (
            np.concatenate(each) for each in zip(*self._columns, strict=True)
        )
        self.values: Ints = bounded(values)

    def __len__(self) -> int:
        return len(self.values)

    def _add(
        self, metric: Metric, owners: Ints, values: Ints, parts: Ints | int = metrics.WHOLE
    ) -> None:
        """Add a metric of some subjects; owners of NONE are skipped."""
        kept = owners != NONE
        codes = np.full(len(owners), metric.code)
        of_parts = np.broadcast_to(np.asarray(parts, dtype=np.int64), owners.shape)
        self._columns.append((owners[kept], codes[kept], of_parts[kept], values[kept]))

    def _broker(self) -> None:
        rows = [
            (metric.code, part, MISSING if value is None else value)
            for metric, part, value in self._of_broker()
        ]
        table = ints_of([number for row in rows for number in row]).reshape(-1, 3)
        owners = np.full(len(rows), self._now.names.broker)
        self._columns.append((owners, table[:, 0], table[:, 1], table[:, 2]))

    def _of_broker(self) -> Iterator[tuple[Metric, int, int | None]]:
        now, before = self._now.sample, self._before.sample if self._before is not None else None
        for name, metric in COUNTERS.items():
            if name in now.counters:
                was = before.counters.get(name) if before is not None else None
                yield metric, metrics.WHOLE, self._since_start(now.counters[name], was)
        for name, metric in GAUGES.items():
            if name in now.gauges:
                yield metric, metrics.WHOLE, now.gauges[name]
        # Counts with other bucket bounds can't be compared.
        latencies = LATENCIES if tuple(now.latency_bounds_ms) == BOUNDS_MS else {}
        for name, metric in latencies.items():
            counts_before = before.latencies.get(name, []) if before is not None else []
            for bucket, count in enumerate(now.latencies.get(name, [])):
                was = counts_before[bucket] if bucket < len(counts_before) else None
                yield metric, bucket, self._since_start(count, was)

    def _since_start(self, now: int | None, before: int | None) -> int | None:
        """Return the increase of a number that begins at 0 with each start of the broker."""
        if self._before is None or now is None or self._is_another:
            return None
        if self._is_restarted:
            return now
        added = now - (before or 0)
        return added if added >= 0 else None

    def _put(self) -> Ints:
        """Return how many messages each topic received, or MISSING if a queue is unknown."""
        now, before = self._now, self._before
        if before is None:
            self._hot: list[tuple[int, int, int]] = []
            if self._pace is not None:
                self._pace.forget()
            self._fills = np.full(len(now.topics.ids), MISSING)
            return np.full(len(now.names.topics), MISSING)
        places = places_of(now.names.topics, now.topics, before.names.topics, before.topics)
        low, end = now.topics.numbers[:, 1], now.topics.numbers[:, 2]
        is_new = places == NONE
        added = end - low
        added[~is_new] = end[~is_new] - before.topics.numbers[places[~is_new], 2]
        is_known = added >= 0
        if not (before.sample.is_whole and now.sample.is_whole):
            is_known &= ~is_new
        paced = np.where(is_known, added, 0)
        self._hot = [] if self._pace is None else self._pace.hot(now, places, paced)
        self._fills = where_known(added, is_known)
        return where_known(now.topics.sums(added), now.topics.all_of(is_known))

    def _topics(self, put: Ints) -> None:
        names, queues = self._now.names, self._now.topics
        self._add(metrics.PUT, names.of_topics, put)
        before = (
            {}
            if self._before is None
            else {each.name: each.put_bytes for each in self._before.sample.topics}
        )
        sizes = [
            self._since_start(each.put_bytes, before.get(each.name))
            for each in self._now.sample.topics
        ]
        values = [MISSING if size is None else size for size in sizes]
        self._add(metrics.PUT_BYTES, names.of_topics, ints_of(values))
        low, end = queues.numbers[:, 1], queues.numbers[:, 2]
        retained = where_known(queues.sums(end - low), queues.all_of(low >= 0))
        self._add(metrics.RETAINED, names.of_topics, retained)
        if len(queues.ids) <= QUEUES_MAX:
            in_range = (queues.ids >= 0) & (queues.ids < metrics.PARTS_MAX)
            owners = names.of_topics[queues.owners[in_range]]
            self._add(metrics.PUT, owners, self._fills[in_range], queues.ids[in_range])

    def _groups(self, put: Ints) -> None:
        names = self._now.names
        members = [
            MISSING if each.members is None else each.members for each in self._now.sample.groups
        ]
        self._add(metrics.MEMBERS, names.of_groups, ints_of(members))
        counts = ints_of(list(clients_of(self._now.sample).values()))
        self._add(metrics.MEMBERS, names.of_clients, counts)
        # A topic that didn't exist yet received no messages.
        is_known = self._before is not None and self._now.sample.is_whole
        put = np.append(put, 0 if is_known else MISSING)
        self._add(metrics.RETRIED, names.of_groups, put[names.retries])
        self._add(metrics.DEAD, names.of_groups, put[names.dead])

    def _progress(self) -> None:
        names, queues = self._now.names, self._now.progress
        lags, ages = self._lags()
        in_range = (queues.ids >= 0) & (queues.ids < metrics.PARTS_MAX)
        owners = names.of_pairs[queues.owners[in_range]]
        parts = queues.ids[in_range]
        self._add(metrics.LAG, owners, lags[in_range], parts)
        self._add(metrics.LAG_AGE, owners, ages[in_range], parts)
        lag = bounded(queues.sums(lags))
        is_known = queues.all_of((ages != MISSING) | ~in_range)
        oldest = queues.maxima(np.where(in_range, np.maximum(ages, 0), 0))
        self._add(metrics.LAG, names.of_pairs, lag)
        self._add(metrics.LAG_AGE, names.of_pairs, where_known(oldest, is_known))

        groups, kept = names.of_groups_with_pairs, names.of_pairs != NONE
        of_group = np.searchsorted(groups, names.groups_of_pairs[kept])
        self._add(metrics.LAG, groups, sums_by_index(of_group, lag[kept], len(groups)))
        unknown = sums_by_index(of_group, (~is_known[kept]).astype(np.int64), len(groups))
        ages_of_groups = np.zeros(len(groups), dtype=np.int64)
        np.maximum.at(ages_of_groups, of_group, oldest[kept])
        self._add(metrics.LAG_AGE, groups, where_known(ages_of_groups, unknown == 0))
        if self._before is None:
            return
        consumed, rewound, was_there = self._moved(self._before)
        for metric, values in ((metrics.CONSUMED, consumed), (metrics.REWOUND, rewound)):
            self._add(metric, names.of_pairs, where_known(values, was_there))
            of_known = np.where(was_there, values, 0)[kept]
            self._add(metric, groups, sums_by_index(of_group, of_known, len(groups)))

    def _findings(self) -> None:
        """Add metrics that are stored only when non-zero; their absence means nothing."""
        names, sample = self._now.names, self._now.sample
        rows = [
            (owner, metrics.HOT_QUEUE.code, queue, per_mille)
            for topic, queue, per_mille in self._hot
            for owner in [int(names.of_topics[topic])]
        ]

        def say(metric: Metric, kind: str, name: str, value: int | None) -> None:
            owner = names.number_of(kind, name)
            rows.append((owner, metric.code, metrics.WHOLE, MISSING if value is None else value))

        for large in sample.large or ():
            say(metrics.LARGEST, metrics.TOPIC, large.topic, large.body_bytes)
        for key in sample.keys or ():
            say(metrics.HOT_KEY, metrics.TOPIC, key.topic, key.per_mille)
        for each in sample.clients or ():
            if len(each.versions) > 1:
                say(metrics.VERSIONS, metrics.GROUP, each.group, len(each.versions))
            odd = sum(each.wants.values()) - max(each.wants.values(), default=0)
            if odd:
                say(metrics.MISMATCHED, metrics.GROUP, each.group, odd)
        if sample.clocks is not None:
            off = max((abs(each.ahead_ms) for each in sample.clocks), default=0)
            rows.append((names.broker, metrics.CLOCK_OFF.code, metrics.WHOLE, off))
        was = None if self._before is None else self._before.sample
        before = {
            (each.group, each.topic): each.messages for each in (was and was.cold_reads) or ()
        }
        for reads in sample.cold_reads or ():
            added = self._since_start(reads.messages, before.get((reads.group, reads.topic)))
            pair = metrics.pair(reads.group, reads.topic)
            say(metrics.GOT_COLD, metrics.PROGRESS, pair, added)
        table = ints_of([number for row in rows for number in row]).reshape(-1, 4)
        table = table[table[:, 0] != NONE]
        self._columns.append((table[:, 0], table[:, 1], table[:, 2], table[:, 3]))

    def _lags(self) -> tuple[Ints, Ints]:
        """Return each queue's lag in messages and in time; MISSING if unknown."""
        numbers = self._now.progress.numbers
        lags = np.maximum(numbers[:, 2] - numbers[:, 1], 0)
        since = numbers[:, 3]
        ages = where_known(np.maximum(self._now.sample.sampled_at - since, 0), since >= 0)
        return lags, np.where(lags == 0, 0, ages)

    def _moved(self, before: Reading) -> tuple[Ints, Ints, Truths]:
        """Return by how many messages each offset advanced and went back, and whether that's known.

        It is unknown for queues that are new to the group or were deleted and recreated.
        """
        now = self._now
        pairs = set(before.names.pairs)
        was_there = np.array([pair in pairs for pair in now.names.pairs], dtype=bool)
        places = places_of(now.names.pairs, now.progress, before.names.pairs, before.progress)
        offsets, ends = now.progress.numbers[:, 1], now.progress.numbers[:, 2]
        moved = np.zeros(len(offsets), dtype=np.int64)
        there = np.flatnonzero(places != NONE)
        was = before.progress.numbers[places[there]]
        moved[there] = np.where(ends[there] >= was[:, 2], offsets[there] - was[:, 1], 0)
        on, back = now.progress.sums(np.maximum(moved, 0)), now.progress.sums(np.maximum(-moved, 0))
        return on, back, was_there


def where_known(values: Ints, truths: Truths) -> Ints:
    """Return the values where the mask is true, MISSING elsewhere."""
    return np.where(truths, values, MISSING)


def sums_by_index(places: Ints, values: Ints, count: int) -> Ints:
    """Return the sum of values for each index."""
    found = np.zeros(count, dtype=np.int64)
    np.add.at(found, places, values)
    return found


def is_failover(before: BrokerSample, now: BrokerSample) -> bool:
    """Return whether another broker has become the master of the set."""
    epochs = before.gauges.get("epoch"), now.gauges.get("epoch")
    return (
        now.broker_id == MASTER_ID
        and before.boot_timestamp != now.boot_timestamp
        and epochs[0] is not None
        and epochs[1] is not None
        and epochs[1] > epochs[0]
    )
