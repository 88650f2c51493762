"""The console's interface to brokers: one Protocol per subject, independent of the wire protocol.

`ClusterGateway`, `TopicGateway`, `GroupGateway`, `OffsetGateway`, `FileGateway`, `BrowseGateway`,
`RepairGateway`, `SendingGateway`, `AccountGateway` and `SampleGateway` block and serve views and
the collector, from any thread; each call ends within the gateway's time limit.
`MessageGateway` and `WatchGateway` hold connections and belong to one event loop.

Every call raises `GatewayError`. A call that spans brokers raises if any of them fails, because a
partial sum would be wrong; `ClusterGateway.runtime` and `SampleGateway.take` report brokers one by
one. Unconfirmed brokers (`console.gateway.known_addresses`) are listed as registered and otherwise
ignored.
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
    from console.gateway.connections import Connected, Producer
    from console.gateway.copies import Copies, MessageCopy
    from console.gateway.errors import GatewayError
    from console.gateway.files import ConfigFile, GroupFilter
    from console.gateway.flight_recorder import Level, Question, RecordedEvents, TraceLevel
    from console.gateway.internals import Internals
    from console.gateway.listeners import Listener
    from console.gateway.naming import NameServerView
    from console.gateway.outgoing import (
        Delivered,
        Half,
        Halves,
        NewMessage,
        Sending,
        Sent,
        Timers,
    )
    from console.gateway.running import RunningInfo
    from console.gateway.sample import BrokerSample
    from console.lib.stored import (
        BrokerQueue,
        KeyFound,
        KeyFoundIn,
        MessageRange,
        NewestMessages,
        Place,
        StoredMessage,
    )


class ClusterGateway(Protocol):
    """Registered brokers and their statistics."""

    def registered(self) -> Cluster:
        """Return the brokers registered with the name server."""

    def runtime(self) -> dict[str, RuntimeInfo | GatewayError]:
        """Return each broker's statistics, or the error, by address."""

    def replication(self) -> dict[str, Replication | GatewayError]:
        """Return the replication state of brokers in sets with slaves, by address.

        RocketMQ 4.9 doesn't report replication and yields a RequestFailedError.
        """

    def configuration(self, node: BrokerNode) -> tuple[BrokerKey, ...]:
        """Return a broker's configuration keys, sorted by name."""

    def listeners(self) -> dict[str, tuple[Listener, ...] | GatewayError]:
        """Return each broker's ports, or the error, by address."""

    def configure(self, node: BrokerNode, values: Mapping[str, str]) -> None:
        """Change keys of a running broker; if one is refused, change nothing.

        Raises:
            RequestFailedError: a key can't change while the broker runs, or its value is invalid.
        """

    def internals(self, node: BrokerNode) -> Internals:
        """Return a broker's threads, latencies, memory and waits.

        Raises:
            RequestFailedError: RocketMQ brokers don't support this.
        """

    def promote(self, node: BrokerNode, *, force: bool) -> Promoted:
        """Promote a slave to master of its set.

        Raises:
            RequestFailedError: it is a master, or its master may be alive and `force` isn't set.
        """


class AccountGateway(Protocol):
    """Broker accounts, managed per broker because each keeps its own file.

    Raises, for calls that name a broker:
        RequestFailedError: the broker refused, or its access control is off.
    """

    def all(self) -> dict[BrokerNode, BrokerAccess | GatewayError]:
        """Return the access control of each registered broker, or the error."""

    def save(self, node: BrokerNode, account: BrokerAccount, secret: str | None) -> None:
        """Create or replace an account; None keeps the existing secret.

        RocketMQ brokers refuse an account without a secret.
        """

    def delete(self, node: BrokerNode, access_key: str) -> None: ...

    def set_white_addresses(self, node: BrokerNode, addresses: Sequence[str]) -> None:
        """Replace the addresses in the broker's own file that need no account."""

    def explain(self, node: BrokerNode, question: AccessQuestion) -> AccessDecision:
        """Return whether the broker would allow a request; RocketMQ brokers don't support this."""


class NameServerGateway(Protocol):
    """The configured name servers: their data and changes to it."""

    def views(self, topic: str, namespace: str) -> dict[str, NameServerView | GatewayError]:
        """Return each name server's data, or the error, by address."""

    def put(self, address: str, namespace: str, key: str, value: str) -> None:
        """Store an entry on one name server."""

    def remove(self, address: str, namespace: str, key: str) -> None: ...

    def set_writable(self, broker_name: str, *, is_writable: bool) -> int:
        """Grant or revoke a broker's write permission in all routes; return the topic count."""


class TopicGateway(Protocol):
    """Topics: configuration, queues and traffic."""

    def all(self) -> dict[str, Topic]:
        """Return the topics of all masters, sorted by name."""

    def status(self, topic: str) -> tuple[QueueStatus, ...]:
        """Return the minimum and maximum offset of each queue.

        Raises:
            NotFoundError: no master has the topic.
        """

    def oldest(self, queues: Iterable[QueueStatus], topic: str) -> dict[BrokerQueue, int | None]:
        """Return the store time of the first message in each of a topic's queues (one request
        each).

        None: the queue is empty.
        """

    def traffic(self, topics: Iterable[str]) -> dict[str, Traffic]:
        """Return the messages received since the brokers started, including zeros."""

    def consumers(self, topic: str) -> tuple[str, ...]:
        """Return the groups that consume a topic, online or not."""

    def save(self, config: TopicConfig, broker_names: Iterable[str]) -> None:
        """Create or update a topic on some brokers."""

    def delete(self, topic: str) -> None:
        """Delete a topic on every broker and on the name servers."""


class GroupGateway(Protocol):
    """Consumer groups: configuration, consumers, progress."""

    def all(self) -> dict[str, Group]:
        """Return the groups of all masters, sorted by name."""

    def connections(self, group: str) -> GroupConnections: ...

    def connections_of(self, groups: Iterable[str]) -> dict[str, GroupConnections]: ...

    def running(
        self, group: str, members: Iterable[Member], *, with_threads: bool = False
    ) -> dict[str, RunningInfo | GatewayError]:
        """Return each consumer's own status, or the error, by client ID."""

    def progress(self, group: str) -> ConsumeProgress: ...

    def progress_of(self, groups: Iterable[str]) -> dict[str, ConsumeProgress]: ...

    def save(self, config: GroupConfig, broker_names: Iterable[str]) -> None:
        """Create or update a group on some brokers."""

    def delete(self, group: str, *, remove_offset: bool) -> None:
        """Delete a group on every broker, optionally with its consumer offsets."""

    def producers(self) -> tuple[Producer, ...]:
        """Return the clients of all producer groups, by group and client ID."""

    def connected(self, group: str, client_id: str) -> tuple[Connected, ...]:
        """Return the connections of a client that consumes or produces in a group.

        Raises:
            RequestFailedError: RocketMQ brokers don't support this.
        """

    def disconnect(
        self, group: str, client_id: str, groups: Iterable[str]
    ) -> tuple[Connected, ...]:
        """Close a client's connections on all masters; return the closed connections.

        Raises:
            RequestFailedError: the client is in a group that isn't in `groups`.
        """


class OffsetGateway(Protocol):
    """Consumer offsets: look them up by time, commit and move them."""

    def at(self, topic: str, timestamp_ms: int) -> dict[BrokerQueue, int]:
        """Return the first offset stored at or after a time, in each queue of a topic."""

    def commit(self, group: str, topic: str, offsets: Mapping[BrokerQueue, int]) -> None:
        """Store consumer offsets. Only for groups without consumers, which would overwrite them."""

    def reset_online(self, group: str, topic: str, timestamp_ms: int) -> dict[BrokerQueue, int]:
        """Reset a group's consumers to a time (-1: the end); return their new offsets.

        Raises:
            RequestFailedError: the group has no consumers.
        """

    def move_online(self, group: str, topic: str, offsets: Mapping[BrokerQueue, int]) -> None:
        """Move a group's consumers to an offset in each of the given queues.

        Raises:
            RequestFailedError: the group has no consumers, or an offset isn't in its queue.
            GatewayError: RocketMQ brokers can't do this; they only reset by time.
        """


class FileGateway(Protocol):
    """JSON files of masters, and the changes to them that no other request makes on a single
    master.
    """

    def read(
        self, file: ConfigFile, broker_names: Iterable[str]
    ) -> dict[str, dict[str, Any] | None]:
        """Return a file as each broker has it in memory, with text keys; None: not available.

        Raises:
            GatewayError: one of the brokers isn't registered.
        """

    def drop_topic(self, topic: str, broker_name: str) -> None:
        """Delete a topic, its messages and offsets on one broker; the last broker also drops the
        route.
        """

    def drop_group(self, group: str, broker_name: str) -> None:
        """Delete a group's configuration on one broker; its consumer offsets stay."""

    def move_delay(self, level: int, offset: int, broker_name: str) -> None:
        """Move a delay level to an offset of its queue.

        Raises:
            GatewayError: the level doesn't exist, the offset is outside the queue, or the broker
                runs RocketMQ.
        """

    def check_filter(self, wanted: GroupFilter, broker_name: str) -> str:
        """Return the broker's error and its position in a filter expression; "" if valid."""

    def save_filter(self, wanted: GroupFilter, broker_name: str) -> None:
        """Create or replace a group's filter on one broker.

        Raises:
            NotFoundError: the broker doesn't have the topic.
            GatewayError: the expression is invalid, or the broker runs RocketMQ.
        """

    def drop_filter(self, group: str, topic: str, broker_name: str) -> None:
        """Delete a group's filter on one broker; a consumer's next heartbeat recreates it.

        Raises:
            GatewayError: there is no filter, or the broker runs RocketMQ.
        """


class BrowseGateway(Protocol):
    """Read messages for display, without moving any group's offsets."""

    def newest(self, wanted: MessageRange, before: Place | None, count: int) -> NewestMessages:
        """Return the newest messages in a time range, newest first, or those before a position.

        `total` also only counts messages before the position, so it shrinks from page to page.

        Raises:
            NotFoundError: no master has the topic.
        """

    def at(
        self, topic: str, queue: BrokerQueue, offset: int, *, is_whole: bool = False
    ) -> StoredMessage | None:
        """Return the message at an offset, or None if it doesn't exist or has expired.

        `is_whole` requests the entire body.
        """

    def by_id(self, offset_msg_id: OffsetMsgId) -> StoredMessage | None:
        """Return the message with an offset message ID, or None if it doesn't exist or has expired.

        Raises:
            UnknownStoreError: the ID's address isn't that of a master.
        """

    def by_key(self, topic: str, key: str, low_ms: int, high_ms: int) -> KeyFound:
        """Return messages in a time range by key or unique key, using the brokers' indexes."""

    def by_key_in(
        self, topics: Sequence[str], key: str, low_ms: int, high_ms: int, seconds: float
    ) -> KeyFoundIn:
        """Like `by_key`, for several topics in order; starts no more topics after `seconds`.

        A broker that doesn't respond is reported in the answer's problems.

        Raises:
            GatewayError: no broker responds.
        """


class RepairGateway(Protocol):
    """Read complete messages and resend them."""

    def copies(self, topic: str, queue: BrokerQueue, offset: int, count: int) -> Copies:
        """Return messages of a queue from an offset on, without moving any group's offsets."""

    def writable(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the writable queues; empty if the topic doesn't exist."""

    def resend(self, copy: MessageCopy, queue: MessageQueue, properties: Mapping[str, str]) -> int:
        """Store a message again with these properties; return its queue offset.

        Raises:
            RequestFailedError: the broker rejected the message.
            GatewayError: whether the broker stored it is unknown.
        """


class SampleGateway(Protocol):
    """Samples of brokers, for the collector."""

    def take(self) -> dict[BrokerNode, BrokerSample | GatewayError]:
        """Return a sample of each registered broker, or the error."""


class SendingGateway(Protocol):
    """Messages and transactions that people handle one by one."""

    def send(self, outgoing: Sequence[NewMessage]) -> Sending:
        """Store messages one after the other, stopping at the first failure."""

    def end(self, half: Sent, *, is_commit: bool) -> None:
        """Commit or roll back a transaction.

        Raises:
            RequestFailedError: the broker doesn't have the half message or no longer has it.
        """

    def undecided(self, broker_name: str, from_offset: int = 0) -> Halves | None:
        """Return undecided transactions, oldest first; None: the broker doesn't list them."""

    def timers(self, broker_name: str, key: str = "") -> Timers | None:
        """Return the next timer messages, or those with a key.

        None: the broker doesn't list its timer messages.
        """

    def decide(self, half: Half, *, is_commit: bool) -> None:
        """Commit or roll back a transaction of any producer.

        Raises:
            RequestFailedError: the broker doesn't have the half message or no longer has it.
        """

    def check(self, half: Half) -> None:
        """Have the broker check the transaction's outcome with a producer of its group.

        Raises:
            RequestFailedError: no producer is connected, or the transaction is already decided.
        """

    def deliver(
        self, broker_name: str, offset_msg_id: str, group: str, client_id: str
    ) -> Delivered:
        """Deliver a stored message to one consumer of a group, without moving its offset.

        Raises:
            RequestFailedError: the consumer isn't connected or doesn't respond.
        """


class MessageGateway(Protocol):
    """Client operations: send, pull and group membership. One event loop.

    Only contacts the brokers in the routes it has read. Routes omit the queues of unconfirmed
    brokers.
    """

    async def route(self, topic: str) -> TopicRoute | None:
        """Return a topic's route, or None if no broker has the topic."""

    async def send(self, queue: MessageQueue, message: OutgoingMessage, group: str) -> int:
        """Store a message; return its queue offset."""

    async def pull(
        self, queue: MessageQueue, group: str, queue_offset: int, sub_version: int
    ) -> Pulled:
        """Read a queue from an offset, waiting a few seconds for a message at its end."""

    async def consumer_offset(self, queue: MessageQueue, group: str) -> int:
        """Return a group's offset in a queue, or the queue's minimum offset without one."""

    async def commit(self, queue: MessageQueue, group: str, queue_offset: int) -> None:
        """Send a consumer offset; the broker doesn't acknowledge it."""

    async def join(self, client: Client) -> None:
        """Send a heartbeat with the client's subscriptions to every known broker."""

    async def leave(self, client: Client) -> None:
        """Unregister from every known broker; a broker that doesn't respond expires the client
        later.
        """

    async def members(self, queue: MessageQueue, group: str) -> tuple[str, ...]:
        """Return a group's client IDs, in the order that every consumer sees."""

    async def until_members_change(self) -> None:
        """Return when a broker reports a membership change in a joined group."""

    async def close(self) -> None:
        """Close all connections."""


class RecorderGateway(Protocol):
    """Brokers' flight recorders: past events and trace levels.

    Results are keyed by master name; RocketMQ brokers refuse these requests.
    """

    def levels(self) -> dict[str, TraceLevel | GatewayError]: ...

    def set_level(self, level: Level, minutes: int | None = None) -> None:
        """Set the trace level of all masters; `full` needs minutes and ends automatically."""

    def recorded(
        self, question: Question, minutes: int, limit: int, wanted: WatchFilter
    ) -> dict[str, RecordedEvents | GatewayError]:
        """Return events of the last minutes, up to `limit` per broker."""


class Watch(Protocol):
    """A connection over which one broker pushes trace events. One event loop."""

    async def set_filters(
        self, filters: Mapping[str, WatchFilter], after: WatchPlace | None = None
    ) -> bool:
        """Start the watch, or change its filters; events that match any of them are pushed.

        Returns whether it resumes `after` the position of an earlier watch with the same filters;
        the
        broker then sends the events since, or counts them as dropped.

        Raises:
            RequestFailedError: the broker refused.
            GatewayError: the connection failed, or there was no answer.
        """

    async def until_closed(self) -> None:
        """Return when the connection has ended."""

    async def close(self) -> None:
        """End the connection; safe to call twice."""


class WatchGateway(Protocol):
    """Opens watches on brokers. One event loop."""

    def open(self, address: str, on_batch: Callable[[TraceBatch], None]) -> Watch:
        """Return an unconnected watch of one broker; `on_batch` receives the pushed batches."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """All gateways to the brokers."""

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
