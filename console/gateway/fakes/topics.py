"""Fake TopicGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.answers import Topic, TopicQueue, Traffic
from console.gateway.fakes.broker import BROKER_NAME, FakeQueue
from console.gateway.kinds import topic_kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.gateway.answers import QueueStatus, TopicConfig
    from console.gateway.fakes.broker import FakeBroker
    from console.lib.stored import BrokerQueue


class FakeTopics:
    """The topics of one broker; all stored messages count as received within the last minute."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def all(self) -> dict[str, Topic]:
        self._broker.check()
        return {
            name: Topic(name, topic_kind(name), {BROKER_NAME: config})
            for name, config in sorted(self._broker.topic_configs.items())
        }

    def status(self, topic: str) -> tuple[QueueStatus, ...]:
        self._broker.check()
        return self._broker.status_of(topic)

    def oldest(self, queues: Iterable[QueueStatus], topic: str) -> dict[BrokerQueue, int | None]:
        self._broker.check()
        kept = self._broker.queues
        return {
            row.queue: next(iter(kept[TopicQueue(topic, row.queue_id)].store_timestamps), None)
            for row in queues
        }

    def traffic(self, topics: Iterable[str]) -> dict[str, Traffic]:
        self._broker.check()
        sums = {name: sum(row.message_count for row in self.status(name)) for name in topics}
        return {name: Traffic(count / 60, count, count) for name, count in sums.items()}

    def consumers(self, topic: str) -> tuple[str, ...]:
        self._broker.check()
        with_offsets = {group for group, name, _queue in self._broker.offsets if name == topic}
        subscribed = {
            group
            for group, subscriptions in self._broker.subscriptions.items()
            if any(each.topic == topic for each in subscriptions)
        }
        return tuple(sorted(with_offsets | subscribed))

    def save(self, config: TopicConfig, broker_names: Iterable[str]) -> None:
        self._broker.check()
        self._broker.topic_configs[config.topic] = config
        for queue_id in range(config.write_queue_nums):
            self._broker.queues.setdefault(TopicQueue(config.topic, queue_id), FakeQueue())

    def delete(self, topic: str) -> None:
        self._broker.check()
        queues = self._broker.queues_of(topic)
        del self._broker.topic_configs[topic]
        for queue_id in queues:
            del self._broker.queues[TopicQueue(topic, queue_id)]
