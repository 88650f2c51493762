"""FakeBroker: in-memory state of one broker, shared by the gateway fakes.

It follows the rules that pages depend on (resetting an online group differs from resetting an
offline one, unknown topics are refused) and can be set to fail, so that tests can reach every
state of a page.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.message import names
from console.gateway.answers import (
    BrokerNode,
    GroupConfig,
    Member,
    QueueStatus,
    Subscription,
    TopicConfig,
    TopicQueue,
)
from console.gateway.configuration import BrokerKey
from console.gateway.errors import TOPIC_NOT_EXIST, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from console.gateway.accounts import BrokerAccess
    from console.gateway.answers import Replication, TraceEvent
    from console.gateway.connections import Producer
    from console.gateway.errors import GatewayError
    from console.gateway.files import ConfigFile
    from console.gateway.internals import Internals
    from console.gateway.naming import NameServerView
    from console.gateway.running import RunningInfo
    from console.lib.stored import BrokerQueue

ADDRESS = "127.0.0.1:10911"
NAME_SERVER = "127.0.0.1:9876"
BROKER_NAME = "broker-a"
KEYS = (
    BrokerKey("listenPort", "10911", "10911", kind="int", low=1, high=65_535, is_described=True),
    BrokerKey(
        "traceOn",
        "true",
        "true",
        is_live=True,
        kind="bool",
        choices=("true", "false"),
        is_described=True,
    ),
    BrokerKey(
        "transactionCheckMax",
        "20",
        "15",
        is_live=True,
        kind="int",
        low=1,
        high=1_000_000,
        is_described=True,
    ),
)


class Content(NamedTuple):
    """Contents of a message."""

    body: bytes
    properties: dict[str, str]
    other_properties: tuple[tuple[str, str], ...] = ()


@dataclass
class FakeQueue:
    """One queue: the store times of its messages, starting at `min_offset`."""

    min_offset: int = 0
    store_timestamps: list[int] = field(default_factory=list)

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self.store_timestamps)


class FakeBroker:
    """State of a broker. Every call raises `fails` if it is set; `runtime` returns `silent`."""

    def __init__(self) -> None:
        self.fails: GatewayError | None = None
        self.silent: GatewayError | None = None
        self.has_broker = True
        # Brokers that are registered but not confirmed.
        self.strangers: list[BrokerNode] = []
        self.slaves: list[BrokerNode] = []
        # Replication results that differ from the healthy default.
        self.replication: dict[str, Replication | GatewayError] = {}
        self.topic_configs: dict[str, TopicConfig] = {}
        self.queues: dict[TopicQueue, FakeQueue] = {}
        # By topic, queue_id and offset; the fakes make up missing contents.
        self.contents: dict[tuple[str, int, int], Content] = {}
        self.group_configs: dict[str, GroupConfig] = {}
        self.members: dict[str, list[Member]] = {}
        self.producers: list[Producer] = []
        # The error when disconnecting clients, if any.
        self.disconnect_fails: GatewayError | None = None
        self.subscriptions: dict[str, list[Subscription]] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}  # group, topic, queue_id
        self.in_flight: dict[tuple[str, str, int], int] = {}  # leased messages, same key
        self.resets: list[tuple[str, str, int]] = []
        self.moves: list[tuple[str, str, dict[BrokerQueue, int]]] = []
        self.node = BrokerNode("DefaultCluster", BROKER_NAME, 0, ADDRESS)
        self.runtime_values: dict[str, float | None] = {"put_tps": 12.5, "get_tps": 10.0}
        self.keys = {each.key: each for each in KEYS}
        # Access control by address, and secrets by address and access key.
        self.access: dict[str, BrokerAccess | GatewayError] = {}
        self.secrets: dict[tuple[str, str], str] = {}
        # Name servers: entries by namespace and key, the other servers, and whether routes are
        # writable.
        self.kv_entries: dict[tuple[str, str], str] = {}
        self.validators: tuple[str, ...] = ()
        self.other_name_servers: dict[str, NameServerView | GatewayError] = {}
        self.is_writable = True
        self.store_refuses: str | None = None
        self.damaged_ranges = 0
        self.unreachable_topics: dict[str, int] = {}
        self.internals: Internals | GatewayError | None = None
        self.up_for_ms = 3_600_000
        self.put_before_today = 7
        # Wakes pulls at the end of a queue.
        self.stored = asyncio.Condition()
        # Messages delivered to one client: group, client_id, offset_msg_id.
        self.delivered: list[tuple[str, str, str]] = []
        # Called with the event of each stored message.
        self.watchers: list[Callable[[TraceEvent], None]] = []
        # Consumer status by client ID, where it differs from the default.
        self.running: dict[str, RunningInfo | GatewayError] = {}
        self.resent: list[tuple[str, bytes, dict[str, str]]] = []
        self.resend_fails: GatewayError | None = None
        # The topics of each search over several topics.
        self.searched: list[tuple[str, ...]] = []
        # The flight recorder's events, its failure, and its level with minutes.
        self.recorded: list[TraceEvent] = []
        self.recorder_fails: GatewayError | None = None
        self.trace_level: tuple[str, int | None] = "recorder", None
        # Tables of files that the other attributes don't cover, and the files of additional
        # masters.
        self.other_tables: dict[ConfigFile, dict[str, Any]] = {}
        self.other_files: dict[str, dict[ConfigFile, dict[str, Any]]] = {}

    def add_topic(self, name: str, *, queue_nums: int = 4, perm: int = 6) -> None:
        self.topic_configs[name] = TopicConfig(name, queue_nums, queue_nums, perm)
        for queue_id in range(queue_nums):
            self.queues.setdefault(TopicQueue(name, queue_id), FakeQueue())

    def put(self, topic: str, queue_id: int, *store_timestamps: int) -> None:
        self.queues[TopicQueue(topic, queue_id)].store_timestamps.extend(store_timestamps)

    def put_message(
        self, topic: str, queue_id: int, body: bytes, store_ms: int, **properties: str
    ) -> int:
        """Store a message with all its contents; return its offset."""
        queue = self.queues[TopicQueue(topic, queue_id)]
        offset = queue.max_offset
        self.contents[topic, queue_id, offset] = Content(body, properties)
        queue.store_timestamps.append(store_ms)
        return offset

    def add_group(self, name: str, *, online: bool = False, topic: str | None = None) -> None:
        self.group_configs[name] = GroupConfig(name)
        if online:
            self.members[name] = [
                Member(f"{name}@1", "127.0.0.1:50001", "JAVA", 407, (BROKER_NAME,))
            ]
        if topic is not None:
            self.subscriptions[name] = [Subscription(topic, "TAG", "*")]

    def give_up(
        self, group: str, topic: str, store_ms: int, *, tag: str = "", key: str = ""
    ) -> int:
        """Add a message of a topic to a group's dead letters; return its offset there."""
        dead = names.dlq_topic(group)
        if dead not in self.topic_configs:
            self.add_topic(dead, queue_nums=1)
        table = {
            names.PROPERTY_RETRY_TOPIC: topic,
            names.PROPERTY_TAGS: tag,
            names.PROPERTY_KEYS: key,
            names.PROPERTY_REAL_TOPIC: dead,
        }
        body = b'{"order": %d}' % self.queues[TopicQueue(dead, 0)].max_offset
        kept = {name: each for name, each in table.items() if each}
        return self.put_message(dead, 0, body, store_ms, **kept)

    def queues_of(self, topic: str) -> dict[int, FakeQueue]:
        """Return a topic's queues by number.

        Raises:
            NotFoundError: the topic doesn't exist.
        """
        if topic not in self.topic_configs:
            raise NotFoundError(ADDRESS, TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        found: dict[int, FakeQueue] = {}
        # Don't scan all queues: some tests have thousands of topics.
        while (queue := self.queues.get(TopicQueue(topic, len(found)))) is not None:
            found[len(found)] = queue
        return found

    def status_of(self, topic: str) -> tuple[QueueStatus, ...]:
        return tuple(
            QueueStatus(
                BROKER_NAME,
                queue_id,
                queue.min_offset,
                queue.max_offset,
                queue.store_timestamps[-1] if queue.store_timestamps else None,
            )
            for queue_id, queue in self.queues_of(topic).items()
        )

    def check(self) -> None:
        """Raise the error that the test has set, if any."""
        if self.fails is not None:
            raise self.fails
