"""Clients connected to brokers: producers by group, and the connections of one client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.message.versions import version_text

if TYPE_CHECKING:
    from collections.abc import Iterable

INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""Every Java client is in this group, to send back messages that its consumers failed to consume.
"""


@dataclass(frozen=True, slots=True)
class Producer:
    """A client in a producer group, with the brokers it is connected to."""

    group: str
    client_id: str
    client_addr: str
    language: str
    version: int
    last_heartbeat_ms: int
    broker_names: tuple[str, ...]

    @property
    def version_name(self) -> str:
        return version_text(self.version)


@dataclass(frozen=True, slots=True)
class Connected:
    """A client's connection to a broker, with its groups there."""

    broker_name: str
    client_addr: str
    consumer_groups: tuple[str, ...]
    producer_groups: tuple[str, ...]

    @property
    def groups(self) -> frozenset[str]:
        return frozenset({*self.consumer_groups, *self.producer_groups})


def consumer_groups_of(connections: Iterable[Connected]) -> list[str]:
    return sorted({name for each in connections for name in each.consumer_groups})


def producer_groups_of(connections: Iterable[Connected]) -> list[str]:
    """Return the groups in which a client itself sends messages."""
    found = {name for each in connections for name in each.producer_groups}
    return sorted(found - {INNER_PRODUCER_GROUP})


def every_group(connections: Iterable[Connected]) -> list[str]:
    """Return all groups that a client leaves when it is disconnected."""
    return sorted({name for each in connections for name in each.groups})
