"""The stored figures: their codes on disk, kinds and units.

A counter is the increase since the previous sample; its mean is a rate. A gauge is a reading. A
column is a figure and a part: the queue of a topic, the bucket of a histogram, or WHOLE.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

PARTS_MAX = 0xFFFE
WHOLE = 0xFFFF
"""The part that represents the entire subject."""


class Kind(Enum):
    """How samples of a figure are combined."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Metric(NamedTuple):
    """A figure. `code` is stored on disk, so it must never change its meaning."""

    code: int
    name: str
    kind: Kind
    unit: str


def _counter(code: int, name: str, unit: str) -> Metric:
    return Metric(code, name, Kind.COUNTER, unit)


def _gauge(code: int, name: str, unit: str) -> Metric:
    return Metric(code, name, Kind.GAUGE, unit)


PUT = _counter(1, "put", "msg")
PUT_BYTES = _counter(2, "put_bytes", "B")
GOT = _counter(3, "got", "msg")
PUT_FAILED = _counter(4, "put_failed", "msg")
RETAINED = _gauge(5, "retained", "msg")
CONSUMED = _counter(6, "consumed", "msg")
REWOUND = _counter(7, "rewound", "msg")
LAG = _gauge(8, "lag", "msg")
LAG_AGE = _gauge(9, "lag_age", "ms")
MEMBERS = _gauge(10, "members", "")
RETRIED = _counter(11, "retried", "msg")
DEAD = _counter(12, "dead", "msg")
DISK_USED = _gauge(13, "disk_used", "B")
DISK_TOTAL = _gauge(14, "disk_total", "B")
LOG_BYTES = _gauge(15, "log_bytes", "B")
FLUSH_BEHIND = _gauge(16, "flush_behind", "B")
HALF_PENDING = _gauge(17, "half_pending", "msg")
HALF_AGE = _gauge(18, "half_age", "ms")
CPU = _counter(19, "cpu", "ms")
RSS = _gauge(20, "rss", "B")
LATE = _gauge(21, "late", "ms")
CONNECTIONS = _gauge(22, "connections", "")
PUT_TOOK = _counter(23, "put_took", "calls")
GET_TOOK = _counter(24, "get_took", "calls")
FLUSH_TOOK = _counter(25, "flush_took", "calls")
OLDEST_AGE = _gauge(26, "oldest_age", "ms")
RETENTION = _gauge(27, "retention", "ms")
REPLICATION_BEHIND = _gauge(28, "replication_behind", "B")
"""Bytes that the slowest slave, or this slave, is behind; missing for brokers without slaves."""
REPLICATION_AGE = _gauge(29, "replication_age", "ms")
SLAVES = _gauge(30, "slaves", "")
SLAVES_IN_SYNC = _gauge(31, "slaves_in_sync", "")
REPLICAS_MIN = _gauge(32, "replicas_min", "")
"""minInSyncReplicas, including the master."""
EPOCH = _gauge(33, "epoch", "")
FOLLOWING = _gauge(34, "following", "")
MASTER_SILENT = _gauge(35, "master_silent", "ms")
LARGEST = _gauge(36, "largest", "B")
"""The largest message of a topic; only stored if it is near the limit."""
MESSAGE_MAX = _gauge(37, "message_max", "B")
HOT_QUEUE = _gauge(38, "hot_queue", "‰")
"""A queue's share of its topic's messages, if it is many times that of the others."""
HOT_KEY = _gauge(39, "hot_key", "‰")
VERSIONS = _gauge(40, "versions", "")
"""Number of client versions in a group; only stored if there are several."""
MISMATCHED = _gauge(41, "mismatched", "")
"""Number of consumers in a group with unusual subscriptions; only stored if above zero."""
CLOCK_OFF = _gauge(42, "clock_off", "ms")
GOT_COLD = _counter(43, "got_cold", "msg")
REFUSED = _counter(44, "refused", "requests")
"""Requests refused by the broker's access control."""

ALL = {
    each.code: each
    for each in (
        *(PUT, PUT_BYTES, GOT, PUT_FAILED, RETAINED, CONSUMED, REWOUND, LAG, LAG_AGE, MEMBERS),
        *(RETRIED, DEAD, DISK_USED, DISK_TOTAL, LOG_BYTES, FLUSH_BEHIND, HALF_PENDING, HALF_AGE),
        *(CPU, RSS, LATE, CONNECTIONS, PUT_TOOK, GET_TOOK, FLUSH_TOOK, OLDEST_AGE, RETENTION),
        *(REPLICATION_BEHIND, REPLICATION_AGE, SLAVES, SLAVES_IN_SYNC, REPLICAS_MIN, EPOCH),
        *(FOLLOWING, MASTER_SILENT, LARGEST, MESSAGE_MAX, HOT_QUEUE, HOT_KEY, VERSIONS, MISMATCHED),
        *(CLOCK_OFF, GOT_COLD, REFUSED),
    )
}
COUNTER_CODES = frozenset(each.code for each in ALL.values() if each.kind is Kind.COUNTER)


class Subject(NamedTuple):
    """The subject of figures; kind: broker, topic, progress, group, process, clients of a group.

    `broker` is a broker name, empty for a console process. Progress and clients are named by
    `pair`:
    the group with the topic, or with the clients' language and version.
    """

    kind: str
    broker: str
    name: str


BROKER, TOPIC, PROGRESS, GROUP, PROCESS = "broker", "topic", "progress", "group", "process"
CONSUMERS, PRODUCERS = "consumers", "producers"
"""Clients of a group with the same language and version."""
CLUSTER = "cluster"
"""All brokers together, in URLs only; nothing is stored under it."""


QUEUE = "queue"
"""A group's progress in one queue, in URLs only; it is stored as a part of the progress."""


def pair(group: str, other: str) -> str:
    """Return the name of a group's progress in a topic, or of its clients; names contain no @."""
    return f"{group}@{other}"


class QueuePlace(NamedTuple):
    """A group's position in a queue, written group@topic@broker:0."""

    group: str
    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{pair(self.group, self.topic)}@{self.broker}:{self.queue_id}"

    @classmethod
    def parse(cls, text: str) -> QueuePlace | None:
        """Parse the output of `str`, or return None for other text."""
        group, _at, rest = text.partition("@")
        topic, _at, queue = rest.partition("@")
        broker, _colon, number = queue.rpartition(":")
        is_number = number.isascii() and number.isdigit() and len(number) <= len(str(PARTS_MAX))
        if not (group and topic and broker and is_number):
            return None
        return cls(group, topic, broker, int(number))


class Column(NamedTuple):
    """A figure and its part."""

    code: int
    part: int = WHOLE
