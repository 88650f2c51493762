"""Broker answers as plain values for pages. None means unknown, never zero."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from broker_core.message.versions import version_text
from console.lib.stored import BrokerQueue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MASTER_ID = 0
PERM_READ = 4
PERM_WRITE = 2
# The timestamp that means the end of a queue.
LATEST_TIMESTAMP = -1
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, order=True)
class TopicQueue:
    """A queue on a known broker: its topic and queue number."""

    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """A queue identified across all brokers, as in client libraries."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker process registered with the name server."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


@dataclass(frozen=True, slots=True)
class Cluster:
    """All registered brokers."""

    nodes: tuple[BrokerNode, ...]
    name_server: str
    read_at_ms: int

    @property
    def masters(self) -> tuple[BrokerNode, ...]:
        return tuple(node for node in self.nodes if node.is_master)

    @property
    def in_sets(self) -> tuple[BrokerNode, ...]:
        """Brokers that belong to a set with a slave."""
        names = {node.broker_name for node in self.nodes if not node.is_master}
        return tuple(node for node in self.nodes if node.broker_name in names)


@dataclass(frozen=True, slots=True)
class Promoted:
    """Result of a promotion."""

    epoch: int
    start_offset: int
    broker_role: str


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """A broker's own statistics (GET_BROKER_RUNTIME_INFO)."""

    node: BrokerNode
    read_at_ms: int
    version: str | None
    boot_timestamp_ms: int | None
    put_tps: float | None  # messages received per second over the last 10 s
    get_tps: float | None  # messages delivered per second over the last 10 s
    put_today: int | None  # messages received since the broker's midnight
    get_today: int | None  # messages delivered since then, once per group
    commit_log_disk_ratio: float | None
    commit_log_min_offset: int | None
    commit_log_max_offset: int | None
    earliest_message_ms: int | None
    flush_behind_bytes: int | None
    store_refuses: str | None  # why it rejects messages, in its words; None if it doesn't
    damaged_ranges: int | None  # log ranges that were quarantined and skipped
    put_before_today: int | None = None  # messages received between its start and its midnight
    unreachable_messages: int | None = None  # of topics missing in its topics.json
    unreachable_topics: tuple[str, ...] = ()  # these topics, most messages first

    @property
    def counts_since_ms(self) -> int | None:
        """Start time of a broker that hasn't passed midnight since, when its counts begin."""
        if self.put_before_today != 0 or self.boot_timestamp_ms is None:
            return None
        is_young = self.read_at_ms - self.boot_timestamp_ms < DAY_MS
        return self.boot_timestamp_ms if is_young else None

    @property
    def uptime_s(self) -> float | None:
        if self.boot_timestamp_ms is None:
            return None
        return max(0.0, (self.read_at_ms - self.boot_timestamp_ms) / 1000)

    @property
    def commit_log_bytes(self) -> int | None:
        if self.commit_log_max_offset is None or self.commit_log_min_offset is None:
            return None
        return self.commit_log_max_offset - max(0, self.commit_log_min_offset)


@dataclass(frozen=True, slots=True)
class SlaveLink:
    """A slave as seen by its master: one HA connection."""

    address: str  # the slave's end of the connection
    behind_bytes: int
    behind_ms: int | None  # None: not reported by 5.x
    last_contact_ms: int | None  # time since it was last heard from
    bytes_a_second: int
    is_in_sync: bool


@dataclass(frozen=True, slots=True)
class Replication:
    """A broker's replication state (GET_BROKER_HA_STATUS)."""

    node: BrokerNode
    read_at_ms: int
    is_master: bool
    max_offset: int
    links: tuple[SlaveLink, ...] = ()  # on a master
    is_following: bool = False  # on a slave, like the fields below
    master_address: str = ""
    local_address: str = ""  # this end of the connection to the master
    reason: str = ""  # why it isn't replicating
    metadata_failures: tuple[str, ...] = ()


class TopicKind(StrEnum):
    """Who uses a topic."""

    NORMAL = "normal"
    RETRY = "retry"
    DLQ = "dlq"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's configuration on one broker."""

    topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    order: bool = False
    topic_sys_flag: int = 0
    topic_filter_type: str = "SINGLE_TAG"

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its configuration on each broker."""

    name: str
    kind: TopicKind
    configs: dict[str, TopicConfig]  # by broker_name

    @property
    def is_system(self) -> bool:
        return self.kind is TopicKind.SYSTEM

    @property
    def write_queue_nums(self) -> int:
        return sum(config.write_queue_nums for config in self.configs.values())

    @property
    def read_queue_nums(self) -> int:
        return sum(config.read_queue_nums for config in self.configs.values())

    @property
    def order(self) -> bool:
        return any(config.order for config in self.configs.values())

    @property
    def is_readable(self) -> bool:
        return any(config.is_readable for config in self.configs.values())

    @property
    def is_writable(self) -> bool:
        return any(config.is_writable for config in self.configs.values())


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Minimum and maximum offsets of one queue (GET_TOPIC_STATS_INFO)."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_update_ms: int | None

    @property
    def queue(self) -> BrokerQueue:
        return BrokerQueue(self.broker_name, self.queue_id)

    @property
    def message_count(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class Traffic:
    """Increments of one broker statistic (VIEW_BROKER_STATS_DATA).

    Brokers total the hour every ten minutes and the day every hour. Until the first total, the
    longer
    span would read lower than the shorter one, so it is None here.
    """

    minute_tps: float  # increments per second over the last minute
    hour_sum: int | None
    day_sum: int | None


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A consumer group's configuration on one broker. The defaults are RocketMQ's."""

    group: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group with its configuration on each broker."""

    name: str
    is_system: bool
    configs: dict[str, GroupConfig]  # by broker_name

    @property
    def config(self) -> GroupConfig | None:
        return next(iter(self.configs.values()), None)


@dataclass(frozen=True, slots=True)
class Member:
    """A connected consumer of a group."""

    client_id: str
    client_addr: str
    language: str
    version: int
    broker_names: tuple[str, ...]

    @property
    def version_name(self) -> str:
        return version_text(self.version)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A group's subscription to one topic."""

    topic: str
    expression_type: str
    sub_string: str


@dataclass(frozen=True, slots=True)
class GroupConnections:
    """A group's connected consumers and their subscriptions; offline without consumers."""

    group: str
    members: tuple[Member, ...]
    subscriptions: tuple[Subscription, ...]
    consume_type: str
    message_model: str
    consume_from_where: str
    read_at_ms: int

    @property
    def is_online(self) -> bool:
        return bool(self.members)


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """A group's progress in one queue."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int | None  # None: the group never committed an offset here
    last_timestamp_ms: int | None  # store time of the last consumed message
    in_flight: int = 0  # messages that POP consumers hold but haven't acknowledged
    oldest_lease_ms: int | None = None  # since when the oldest has been held

    @property
    def queue(self) -> BrokerQueue:
        return BrokerQueue(self.broker_name, self.queue_id)

    @property
    def is_beyond_end(self) -> bool:
        """Whether the group's offset is larger than the end of the queue, so it skips messages.

        RocketMQ brokers keep such an offset when a topic is deleted and recreated.
        """
        return self.consumer_offset is not None and self.consumer_offset > self.broker_offset

    @property
    def lag(self) -> int | None:
        """Number of unconsumed messages; None if the offset is missing or beyond the end."""
        if self.consumer_offset is None or self.is_beyond_end:
            return None
        return self.broker_offset - self.consumer_offset


def known_lag(queues: Iterable[QueueProgress]) -> int | None:
    """Return the sum of the known lags, or None if all are unknown."""
    lags = [queue.lag for queue in queues if queue.lag is not None]
    return sum(lags) if lags else None


@dataclass(frozen=True, slots=True)
class ConsumeProgress:
    """A group's progress in all its queues (GET_CONSUME_STATS)."""

    group: str
    consume_tps: float
    queues: tuple[QueueProgress, ...]
    read_at_ms: int

    @property
    def lag(self) -> int:
        return sum(queue.lag for queue in self.queues if queue.lag is not None)

    @property
    def has_committed(self) -> bool:
        """Whether the group has ever committed an offset."""
        return any(queue.consumer_offset is not None for queue in self.queues)

    @property
    def known_lag(self) -> int | None:
        """The lag, or None if it is unknown in every queue."""
        return known_lag(self.queues)

    def in_topic(self, topic: str) -> tuple[QueueProgress, ...]:
        return tuple(queue for queue in self.queues if queue.topic == topic)

    @property
    def is_beyond_end(self) -> bool:
        """Whether the group's offset is beyond the end of any queue."""
        return any(queue.is_beyond_end for queue in self.queues)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({queue.topic for queue in self.queues}))

    @property
    def last_timestamp_ms(self) -> int | None:
        known = [q.last_timestamp_ms for q in self.queues if q.last_timestamp_ms is not None]
        return max(known, default=None)

    @property
    def furthest_behind(self) -> QueueProgress | None:
        """The queue with unread messages whose last consumed message is the oldest.

        None if there is no such queue, or if the group has consumed nothing that is retained in
        one.
        """
        behind = [queue for queue in self.queues if queue.lag]
        if any(queue.last_timestamp_ms is None for queue in behind):
            return None
        return min(behind, key=lambda queue: queue.last_timestamp_ms or 0, default=None)

    @property
    def caught_up_ms(self) -> int | None:
        """The store time up to which the group has consumed all its queues."""
        if not any(queue.lag for queue in self.queues):
            return self.last_timestamp_ms
        behind = self.furthest_behind
        return None if behind is None else behind.last_timestamp_ms


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic's queues on masters: the writable ones and the readable ones."""

    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send."""

    topic: str
    body: bytes
    tags: str
    keys: str  # separated by spaces
    born_ms: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """Result of a pull: the number of messages and the offset for the next pull."""

    message_count: int
    next_begin_offset: int


@dataclass(frozen=True, slots=True)
class Client:
    """A client that produces in one group and consumes whole topics in another."""

    client_id: str
    producer_group: str
    consumer_group: str
    topics: tuple[str, ...]
    sub_version: int  # increases whenever the subscription changes


TraceEvent = dict[str, Any]
"""One stage of one message, with the broker's field names; 64-bit numbers are text. `matched`
lists the watch's filters that the event matches.
"""


@dataclass(frozen=True, slots=True)
class TraceBatch:
    """Events pushed by a broker.

    `dropped` counts the events that the broker's ring buffer lost since the watch began; `offered`
    counts the matching events by stage. A new watch has a new `watch_id` and counts from zero.
    """

    events: list[TraceEvent]
    watch_id: str
    dropped: int
    offered: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchPlace:
    """Progress of a watch at the moment its connection was lost.

    `last_seq` is the number of the last event received, `received` the total number of events.
    """

    watch_id: str
    last_seq: int
    received: int


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """One message: its location, and the unique key it shares with its copies in other topics."""

    topic: str
    queue_id: int
    queue_offset: int
    uniq_key: str | None = None


@dataclass(frozen=True, slots=True)
class WatchFilter:
    """Filter for the events that a broker pushes; None matches anything.

    `topic` is a name or a pattern with * and ?; `group` is a consumer or producer group; `key` is a
    message key, the unique key or the offset message ID; `client` is a client ID, an address or a
    host; `named` is a property and its value. `min_latency_us` pairs stages with their minimum
    duration; `min_total_ms` is the minimum time since the message was stored. `sample` follows one
    in that many messages; `rate_max` limits events per second (0: unlimited). `message` selects all
    events of one message, including its copies in other topics.
    """

    topic: str | None = None
    group: str | None = None
    tag: str | None = None
    key: str | None = None
    client: str | None = None
    named: tuple[str, str] | None = None
    stages: frozenset[str] | None = None
    errors_only: bool = False
    min_latency_ms: int = 0
    min_latency_us: tuple[tuple[str, int], ...] = ()
    min_total_ms: int = 0
    sample: int = 1
    rate_max: int = 0
    message: TracedMessage | None = None
