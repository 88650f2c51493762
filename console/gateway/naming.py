"""What name servers say: who is registered, where a topic is, and their key-value table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.answers import BrokerNode

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace that brokers and tools use: ordered topics with their queues."""


@dataclass(frozen=True, slots=True)
class RouteQueues:
    """A topic's queues at one broker, as a name server hands them to clients."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int

    @property
    def may_read(self) -> bool:
        return bool(self.perm & 4)

    @property
    def may_write(self) -> bool:
        return bool(self.perm & 2)


@dataclass(frozen=True, slots=True)
class NameServerView:
    """One name server's answers. `route` None: it does not know the topic, or none was asked."""

    nodes: tuple[BrokerNode, ...]
    entries: Mapping[str, str]
    route: tuple[RouteQueues, ...] | None = None
