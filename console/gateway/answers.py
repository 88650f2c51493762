"""What brokers answer, as the pages see it. Plain values; None means unknown, never zero."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

MASTER_ID = 0
PERM_READ = 4
PERM_WRITE = 2


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker process as the name server knows it."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


@dataclass(frozen=True, slots=True)
class Cluster:
    """All brokers that are registered."""

    nodes: tuple[BrokerNode, ...]
    name_server: str
    read_at_ms: int

    @property
    def masters(self) -> tuple[BrokerNode, ...]:
        return tuple(node for node in self.nodes if node.is_master)


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """A broker's own figures (GET_BROKER_RUNTIME_INFO)."""

    node: BrokerNode
    read_at_ms: int
    version: str | None
    boot_timestamp_ms: int | None
    put_tps: float | None  # messages a second over the last 10 s
    get_tps: float | None  # messages handed out a second over the last 10 s
    put_today: int | None
    get_today: int | None
    commit_log_disk_ratio: float | None
    commit_log_min_offset: int | None
    commit_log_max_offset: int | None
    earliest_message_ms: int | None
    dispatch_behind_bytes: int | None
    flush_behind_bytes: int | None
    values: dict[str, str] = field(default_factory=dict)

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


class TopicKind(StrEnum):
    """Who a topic is for."""

    NORMAL = "normal"
    RETRY = "retry"
    DLQ = "dlq"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic on one broker."""

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
    """A topic with its configuration on each broker that has it."""

    name: str
    kind: TopicKind
    configs: dict[str, TopicConfig]  # by broker_name

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
    """The ends of one queue (GET_TOPIC_STATS_INFO)."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_update_ms: int | None

    @property
    def message_count(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class Traffic:
    """Increments of one figure of a broker's statistics (VIEW_BROKER_STATS_DATA).

    The hour is summed up every ten minutes, the day every hour: before that a broker says less for
    the longer span than for the shorter one, which is taken for unknown here.
    """

    minute_tps: float
    hour_sum: int | None
    day_sum: int | None


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A subscription group on one broker; defaults are RocketMQ's."""

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
    """A subscription group with its configuration on each broker that has it."""

    name: str
    is_system: bool
    configs: dict[str, GroupConfig]  # by broker_name

    @property
    def config(self) -> GroupConfig | None:
        return next(iter(self.configs.values()), None)


@dataclass(frozen=True, slots=True)
class Member:
    """A connected client of a group."""

    client_id: str
    client_addr: str
    language: str
    version: int
    broker_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a group asked to receive of one topic."""

    topic: str
    expression_type: str
    sub_string: str


@dataclass(frozen=True, slots=True)
class GroupConnections:
    """A group's members with what they subscribe to; no members means offline."""

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
    """How far a group has come in one queue."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int | None  # None: the group never committed one here
    last_timestamp_ms: int | None  # store time of the last consumed message

    @property
    def lag(self) -> int | None:
        """Messages still to be consumed; a commit past the end counts as none."""
        if self.consumer_offset is None:
            return None
        return max(0, self.broker_offset - self.consumer_offset)


@dataclass(frozen=True, slots=True)
class ConsumeProgress:
    """A group's progress over all its queues (GET_CONSUME_STATS)."""

    group: str
    consume_tps: float
    queues: tuple[QueueProgress, ...]
    read_at_ms: int

    @property
    def lag(self) -> int:
        return sum(queue.lag for queue in self.queues if queue.lag is not None)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({queue.topic for queue in self.queues}))

    @property
    def last_timestamp_ms(self) -> int | None:
        known = [q.last_timestamp_ms for q in self.queues if q.last_timestamp_ms is not None]
        return max(known, default=None)
