"""Producer groups that are connected.

Source: broker/client/ProducerManager.java (4.9.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.clients.client import ClientConnection


@dataclass(slots=True)
class ProducerMember:
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

    def __init__(self) -> None:
        self.groups: dict[str, dict[ClientConnection, ProducerMember]] = {}
        self._by_client: dict[str, ClientConnection] = {}

    def find(self, client_id: str) -> ClientConnection | None:
        """Return the connection of a client that produces."""
        return self._by_client.get(client_id)

    def register(self, connection: ClientConnection, group: str, member: ProducerMember) -> None:
        self.groups.setdefault(group, {})[connection] = member
        self._by_client[member.client_id] = connection

    def unregister(self, connection: ClientConnection, group: str) -> None:
        members = self.groups.get(group)
        member = None if members is None else members.pop(connection, None)
        if members is None or member is None:
            return
        if not members:
            del self.groups[group]
        is_elsewhere = any(connection in others for others in self.groups.values())
        if self._by_client.get(member.client_id) is connection and not is_elsewhere:
            del self._by_client[member.client_id]

    def close(self, connection: ClientConnection) -> None:
        """Forget a connection in every group."""
        for group in [name for name, members in self.groups.items() if connection in members]:
            self.unregister(connection, group)

    def silent_since(self, before: float) -> list[ClientConnection]:
        """Return the connections without a heartbeat since the monotonic time `before`."""
        return [
            connection
            for members in self.groups.values()
            for connection, member in members.items()
            if member.last_heartbeat < before
        ]
