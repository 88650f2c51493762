"""Connected consumer groups: members, subscriptions, and how they consume.

Source: broker/client/ConsumerManager.java, ConsumerGroupInfo.java (4.9.7).
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from broker_core.backlog import Backlog
from broker_core.clients.memberships import SYSTEM_ERROR, Memberships
from broker_core.config.limits import LIMITS
from broker_core.delivery.tag_filter import TagFilter
from broker_core.errors import RequestRefusedError
from broker_core.isolation import isolated
from broker_core.message.names import is_retry_topic
from broker_core.message.subscription import SubscriptionData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker_core.clients.client import ClientConnection
    from broker_core.config.limits import LimitsConfig

logger = logging.getLogger(__name__)

NOTICES_AT_ONCE = 1_000
"""The maximum number of members notified of changes per turn of the loop: 20 ms."""
SUBSCRIPTION_CHARS_MAX = 300
CHARS_PER_SUBSCRIPTION = 16
"""This many characters of an expression use about as much memory as a subscription without one."""


class ConsumerMember(msgspec.Struct, gc=False):
    """One client of a group, on one connection."""

    client_id: str
    language: str
    version: int
    last_heartbeat: float
    """Monotonic seconds."""
    wants: str = ""
    """The subscriptions in this client's heartbeat, as `subscription_text` returns them; the group
    keeps only the last heartbeat's.
    """


class Subscription(msgspec.Struct, gc=False):
    """A group's subscription to a topic, and the tag filter built from it (None: all messages)."""

    data: SubscriptionData
    tag_filter: TagFilter | None


@dataclass(slots=True)
class ConsumerGroup:
    """A group with at least one member. Subscriptions belong to the group, not to a member."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: dict[ClientConnection, ConsumerMember] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    weight: int = 0
    """How much the subscriptions count towards subscriptionNumsMax."""

    def client_ids(self) -> list[str]:
        return [member.client_id for member in self.members.values()]

    def connection_of(self, client_id: str) -> ClientConnection | None:
        for connection, member in self.members.items():
            if member.client_id == client_id:
                return connection
        return None


class Consumers:
    """Register, renew and forget consumers. Event loop only.

    Calls `on_change` with the group's name and connections, including a new one, when members or
    subscribed topics change, and `on_gone` with the name of a group that loses its last member. If
    very many groups change at once, later turns of the loop call `on_change`, once per group.

    Attributes:
        groups: the groups with members, by name.
        heartbeats: how often any member was added, renewed or removed: while it is unchanged, the
            members are, too.
    """

    __slots__ = (
        "_changed",
        "_limits",
        "_memberships",
        "_on_change",
        "_on_gone",
        "_weight",
        "groups",
        "heartbeats",
    )

    def __init__(
        self,
        on_change: Callable[[str, list[ClientConnection]], None] | None = None,
        on_gone: Callable[[str], None] | None = None,
        limits: LimitsConfig = LIMITS,
    ) -> None:
        self._memberships = Memberships(limits)
        self._limits = limits
        self._weight = 0
        self.groups: dict[str, ConsumerGroup] = {}
        self.heartbeats = 0
        self._on_change = on_change
        self._changed = Backlog(self._tell, NOTICES_AT_ONCE)
        self._on_gone = on_gone

    def find(self, group: str) -> ConsumerGroup | None:
        return self.groups.get(group)

    def client_id_of(self, group: str, connection: ClientConnection) -> str | None:
        """Return the client ID of the member on a connection, or None."""
        consumer_group = self.groups.get(group)
        member = consumer_group.members.get(connection) if consumer_group else None
        return member.client_id if member else None

    def register(
        self,
        connection: ClientConnection,
        group_name: str,
        member: ConsumerMember,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: Iterable[SubscriptionData],
        *,
        notify: bool,
    ) -> bool:
        """Process a heartbeat for one group; return whether the connection is a new member.

        Raises:
            RequestRefusedError: there are too many members or subscriptions.
        """
        wanted = list(subscriptions)
        group = self.groups.get(group_name)
        self._require_room(sum(map(_weight, wanted)), 0 if group is None else group.weight)
        # Use the existing name object, because each heartbeat creates its own copy.
        self._memberships.add(connection, group_name if group is None else group.name)
        if group is None:
            group = ConsumerGroup(group_name, consume_type, message_model, consume_from_where)
            self.groups[group_name] = group
        group.consume_type = consume_type
        group.message_model = message_model
        group.consume_from_where = consume_from_where
        is_new = connection not in group.members
        # Usually all members have the same subscriptions, so share one text.
        first = next(iter(group.members.values()), member)
        if member.wants == first.wants:
            member.wants = first.wants
        group.members[connection] = member
        self.heartbeats += 1
        changed = _merge_subscriptions(group, wanted)
        self._weigh(group, sum(_weight(one.data) for one in group.subscriptions.values()))
        if (is_new or changed) and notify:
            self._notify(group)
        return is_new

    def unregister(self, connection: ClientConnection, group_name: str, *, notify: bool) -> None:
        """Forget one member; with the last one, forget the group."""
        if self._leave(connection, group_name, notify=notify):
            logger.info("consumer left group=%s address=%s", group_name, connection.remote_address)

    def groups_of(self, connection: ClientConnection) -> list[str]:
        return self._memberships.groups_of(connection)

    def close(self, connection: ClientConnection) -> list[str]:
        """Forget a connection everywhere; return the groups that it left."""
        left = self._memberships.groups_of(connection)
        for name in left:
            self._leave(connection, name, notify=True)
        if left:
            logger.info(
                "consumer left group=%s groups=%d address=%s",
                left[0],
                len(left),
                connection.remote_address,
            )
        return left

    def _leave(self, connection: ClientConnection, group_name: str, *, notify: bool) -> bool:
        group = self.groups.get(group_name)
        if group is None or group.members.pop(connection, None) is None:
            return False
        self.heartbeats += 1
        self._memberships.remove(connection, group_name)
        if not group.members:
            del self.groups[group_name]
            self._weigh(group, 0)
            if self._on_gone is not None:
                with isolated("cleaning up a group", group_name):
                    self._on_gone(group_name)
        elif notify:
            self._notify(group)
        return True

    def silent_since(self, before: float) -> list[ClientConnection]:
        """Return the connections whose last heartbeat is older than the monotonic time `before`."""
        return [
            connection
            for group in self.groups.values()
            for connection, member in group.members.items()
            if member.last_heartbeat < before
        ]

    def groups_subscribing(self, topic: str) -> list[str]:
        return [name for name, group in self.groups.items() if topic in group.subscriptions]

    def _require_room(self, wanted: int, held: int) -> None:
        most = self._limits.subscription_nums_max
        if wanted > held and self._weight - held + wanted > most:
            raise RequestRefusedError(
                SYSTEM_ERROR,
                f"the broker already holds {self._weight} subscriptions; the limit is "
                f"subscriptionNumsMax={most}",
            )

    def _weigh(self, group: ConsumerGroup, weight: int) -> None:
        self._weight += weight - group.weight
        group.weight = weight

    def _notify(self, group: ConsumerGroup) -> None:
        if self._on_change is not None:
            self._changed.add(group.name)

    def _tell(self, name: str) -> int:
        """Report a group's change; return the number of members notified."""
        group = self.groups.get(name)
        if group is None or self._on_change is None:
            return 1
        self._on_change(name, list(group.members))
        return len(group.members)


def subscription_text(subscriptions: Iterable[SubscriptionData]) -> str:
    """Return subscriptions as one text, the same for equivalent subscriptions.

    A long text is cut and ends in a hash that distinguishes it from others.
    """
    parts = []
    for data in subscriptions:
        wanted = data.sub_string
        if data.is_tag_expression:
            wanted = " || ".join(sorted({*data.tags_set})) or data.sub_string
        if not is_retry_topic(data.topic):
            parts.append(f"{data.topic}: {wanted}")
    text = "; ".join(sorted(parts))
    if len(text) <= SUBSCRIPTION_CHARS_MAX:
        return text
    return f"{text[:SUBSCRIPTION_CHARS_MAX]}… {zlib.crc32(text.encode(errors='replace')):08x}"


def _weight(subscription: SubscriptionData) -> int:
    return 1 + len(subscription.sub_string) // CHARS_PER_SUBSCRIPTION


def _merge_subscriptions(group: ConsumerGroup, wanted: Iterable[SubscriptionData]) -> bool:
    """Replace the group's topics by this heartbeat's; return whether the set of topics changed.

    The last heartbeat wins for the whole group: two clients with different subscriptions overwrite
    each other's, as in RocketMQ, where this is a known symptom.
    """
    changed = False
    topics = set()
    for data in wanted:
        topics.add(data.topic)
        known = group.subscriptions.get(data.topic)
        if known is None:
            changed = True
        elif data.sub_version <= known.data.sub_version:
            continue
        tag_filter = TagFilter.of(data) if data.is_tag_expression else None
        group.subscriptions[data.topic] = Subscription(data, tag_filter)
    for gone in group.subscriptions.keys() - topics:
        del group.subscriptions[gone]
        changed = True
    return changed
