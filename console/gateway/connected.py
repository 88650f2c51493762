"""Connected clients as brokers know them: producers by group, and one client's connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.message.versions import version_text

if TYPE_CHECKING:
    from collections.abc import Iterable

INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""Each Java client is in it, to send back what its consumers could not consume."""


@dataclass(frozen=True, slots=True)
class Producer:
    """A client in a producer group, on the brokers that it is connected to."""

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
    """A connection of a client at a broker, with the groups that it is in there."""

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
    """Return the groups in which a client sends for itself."""
    found = {name for each in connections for name in each.producer_groups}
    return sorted(found - {INNER_PRODUCER_GROUP})


def every_group(connections: Iterable[Connected]) -> list[str]:
    """Return all groups that a client would leave."""
    return sorted({name for each in connections for name in each.groups})
