"""What the console may ask brokers: one Protocol for each subject, without a word about the wire.

`ClusterGateway`, `TopicGateway`, `GroupGateway`, `OffsetGateway`, `FileGateway`, `BrowseGateway`,
`RepairGateway`, `SendingGateway`, `AccountGateway` and `SampleGateway` block and serve views and
the collector, from any thread; each call ends within the gateway's time limit.
`MessageGateway` and `WatchGateway` hold connections and belong to one event loop.

Every call raises `GatewayError`. A call that spans brokers raises when any of them fails, since a
sum over some of them would be a wrong number; `ClusterGateway.runtime` and `SampleGateway.take`
report brokers one by one. Brokers that nobody has confirmed (`console.gateway.known`) belong to
somebody else until then: they are registered, and count nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from broker_core.message.ids import OffsetMsgId
    from console.gateway.accounts import (
        AccessDecision,
        AccessQuestion,
        BrokerAccess,
        BrokerAccount,
    )
    from console.gateway.answers import (
        BrokerNode,
        BrokerQueue,
        Client,
        Cluster,
        ConsumeProgress,
        Group,
        GroupConfig,
        GroupConnections,
        Member,
        MessageQueue,
        OutgoingMessage,
        Promoted,
        Pulled,
        QueueStatus,
        Replication,
        RuntimeInfo,
        Topic,
        TopicConfig,
        TopicRoute,
        TraceBatch,
        Traffic,
        WatchFilter,
        WatchPlace,
    )
    from console.gateway.configuration import BrokerKey
    from console.gateway.connected import Connected, Producer
    from console.gateway.copies import Copies, MessageCopy
    from console.gateway.errors import GatewayError
    from console.gateway.files import ConfigFile, GroupFilter
    from console.gateway.internals import Internals
    from console.gateway.naming import NameServerView
    from console.gateway.outgoing import Delivered, Half, Halves, NewMessage, Sending, Sent
    from console.gateway.recorded import Level, Question, RecordedEvents, TraceLevel
    from console.gateway.running import RunningInfo
    from console.gateway.sample import BrokerSample
    from console.gateway.stored import Found, KeyFound, Place, StoredMessage, Wanted


class ClusterGateway(Protocol):
    """Which brokers there are, and their own figures."""

    def registered(self) -> Cluster:
        """Return the brokers that the name server knows."""

    def runtime(self) -> dict[str, RuntimeInfo | GatewayError]:
        """Return each broker's figures, or why there are none, by address."""

    def replication(self) -> dict[str, Replication | GatewayError]:
        """Return what the brokers of sets with slaves say of replication, by address.

        RocketMQ 4.9 does not say anything of it: a RequestFailedError.
        """

    def configuration(self, node: BrokerNode) -> tuple[BrokerKey, ...]:
        """Return a broker's keys in the order of their names."""

    def configure(self, node: BrokerNode, values: Mapping[str, str]) -> None:
        """Change keys of a running broker, all of them or none.

        Raises:
            RequestFailedError: one may not change while the broker runs, or its value is bad.
        """

    def internals(self, node: BrokerNode) -> Internals:
        """Return what runs inside a broker, and where it waits.

        Raises:
            RequestFailedError: RocketMQ's own brokers do not tell.
        """

    def promote(self, node: BrokerNode, *, force: bool) -> Promoted:
        """Make a slave the master of its set.

        Raises:
            RequestFailedError: it is a master, or its master may be alive and `force` is not given.
        """


class AccountGateway(Protocol):
    """Accounts of brokers, one broker at a time: each keeps its own file.

    Raises, where a broker is named:
        RequestFailedError: it refuses, or its access control is off.
    """

    def all(self) -> dict[BrokerNode, BrokerAccess | GatewayError]:
        """Return the access control of each registered broker, or why it says nothing."""

    def save(self, node: BrokerNode, account: BrokerAccount, secret: str | None) -> None:
        """Make an account, or make it exactly this; None leaves it its secret.

        RocketMQ's own brokers refuse an account without a secret.
        """

    def delete(self, node: BrokerNode, access_key: str) -> None: ...

    def set_white_addresses(self, node: BrokerNode, addresses: Sequence[str]) -> None:
        """Replace the addresses that need no account, as the broker's own file lists them."""

    def explain(self, node: BrokerNode, question: AccessQuestion) -> AccessDecision:
        """Return whether the broker would let a request pass; RocketMQ's own do not say it."""


class NameServerGateway(Protocol):
    """The name servers of the settings: what each says, and what they are told."""

    def views(self, topic: str, namespace: str) -> dict[str, NameServerView | GatewayError]:
        """Return what each name server says, or why it does not, by address."""

    def put(self, address: str, namespace: str, key: str, value: str) -> None:
        """Keep an entry at one name server."""

    def remove(self, address: str, namespace: str, key: str) -> None: ...

    def set_writable(self, broker_name: str, *, is_writable: bool) -> int:
        """Give or take a broker's write permission in all routes; return of how many topics."""


class TopicGateway(Protocol):
    """Topics: configuration, queues, traffic."""

    def all(self) -> dict[str, Topic]:
        """Return the topics of all masters, by name, in its order."""

    def status(self, topic: str) -> tuple[QueueStatus, ...]:
        """Return the ends of each queue.

        Raises:
            NotFoundError: no master has the topic.
        """

    def oldest(self, queues: Iterable[QueueStatus], topic: str) -> dict[BrokerQueue, int | None]:
        """Return when the first message of each of a topic's queues was stored; one request each.

        None: it has none.
        """

    def traffic(self, topics: Iterable[str]) -> dict[str, Traffic]:
        """Return what arrived since the brokers started; a topic without traffic is zero."""

    def consumers(self, topic: str) -> tuple[str, ...]:
        """Return the groups that consume a topic, online or not."""

    def save(self, config: TopicConfig, broker_names: Iterable[str]) -> None:
        """Create or change a topic on some brokers."""

    def delete(self, topic: str) -> None:
        """Delete a topic on every broker and at the name servers."""


class GroupGateway(Protocol):
    """Subscription groups: configuration, members, progress."""

    def all(self) -> dict[str, Group]:
        """Return the groups of all masters, by name, in its order."""

    def connections(self, group: str) -> GroupConnections: ...

    def connections_of(self, groups: Iterable[str]) -> dict[str, GroupConnections]: ...

    def running(
        self, group: str, members: Iterable[Member], *, with_threads: bool = False
    ) -> dict[str, RunningInfo | GatewayError]:
        """Return what members say of themselves, or why one says nothing, by client id."""

    def progress(self, group: str) -> ConsumeProgress: ...

    def progress_of(self, groups: Iterable[str]) -> dict[str, ConsumeProgress]: ...

    def save(self, config: GroupConfig, broker_names: Iterable[str]) -> None:
        """Create or change a group on some brokers."""

    def delete(self, group: str, *, remove_offset: bool) -> None:
        """Delete a group on every broker, with its consumer offsets or without."""

    def producers(self) -> tuple[Producer, ...]:
        """Return the clients of all producer groups, by group and client id."""

    def connected(self, group: str, client_id: str) -> tuple[Connected, ...]:
        """Return the connections of a client that consumes or produces in a group.

        Raises:
            RequestFailedError: RocketMQ's own brokers do not tell.
        """

    def disconnect(
        self, group: str, client_id: str, groups: Iterable[str]
    ) -> tuple[Connected, ...]:
        """Close a client's connections at all masters; return those closed.

        Raises:
            RequestFailedError: the client is in a group that `groups` does not name.
        """


class OffsetGateway(Protocol):
    """Consumer offsets: where a time lies, and where a group goes on."""

    def at(self, topic: str, timestamp_ms: int) -> dict[BrokerQueue, int]:
        """Return the first offset at or after a time in each queue of a topic."""

    def commit(self, group: str, topic: str, offsets: Mapping[BrokerQueue, int]) -> None:
        """Store consumer offsets; for a group without members, which would overwrite them."""

    def reset_online(self, group: str, topic: str, timestamp_ms: int) -> dict[BrokerQueue, int]:
        """Move a group's members to a time (-1: the end); return the offsets they got.

        Raises:
            RequestFailedError: the group has no member.
        """

    def move_online(self, group: str, topic: str, offsets: Mapping[BrokerQueue, int]) -> None:
        """Move a group's members to an offset in each of some queues.

        Raises:
            RequestFailedError: the group has no member, or a queue does not have the offset.
            GatewayError: RocketMQ's own brokers cannot do this; they move by time only.
        """


class FileGateway(Protocol):
    """The JSON files of masters, and what of them no other request changes on one master alone."""

    def read(
        self, file: ConfigFile, broker_names: Iterable[str]
    ) -> dict[str, dict[str, Any] | None]:
        """Return a file as each broker has it in memory, keys as text; None: it does not tell.

        Raises:
            GatewayError: one of the brokers is not registered.
        """

    def drop_topic(self, topic: str, broker_name: str) -> None:
        """Delete a topic on one broker, with its messages and offsets; its route with the last."""

    def drop_group(self, group: str, broker_name: str) -> None:
        """Delete a group's configuration on one broker; its consumer offsets stay."""

    def move_delay(self, level: int, offset: int, broker_name: str) -> None:
        """Let a delay level go on at an offset of its queue.

        Raises:
            GatewayError: there is no such level, the offset lies outside of its queue, or the
                broker is one of RocketMQ's own.
        """

    def check_filter(self, wanted: GroupFilter, broker_name: str) -> str:
        """Return why the broker does not take an expression, with the place; "" if it does."""

    def save_filter(self, wanted: GroupFilter, broker_name: str) -> None:
        """Put an expression in the place of a group's filter on one broker, or make the filter.

        Raises:
            NotFoundError: the broker does not have the topic.
            GatewayError: the expression is none, or the broker is one of RocketMQ's own.
        """

    def drop_filter(self, group: str, topic: str, broker_name: str) -> None:
        """Delete a group's filter on one broker; a member's heartbeat makes it again.

        Raises:
            GatewayError: there is none, or the broker is one of RocketMQ's own.
        """


class BrowseGateway(Protocol):
    """Messages for people who look: read, and nothing of a group moves."""

    def newest(self, wanted: Wanted, before: Place | None, count: int) -> Found:
        """Return the newest messages of a time, newest first, or those before a place.

        `total` counts what is before the place, too, so that it shrinks from page to page.

        Raises:
            NotFoundError: no master has the topic.
        """

    def at(
        self, topic: str, queue: BrokerQueue, offset: int, *, is_whole: bool = False
    ) -> StoredMessage | None:
        """Return the message at a place, None where there is none (any more).

        `is_whole` asks for all of its body.
        """

    def by_id(self, offset_msg_id: OffsetMsgId) -> StoredMessage | None:
        """Return the message at a place in a broker's log, None where there is none (any more).

        Raises:
            UnknownStoreError: no master has the address that the id names.
        """

    def by_key(self, topic: str, key: str, low_ms: int, high_ms: int) -> KeyFound:
        """Return messages of a time with a key or unique key, as the brokers' indexes name them."""


class RepairGateway(Protocol):
    """Messages read whole, and sent again."""

    def copies(self, topic: str, queue: BrokerQueue, offset: int, count: int) -> Copies:
        """Return messages of a queue from an offset on; nothing of a group moves."""

    def writable(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that take messages; none where there is no such topic."""

    def resend(self, copy: MessageCopy, queue: MessageQueue, properties: Mapping[str, str]) -> int:
        """Store a message once more, with these properties; return its queue offset.

        Raises:
            RequestFailedError: the broker did not take it.
            GatewayError: whether it has taken it is not known.
        """


class SampleGateway(Protocol):
    """All that is kept of brokers, for the collector."""

    def take(self) -> dict[BrokerNode, BrokerSample | GatewayError]:
        """Return a sample of each broker that is registered, or why there is none."""


class SendingGateway(Protocol):
    """Messages that people send, one by one."""

    def send(self, outgoing: Sequence[NewMessage]) -> Sending:
        """Store messages one after the other, until one cannot be stored."""

    def end(self, half: Sent, *, is_commit: bool) -> None:
        """Commit or roll back a transaction.

        Raises:
            RequestFailedError: the broker has no such half message (any more).
        """

    def undecided(self, broker_name: str, from_offset: int = 0) -> Halves | None:
        """Return transactions without an outcome, the oldest first; None: it does not tell them."""

    def decide(self, half: Half, *, is_commit: bool) -> None:
        """Commit or roll back a transaction of whatever producer.

        Raises:
            RequestFailedError: the broker has no such half message (any more).
        """

    def check(self, half: Half) -> None:
        """Have the broker ask a producer of the transaction's group for its outcome.

        Raises:
            RequestFailedError: none is connected, or the transaction is decided by now.
        """

    def deliver(
        self, broker_name: str, offset_msg_id: str, group: str, client_id: str
    ) -> Delivered:
        """Hand a stored message to one member of a group, whose offset does not move.

        Raises:
            RequestFailedError: the member is not there, or does not answer.
        """


class MessageGateway(Protocol):
    """What a client does with messages: send, pull, be a member of a group. One event loop.

    It knows the brokers of the routes it has read, and no others. Queues of brokers that nobody
    has confirmed are left out of routes.
    """

    async def route(self, topic: str) -> TopicRoute | None:
        """Return a topic's route, None when no broker has the topic."""

    async def send(self, queue: MessageQueue, message: OutgoingMessage, group: str) -> int:
        """Store a message; return its queue offset."""

    async def pull(
        self, queue: MessageQueue, group: str, queue_offset: int, sub_version: int
    ) -> Pulled:
        """Read a queue from an offset; at its end wait some seconds for a message."""

    async def consumer_offset(self, queue: MessageQueue, group: str) -> int:
        """Return where a group goes on in a queue: its offset, else the queue's beginning."""

    async def commit(self, queue: MessageQueue, group: str, queue_offset: int) -> None:
        """Send a consumer offset; the broker does not confirm it."""

    async def join(self, client: Client) -> None:
        """Tell every known broker that the client lives, and what it consumes."""

    async def leave(self, client: Client) -> None:
        """Unregister from every known broker; one that does not answer forgets us in time."""

    async def members(self, queue: MessageQueue, group: str) -> tuple[str, ...]:
        """Return the client ids of a group, in the order that every member sees."""

    async def until_members_change(self) -> None:
        """Return when a broker says that the members of a joined group have changed."""

    async def close(self) -> None:
        """Close all connections."""


class RecorderGateway(Protocol):
    """Brokers' flight recorders: what happened a while ago, and how much is traced.

    Answers by the name of each master; brokers of another make refuse.
    """

    def levels(self) -> dict[str, TraceLevel | GatewayError]: ...

    def set_level(self, level: Level, minutes: int | None = None) -> None:
        """Set the level of all masters; `full` needs minutes, after which it ends by itself."""

    def recorded(
        self, question: Question, minutes: int, limit: int, wanted: WatchFilter
    ) -> dict[str, RecordedEvents | GatewayError]:
        """Return events of the last minutes, as many as `limit` of each broker."""


class Watch(Protocol):
    """One connection to one broker over which it pushes trace events. One event loop."""

    async def ask_for(
        self, filters: Mapping[str, WatchFilter], after: WatchPlace | None = None
    ) -> bool:
        """Start the watch, or change which events it brings: what any of these filters matches.

        Returns whether it goes on `after` where one with the same filters had come when its
        connection was lost: then the broker sends what passed meanwhile, or counts it as dropped.

        Raises:
            RequestFailedError: the broker refuses.
            GatewayError: no connection, or no answer.
        """

    async def until_closed(self) -> None:
        """Return when the connection has ended."""

    async def close(self) -> None:
        """End the connection; safe to call twice."""


class WatchGateway(Protocol):
    """Opens watches of brokers. One event loop."""

    def open(self, address: str, on_batch: Callable[[TraceBatch], None]) -> Watch:
        """Return a watch of one broker, not connected yet; `on_batch` gets what it pushes."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """The ways to the brokers, for whoever needs one of them."""

    cluster: ClusterGateway
    topics: TopicGateway
    groups: GroupGateway
    offsets: OffsetGateway
    files: FileGateway
    browse: BrowseGateway
    repair: RepairGateway
    samples: SampleGateway
    sending: SendingGateway
    messages: MessageGateway
    recorder: RecorderGateway
    watch: WatchGateway
    accounts: AccountGateway
    naming: NameServerGateway
