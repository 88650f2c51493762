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

    def register(self, connection: ClientConnection, group: str, member: ProducerMember) -> None:
        self.groups.setdefault(group, {})[connection] = member

    def unregister(self, connection: ClientConnection, group: str) -> None:
        members = self.groups.get(group)
        if members is not None and members.pop(connection, None) is not None and not members:
            del self.groups[group]

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
