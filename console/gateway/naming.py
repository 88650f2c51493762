"""Name server data: registered brokers, topic routes and the key-value table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.answers import BrokerNode

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace that brokers and tools use for ordered topics and their queues."""


@dataclass(frozen=True, slots=True)
class RouteQueues:
    """A topic's queues on one broker, as in the route that clients receive."""

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
    """One name server's answers. `route` is None if the topic is unknown or wasn't requested."""

    nodes: tuple[BrokerNode, ...]
    entries: Mapping[str, str]
    route: tuple[RouteQueues, ...] | None = None
