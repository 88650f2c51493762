"""Connected producer groups.

Source: broker/client/ProducerManager.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker_core.clients.memberships import Memberships
from broker_core.config.limits import LIMITS

if TYPE_CHECKING:
    from broker_core.clients.client import ClientConnection
    from broker_core.config.limits import LimitsConfig


class ProducerMember(msgspec.Struct, gc=False):
    """One client of a producer group, on one connection."""

    client_id: str
    language: str
    version: int
    last_heartbeat: float
    """Monotonic seconds."""
    last_update_timestamp: int
    """Milliseconds since epoch."""


class Producers:
    """Register, renew and forget producers. Event loop only."""

    def __init__(self, limits: LimitsConfig = LIMITS) -> None:
        self._memberships = Memberships(limits)
        self.groups: dict[str, dict[ClientConnection, ProducerMember]] = {}
        self._by_client: dict[str, ClientConnection] = {}

    def find(self, client_id: str) -> ClientConnection | None:
        """Return the connection of a producer."""
        return self._by_client.get(client_id)

    def register(self, connection: ClientConnection, group: str, member: ProducerMember) -> None:
        """Process a heartbeat for one group.

        Raises:
            RequestRefusedError: the connection is in too many groups, or all groups have too many
                members.
        """
        self._memberships.add(connection, group)
        members = self.groups.setdefault(group, {})
        before = members.get(connection)
        members[connection] = member
        self._by_client[member.client_id] = connection
        if before is not None and before.client_id != member.client_id:
            self._forget_client(connection, before.client_id)

    def unregister(self, connection: ClientConnection, group: str) -> None:
        members = self.groups.get(group)
        member = None if members is None else members.pop(connection, None)
        if members is None or member is None:
            return
        self._memberships.remove(connection, group)
        if not members:
            del self.groups[group]
        self._forget_client(connection, member.client_id)

    def groups_of(self, connection: ClientConnection) -> list[str]:
        return self._memberships.groups_of(connection)

    def close(self, connection: ClientConnection) -> list[str]:
        """Forget a connection in every group; return the groups that it left."""
        left = self._memberships.groups_of(connection)
        for group in left:
            self.unregister(connection, group)
        return left

    def silent_since(self, before: float) -> list[ClientConnection]:
        """Return the connections whose last heartbeat is older than the monotonic time `before`."""
        return [
            connection
            for members in self.groups.values()
            for connection, member in members.items()
            if member.last_heartbeat < before
        ]

    def _forget_client(self, connection: ClientConnection, client_id: str) -> None:
        """Forget a client's connection, unless it is a member of another group there."""
        if self._by_client.get(client_id) is connection and not any(
            self.groups[group][connection].client_id == client_id
            for group in self._memberships.groups_of(connection)
        ):
            del self._by_client[client_id]
