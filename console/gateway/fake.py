"""FakeGateway: one broker's state in memory, for tests.

It keeps the rules that pages depend on (a reset of an online group differs from one of an offline
group, an unknown topic is refused) and can be told to fail, so that every state of a page is in
reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from console.gateway.answers import (
    BrokerNode,
    Cluster,
    ConsumeProgress,
    Group,
    GroupConfig,
    GroupConnections,
    Member,
    QueueProgress,
    QueueStatus,
    RuntimeInfo,
    Subscription,
    Topic,
    TopicConfig,
    Traffic,
)
from console.gateway.errors import (
    CONSUMER_NOT_ONLINE,
    TOPIC_NOT_EXIST,
    NotFoundError,
    RequestFailedError,
)
from console.gateway.kinds import is_system_group, topic_kind
from console.gateway.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from console.gateway.errors import GatewayError
    from console.gateway.gateway import QueueKey

ADDRESS = "127.0.0.1:10911"
NAME_SERVER = "127.0.0.1:9876"
BROKER_NAME = "broker-a"


@dataclass
class FakeQueue:
    """One queue: the store times of its messages, the first of which is `min_offset`."""

    min_offset: int = 0
    store_timestamps: list[int] = field(default_factory=list)

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self.store_timestamps)


class FakeGateway:
    """A BrokerGateway without a broker. Set `fails` and every call raises it."""

    def __init__(self) -> None:
        self.fails: GatewayError | None = None
        self.has_broker = True
        self.topic_configs: dict[str, TopicConfig] = {}
        self.queues: dict[tuple[str, int], FakeQueue] = {}
        self.group_configs: dict[str, GroupConfig] = {}
        self.members: dict[str, list[Member]] = {}
        self.subscriptions: dict[str, list[Subscription]] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}  # group, topic, queue_id
        self.resets: list[tuple[str, str, int]] = []
        self.node = BrokerNode("DefaultCluster", BROKER_NAME, 0, ADDRESS)
        self.runtime_values: dict[str, float | None] = {"put_tps": 12.5, "get_tps": 10.0}

    # --- Filling it -----------------------------------------------------------------------------

    def add_topic(self, name: str, *, queue_nums: int = 4, perm: int = 6) -> None:
        self.topic_configs[name] = TopicConfig(name, queue_nums, queue_nums, perm)
        for queue_id in range(queue_nums):
            self.queues.setdefault((name, queue_id), FakeQueue())

    def put(self, topic: str, queue_id: int, *store_timestamps: int) -> None:
        self.queues[topic, queue_id].store_timestamps.extend(store_timestamps)

    def add_group(self, name: str, *, online: bool = False, topic: str | None = None) -> None:
        self.group_configs[name] = GroupConfig(name)
        if online:
            self.members[name] = [
                Member(f"{name}@1", "127.0.0.1:50001", "JAVA", 407, (BROKER_NAME,))
            ]
        if topic is not None:
            self.subscriptions[name] = [Subscription(topic, "TAG", "*")]

    # --- BrokerGateway --------------------------------------------------------------------------

    def cluster(self) -> Cluster:
        self._check()
        nodes = (self.node,) if self.has_broker else ()
        return Cluster(nodes=nodes, name_server=NAME_SERVER, read_at_ms=now_ms())

    def runtime(self) -> dict[str, RuntimeInfo | GatewayError]:
        self._check()
        if not self.has_broker:
            return {}
        now = now_ms()
        total = sum(len(queue.store_timestamps) for queue in self.queues.values())
        info = RuntimeInfo(
            node=self.node,
            read_at_ms=now,
            version="V4_9_7",
            boot_timestamp_ms=now - 3_600_000,
            put_tps=self.runtime_values["put_tps"],
            get_tps=self.runtime_values["get_tps"],
            put_today=total,
            get_today=total,
            commit_log_disk_ratio=0.25,
            commit_log_min_offset=0,
            commit_log_max_offset=total * 256,
            earliest_message_ms=None,
            dispatch_behind_bytes=0,
            flush_behind_bytes=0,
        )
        return {ADDRESS: info}

    def topics(self) -> dict[str, Topic]:
        self._check()
        return {
            name: Topic(name, topic_kind(name), {BROKER_NAME: config})
            for name, config in sorted(self.topic_configs.items())
        }

    def topic_status(self, topic: str) -> tuple[QueueStatus, ...]:
        self._check()
        self._known(topic)
        return tuple(
            QueueStatus(
                BROKER_NAME,
                queue_id,
                queue.min_offset,
                queue.max_offset,
                queue.store_timestamps[-1] if queue.store_timestamps else None,
            )
            for (name, queue_id), queue in sorted(self.queues.items())
            if name == topic
        )

    def topic_traffic(self, topics: Iterable[str]) -> dict[str, Traffic]:
        self._check()
        return {
            name: Traffic(
                minute_tps=sum(row.message_count for row in self.topic_status(name)) / 60,
                hour_sum=sum(row.message_count for row in self.topic_status(name)),
                day_sum=sum(row.message_count for row in self.topic_status(name)),
            )
            for name in topics
        }

    def topic_groups(self, topic: str) -> tuple[str, ...]:
        self._check()
        with_offsets = {group for group, name, _queue in self.offsets if name == topic}
        subscribed = {
            group
            for group, subscriptions in self.subscriptions.items()
            if any(each.topic == topic for each in subscriptions)
        }
        return tuple(sorted(with_offsets | subscribed))

    def save_topic(self, config: TopicConfig, broker_names: Iterable[str]) -> None:
        self._check()
        self.topic_configs[config.topic] = config
        for queue_id in range(config.write_queue_nums):
            self.queues.setdefault((config.topic, queue_id), FakeQueue())

    def delete_topic(self, topic: str) -> None:
        self._check()
        self._known(topic)
        del self.topic_configs[topic]
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]

    def groups(self) -> dict[str, Group]:
        self._check()
        with_offsets = {group for group, _topic, _queue in self.offsets}
        return {
            name: Group(
                name,
                is_system_group(name),
                {BROKER_NAME: self.group_configs[name]} if name in self.group_configs else {},
            )
            for name in sorted(self.group_configs.keys() | with_offsets)
        }

    def connections(self, group: str) -> GroupConnections:
        self._check()
        return GroupConnections(
            group=group,
            members=tuple(self.members.get(group, ())),
            subscriptions=tuple(self.subscriptions.get(group, ())),
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            read_at_ms=now_ms(),
        )

    def progress(self, group: str) -> ConsumeProgress:
        return self.progresses([group])[group]

    def progresses(self, groups: Iterable[str]) -> dict[str, ConsumeProgress]:
        self._check()
        return {group: self._progress(group) for group in groups}

    def online_groups(self, groups: Iterable[str]) -> dict[str, GroupConnections]:
        return {group: self.connections(group) for group in groups}

    def save_group(self, config: GroupConfig, broker_names: Iterable[str]) -> None:
        self._check()
        self.group_configs[config.group] = config

    def delete_group(self, group: str, *, remove_offset: bool) -> None:
        self._check()
        self.group_configs.pop(group, None)
        if remove_offset:
            for key in [key for key in self.offsets if key[0] == group]:
                del self.offsets[key]

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[QueueKey, int]:
        self._check()
        self._known(topic)
        return {
            (BROKER_NAME, queue_id): queue.min_offset
            + sum(1 for stored in queue.store_timestamps if stored < timestamp_ms)
            for (name, queue_id), queue in sorted(self.queues.items())
            if name == topic
        }

    def commit_offsets(self, group: str, topic: str, offsets: Mapping[QueueKey, int]) -> None:
        self._check()
        for (_broker_name, queue_id), offset in offsets.items():
            self.offsets[group, topic, queue_id] = offset

    def reset_online(self, group: str, topic: str, timestamp_ms: int) -> dict[QueueKey, int]:
        self._check()
        if not self.members.get(group):
            raise RequestFailedError(
                ADDRESS, CONSUMER_NOT_ONLINE, f"Consumer not online: {group} {topic}"
            )
        self.resets.append((group, topic, timestamp_ms))
        if timestamp_ms < 0:
            found = {
                (row.broker_name, row.queue_id): row.max_offset for row in self.topic_status(topic)
            }
        else:
            found = self.offsets_at(topic, timestamp_ms)
        self.commit_offsets(group, topic, found)
        return found

    # --- Inside ---------------------------------------------------------------------------------

    def _progress(self, group: str) -> ConsumeProgress:
        topics = {topic for name, topic, _queue in self.offsets if name == group} | {
            each.topic for each in self.subscriptions.get(group, ())
        }
        rows = [
            QueueProgress(
                topic=topic,
                broker_name=BROKER_NAME,
                queue_id=queue_id,
                broker_offset=queue.max_offset,
                consumer_offset=self.offsets.get((group, topic, queue_id)),
                last_timestamp_ms=None,
            )
            for (topic, queue_id), queue in sorted(self.queues.items())
            if topic in topics
        ]
        return ConsumeProgress(group, 1.5, tuple(rows), now_ms())

    def _known(self, topic: str) -> None:
        if topic not in self.topic_configs:
            raise NotFoundError(ADDRESS, TOPIC_NOT_EXIST, f"topic[{topic}] not exist")

    def _check(self) -> None:
        if self.fails is not None:
            raise self.fails
