"""Memberships: which groups each connection is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError

if TYPE_CHECKING:
    from broker_core.clients.client import ClientConnection
    from broker_core.config.limits import LimitsConfig

SYSTEM_ERROR = 1
"""ResponseCode.SYSTEM_ERROR, which this layer can't import."""


class Memberships:
    """An index by connection, so that a lost connection is cheap. Event loop only."""

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits
        self._groups: dict[ClientConnection, dict[str, None]] = {}
        self._count = 0

    def add(self, connection: ClientConnection, group: str) -> None:
        """Record that a connection is in a group.

        Raises:
            RequestRefusedError: the connection is new in the group, and there are too many already.
        """
        groups = self._groups.get(connection, {})
        if group in groups:
            return
        if len(groups) >= self._limits.client_group_nums_max:
            raise RequestRefusedError(
                SYSTEM_ERROR,
                f"the client is in {len(groups)} groups; the limit is "
                f"clientGroupNumsMax={self._limits.client_group_nums_max}",
            )
        if self._count >= self._limits.member_nums_max:
            raise RequestRefusedError(
                SYSTEM_ERROR,
                f"the groups have {self._count} members; the limit is "
                f"memberNumsMax={self._limits.member_nums_max}",
            )
        groups[group] = None
        self._groups[connection] = groups
        self._count += 1

    def remove(self, connection: ClientConnection, group: str) -> None:
        """Record that a connection has left a group that it was in."""
        groups = self._groups[connection]
        del groups[group]
        self._count -= 1
        if not groups:
            del self._groups[connection]

    def groups_of(self, connection: ClientConnection) -> list[str]:
        return list(self._groups.get(connection, ()))
