"""What two samples of a broker say: counters are what was added between them, gauges the later.

A counter never jumps. What a broker counts since its start begins at 0 with a new start; offsets of
queues go on over starts. After a failover another process is the master: what it has counted since
its own start is not what was added. Where the later number is smaller for another reason (a queue
that was deleted and made anew, a log that lost its end), what was added is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.gateway.answers import MASTER_ID, TopicKind
from console.gateway.kinds import is_system_group, topic_kind
from console.history import metrics
from console.history.latency import BOUNDS_MS
from console.history.metrics import Column, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from console.gateway.sample import BrokerSample, ProgressSample, TopicSample

    Figure = tuple[Subject, Column, int]

COUNTERS = {
    "put": metrics.PUT,
    "putBytes": metrics.PUT_BYTES,
    "putFailed": metrics.PUT_FAILED,
    "got": metrics.GOT,
    "cpuMs": metrics.CPU,
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
}
LATENCIES = {"put": metrics.PUT_TOOK, "get": metrics.GET_TOOK, "flush": metrics.FLUSH_TOOK}
RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
KEPT_KINDS = {TopicKind.NORMAL, TopicKind.RETRY, TopicKind.DLQ}


@dataclass(slots=True)
class GroupTotal:
    """A group over all its topics; `oldest` is None where one of its ages is not known."""

    lag: int = 0
    oldest: int | None = 0
    consumed: int = 0
    rewound: int = 0


class Figures:
    """The figures of a sample, given the one before (None: not known); iterate once."""

    def __init__(self, before: BrokerSample | None, now: BrokerSample) -> None:
        self._before = before
        self._now = now
        self._is_restarted = before is not None and before.boot_timestamp != now.boot_timestamp
        self._is_another = before is not None and is_failover(before, now)
        self._ends_before = (
            {}
            if before is None
            else {
                topic.name: {queue: end for queue, _, end in topic.rows()}
                for topic in before.topics
            }
        )

    def __iter__(self) -> Iterator[Figure]:
        yield from self._broker()
        # A slave has its master's topics and offsets; they are the master's to say.
        if self._now.broker_id == MASTER_ID:
            yield from self._topics()
            yield from self._groups()
            yield from self._progress()

    def _subject(self, kind: str, name: str) -> Subject:
        return Subject(kind, self._now.broker_name, name)

    def _since_start(self, now: int | None, before: int | None) -> int | None:
        """Return what was added to a number that begins at 0 with each start of the broker."""
        if self._before is None or now is None or self._is_another:
            return None
        if self._is_restarted:
            return now
        added = now - (before or 0)
        return added if added >= 0 else None

    def _broker(self) -> Iterator[Figure]:
        now, before = self._now, self._before
        subject = self._subject(metrics.BROKER, str(now.broker_id))
        for name, metric in COUNTERS.items():
            if name in now.counters:
                was = before.counters.get(name) if before is not None else None
                added = self._since_start(now.counters[name], was)
                if added is not None:
                    yield subject, Column(metric.code), added
        for name, metric in GAUGES.items():
            value = now.gauges.get(name)
            if value is not None:
                yield subject, Column(metric.code), value
        # Counts of other buckets could not be told from these.
        latencies = LATENCIES if tuple(now.latency_bounds_ms) == BOUNDS_MS else {}
        for name, metric in latencies.items():
            counts = now.latencies.get(name, [])
            counts_before = before.latencies.get(name, []) if before is not None else []
            for bucket, count in enumerate(counts):
                was = counts_before[bucket] if bucket < len(counts_before) else None
                added = self._since_start(count, was)
                if added is not None:
                    yield subject, Column(metric.code, bucket), added

    def _topics(self) -> Iterator[Figure]:
        before = {} if self._before is None else {each.name: each for each in self._before.topics}
        for topic in self._now.topics:
            if topic_kind(topic.name) not in KEPT_KINDS:
                continue
            subject = self._subject(metrics.TOPIC, topic.name)
            added = self._put(topic)
            if added is not None:
                yield subject, Column(metrics.PUT.code), added
            was = before[topic.name].put_bytes if topic.name in before else None
            size = self._since_start(topic.put_bytes, was)
            if size is not None:
                yield subject, Column(metrics.PUT_BYTES.code), size
            if all(low >= 0 for _, low, _ in topic.rows()):
                retained = sum(end - low for _, low, end in topic.rows())
                yield subject, Column(metrics.RETAINED.code), retained

    def _put(self, topic: TopicSample) -> int | None:
        """Return how many messages came to a topic, None when one of its queues does not say."""
        if self._before is None:
            return None
        ends = self._ends_before.get(topic.name, {})
        total = 0
        for queue, low, end in topic.rows():
            if queue in ends:
                added = end - ends[queue]
            elif self._before.is_whole and self._now.is_whole:
                added = end - low
            else:
                return None
            if added < 0:
                return None
            total += added
        return total

    def _groups(self) -> Iterator[Figure]:
        topics = {topic.name: topic for topic in self._now.topics}
        for group in self._now.groups:
            if is_system_group(group.name):
                continue
            subject = self._subject(metrics.GROUP, group.name)
            if group.members is not None:
                yield subject, Column(metrics.MEMBERS.code), group.members
            for prefix, metric in (
                (RETRY_PREFIX, metrics.RETRIED),
                (DLQ_PREFIX, metrics.DEAD),
            ):
                topic = topics.get(prefix + group.name)
                if topic is not None:
                    added = self._put(topic)
                elif self._before is not None and self._now.is_whole:
                    added = 0
                else:
                    added = None
                if added is not None:
                    yield subject, Column(metric.code), added

    def _progress(self) -> Iterator[Figure]:
        before = (
            {}
            if self._before is None
            else {(each.group, each.topic): each for each in self._before.progress}
        )
        totals: dict[str, GroupTotal] = {}
        for each in self._now.progress:
            if is_system_group(each.group) or topic_kind(each.topic) not in KEPT_KINDS:
                continue
            subject = self._subject(metrics.PROGRESS, metrics.pair(each.group, each.topic))
            was = before.get((each.group, each.topic))
            total = totals.setdefault(each.group, GroupTotal())
            if was is not None:
                consumed, rewound = moved(was, each)
                yield subject, Column(metrics.CONSUMED.code), consumed
                yield subject, Column(metrics.REWOUND.code), rewound
                total.consumed += consumed
                total.rewound += rewound
            yield from self._lags(subject, each, total)
        for group, total in totals.items():
            subject = self._subject(metrics.GROUP, group)
            yield subject, Column(metrics.LAG.code), total.lag
            if total.oldest is not None:
                yield subject, Column(metrics.LAG_AGE.code), total.oldest
            if self._before is not None:
                yield subject, Column(metrics.CONSUMED.code), total.consumed
                yield subject, Column(metrics.REWOUND.code), total.rewound

    def _lags(self, subject: Subject, each: ProgressSample, group: GroupTotal) -> Iterator[Figure]:
        total, oldest, is_known = 0, 0, True
        for queue, offset, end, since in each.rows():
            lag = max(0, end - offset)
            total += lag
            if not 0 <= queue < metrics.PARTS_MAX:
                continue
            yield subject, Column(metrics.LAG.code, queue), lag
            age = 0 if not lag else max(0, self._now.sampled_at - since) if since >= 0 else None
            if age is None:
                is_known = False
            else:
                oldest = max(oldest, age)
                yield subject, Column(metrics.LAG_AGE.code, queue), age
        yield subject, Column(metrics.LAG.code), total
        group.lag += total
        if is_known:
            yield subject, Column(metrics.LAG_AGE.code), oldest
            group.oldest = None if group.oldest is None else max(group.oldest, oldest)
        else:
            group.oldest = None


def is_failover(before: BrokerSample, now: BrokerSample) -> bool:
    """Tell whether another broker has become the master of the set."""
    epochs = before.gauges.get("epoch"), now.gauges.get("epoch")
    return (
        now.broker_id == MASTER_ID
        and before.boot_timestamp != now.boot_timestamp
        and epochs[0] is not None
        and epochs[1] is not None
        and epochs[1] > epochs[0]
    )


def moved(before: ProgressSample, now: ProgressSample) -> tuple[int, int]:
    """Return by how many messages a group has gone on, and by how many back.

    A queue that is new to the group, or was deleted and made anew, tells neither.
    """
    was = {queue: (offset, end) for queue, offset, end, _ in before.rows()}
    consumed = rewound = 0
    for queue, offset, end, _ in now.rows():
        if queue not in was or end < was[queue][1]:
            continue
        consumed += max(0, offset - was[queue][0])
        rewound += max(0, was[queue][0] - offset)
    return consumed, rewound
