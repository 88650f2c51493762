"""BrokerGateway: what pages may ask brokers, without a word about the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from console.gateway.answers import (
        Cluster,
        ConsumeProgress,
        Group,
        GroupConfig,
        GroupConnections,
        QueueStatus,
        RuntimeInfo,
        Topic,
        TopicConfig,
        Traffic,
    )
    from console.gateway.errors import GatewayError

QueueKey = tuple[str, int]  # broker_name, queue_id


class BrokerGateway(Protocol):
    """Blocking calls for views, any thread; each ends within the gateway's time limit.

    Every call raises `GatewayError`. What spans brokers raises when any of them fails, since a sum
    over some of them would be a wrong number; `runtime` alone reports brokers one by one.
    """

    def cluster(self) -> Cluster: ...

    def runtime(self) -> dict[str, RuntimeInfo | GatewayError]:
        """Return each broker's figures, or why there are none, by address."""

    def topics(self) -> dict[str, Topic]: ...

    def topic_status(self, topic: str) -> tuple[QueueStatus, ...]: ...

    def topic_traffic(self, topics: Iterable[str]) -> dict[str, Traffic]:
        """Return what was put since the broker started; topics without traffic are zero."""

    def topic_groups(self, topic: str) -> tuple[str, ...]: ...

    def save_topic(self, config: TopicConfig, broker_names: Iterable[str]) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def groups(self) -> dict[str, Group]: ...

    def connections(self, group: str) -> GroupConnections: ...

    def progress(self, group: str) -> ConsumeProgress: ...

    def progresses(self, groups: Iterable[str]) -> dict[str, ConsumeProgress]: ...

    def online_groups(self, groups: Iterable[str]) -> dict[str, GroupConnections]: ...

    def save_group(self, config: GroupConfig, broker_names: Iterable[str]) -> None: ...

    def delete_group(self, group: str, *, remove_offset: bool) -> None: ...

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[QueueKey, int]:
        """Return the first offset at or after a time in each queue of a topic."""

    def commit_offsets(self, group: str, topic: str, offsets: Mapping[QueueKey, int]) -> None:
        """Store consumer offsets; for a group without members, which would overwrite them."""

    def reset_online(self, group: str, topic: str, timestamp_ms: int) -> dict[QueueKey, int]:
        """Have a group's members go to a time (-1: the end); returns where they were sent."""
