"""Consumer groups that are connected: their members, what they subscribe to, how they consume.

Source: broker/client/ConsumerManager.java, ConsumerGroupInfo.java (4.9.7).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker_core.delivery.tag_filter import TagFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker_core.clients.client import ClientConnection
    from broker_core.message.subscription import SubscriptionData

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ConsumerMember:
    """One client of a group, on one connection."""

    client_id: str
    language: str
    version: int
    last_heartbeat: float
    """Monotonic seconds."""


@dataclass(slots=True)
class Subscription:
    """What the group wants of a topic, with the tag filter made of it; None filters nothing."""

    data: SubscriptionData
    tag_filter: TagFilter | None


@dataclass(slots=True)
class ConsumerGroup:
    """A group with at least one member. The subscriptions are the group's, not a member's."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: dict[ClientConnection, ConsumerMember] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    def client_ids(self) -> list[str]:
        return [member.client_id for member in self.members.values()]

    def connection_of(self, client_id: str) -> ClientConnection | None:
        for connection, member in self.members.items():
            if member.client_id == client_id:
                return connection
        return None


class Consumers:
    """Register, renew and forget consumers. Event loop only.

    `on_change` is called with the group's name and its connections when membership or the set of
    topics changed, the newcomer's connection included; `on_gone` with the name of a group that
    lost its last member.
    """

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.on_change: Callable[[str, list[ClientConnection]], None] | None = None
        self.on_gone: Callable[[str], None] | None = None

    def find(self, group: str) -> ConsumerGroup | None:
        return self.groups.get(group)

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
    ) -> None:
        """Take a heartbeat for one group; a connection seen first is a new member."""
        group = self.groups.get(group_name)
        if group is None:
            group = ConsumerGroup(group_name, consume_type, message_model, consume_from_where)
            self.groups[group_name] = group
        group.consume_type = consume_type
        group.message_model = message_model
        group.consume_from_where = consume_from_where
        is_new = connection not in group.members
        if is_new:
            logger.info(
                "consumer joined: group=%s client_id=%s address=%s",
                group_name,
                member.client_id,
                connection.remote_address,
            )
        group.members[connection] = member
        changed = _merge_subscriptions(group, subscriptions)
        if (is_new or changed) and notify:
            self._notify(group)

    def unregister(self, connection: ClientConnection, group_name: str, *, notify: bool) -> None:
        """Forget one member; the last one takes the group with it."""
        group = self.groups.get(group_name)
        if group is None or group.members.pop(connection, None) is None:
            return
        logger.info("consumer left: group=%s address=%s", group_name, connection.remote_address)
        if not group.members:
            del self.groups[group_name]
            if self.on_gone is not None:
                self.on_gone(group_name)
        elif notify:
            self._notify(group)

    def close(self, connection: ClientConnection) -> list[str]:
        """Forget a connection everywhere; returns the groups it left."""
        left = [name for name, group in self.groups.items() if connection in group.members]
        for name in left:
            self.unregister(connection, name, notify=True)
        return left

    def silent_since(self, before: float) -> list[ClientConnection]:
        """Return the connections without a heartbeat since the monotonic time `before`."""
        return [
            connection
            for group in self.groups.values()
            for connection, member in group.members.items()
            if member.last_heartbeat < before
        ]

    def groups_subscribing(self, topic: str) -> list[str]:
        return [name for name, group in self.groups.items() if topic in group.subscriptions]

    def _notify(self, group: ConsumerGroup) -> None:
        if self.on_change is not None:
            self.on_change(group.name, list(group.members))


def _merge_subscriptions(group: ConsumerGroup, wanted: Iterable[SubscriptionData]) -> bool:
    """Make the group's topics those of this heartbeat; True when the set of topics changed.

    The last heartbeat wins for the whole group: two clients with different subscriptions evict each
    other's, as in the original, where users know that symptom.
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
