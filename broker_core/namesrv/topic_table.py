"""The brokers that have a topic, and their queues of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker_core.namesrv.shared_queues import SharedQueues

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping

    from broker_core.message.topic_config import TopicConfig
    from broker_core.protocol.bodies.route import QueueData

    Queues = dict[str, QueueData]
    """Queues by broker. Topics share these tables, so never change a table in place."""

TOPICS_PER_STEP = 1_000


class TopicTable:
    """All topics. Event loop only.

    Invariant: a topic is in `queues` if and only if a broker has queues of it.

    Attributes:
        queues: by topic; for reading.
        route_nums: number of topics, each counted once for every broker that has it.
    """

    def __init__(self) -> None:
        self._queues: dict[str, Queues] = {}
        self.queues: Mapping[str, Queues] = self._queues
        self.route_nums = 0
        self._shared = SharedQueues()
        # Removing a broker then costs time for its own topics, not for the whole table.
        self._of_broker: dict[str, dict[str, None]] = {}

    def of_broker(self, broker_name: str) -> Collection[str]:
        """Return a live view of a broker's topics; copy it before changing the table."""
        return self._of_broker.get(broker_name, {}).keys()

    def of_any(self, broker_names: Mapping[str, None]) -> list[str]:
        """Return the topics that at least one of the brokers has."""
        names = broker_names.keys()
        return [topic for topic, queues in self._queues.items() if not names.isdisjoint(queues)]

    def where(self, accepts: Callable[[int], bool]) -> list[str]:
        """Return the topics whose flags, as their first broker registered them, are accepted."""
        return [
            topic
            for topic, queues in self._queues.items()
            if accepts(next(iter(queues.values())).topic_sys_flag)
        ]

    def put(self, broker_name: str, topic: str, config: TopicConfig) -> None:
        """Put a broker's queues of a topic."""
        alone = self._shared.of(broker_name, config)
        before = self._queues.get(topic, {})
        is_known = broker_name in before
        # A topic of only one broker uses the shared table.
        self._queues[topic] = alone if len(before) == is_known else {**before, **alone}
        if is_known:
            return
        self.route_nums += 1
        # Only for new topics: each registration decodes new strings, and the first ones are kept.
        self._of_broker.setdefault(broker_name, {})[topic] = None

    def count_new(self, broker_name: str, topics: Iterable[str]) -> int:
        """Return the number of topics that are new for the broker."""
        return sum(broker_name not in self._queues.get(topic, ()) for topic in topics)

    def delete(self, topic: str) -> None:
        """Remove a topic from all brokers."""
        for broker_name in self._queues.pop(topic, ()):
            self._forget(broker_name, topic)

    def delete_of_broker(self, topic: str, broker_name: str) -> bool:
        """Remove a broker's queues of a topic; return whether it had any."""
        queues = self._queues.get(topic)
        if queues is None or broker_name not in queues:
            return False
        if len(queues) == 1:
            del self._queues[topic]
        else:
            self._queues[topic] = {
                name: data for name, data in queues.items() if name != broker_name
            }
        self._forget(broker_name, topic)
        return True

    def change_perm(
        self, broker_name: str, change: Callable[[int], int]
    ) -> Generator[None, None, int]:
        """Change the permission of all topics of a broker in steps; return how many changed."""
        # All topics that share a table get one new table, not thousands. `made` keeps the old
        # table alive, because its id is the key.
        made: dict[int, tuple[Queues, Queues]] = {}
        changed = 0
        for number, topic in enumerate(list(self.of_broker(broker_name))):
            if number % TOPICS_PER_STEP == TOPICS_PER_STEP - 1:
                yield
            queues = self._queues.get(topic, {})
            if broker_name not in queues:
                # The topic was deleted between two steps.
                continue
            known = made.get(id(queues))
            if known is None:
                data = queues[broker_name]
                other = msgspec.structs.replace(data, perm=change(data.perm))
                known = made[id(queues)] = queues, {**queues, broker_name: other}
            self._queues[topic] = known[1]
            changed += 1
        return changed

    def _forget(self, broker_name: str, topic: str) -> None:
        self.route_nums -= 1
        topics = self._of_broker[broker_name]
        del topics[topic]
        if not topics:
            del self._of_broker[broker_name]
