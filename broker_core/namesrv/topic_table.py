"""TopicTable: which brokers have a topic, with which queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker_core.namesrv.shared_queues import SharedQueues

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping

    from broker_core.message.topic_config import TopicConfig
    from broker_core.protocol.bodies.route import QueueData

    Queues = dict[str, QueueData]
    """By broker. Topics share such tables: nobody may change one in place."""

TOPICS_PER_STEP = 1_000


class TopicTable:
    """Event loop only.

    Invariant: a topic is in `queues` if and only if a broker has queues of it.

    Attributes:
        queues: by topic; for reading.
        route_nums: how many topics there are, each counted once for every broker that has it.
    """

    def __init__(self) -> None:
        self._queues: dict[str, Queues] = {}
        self.queues: Mapping[str, Queues] = self._queues
        self.route_nums = 0
        self._shared = SharedQueues()
        # So that a broker that goes costs what it had, not the whole table.
        self._of_broker: dict[str, dict[str, None]] = {}

    def of_broker(self, broker_name: str) -> Collection[str]:
        """Return the topics of a broker; not to be kept while the table changes."""
        return self._of_broker.get(broker_name, {}).keys()

    def of_any(self, broker_names: Mapping[str, None]) -> list[str]:
        """Return the topics that at least one of some brokers has."""
        names = broker_names.keys()
        return [topic for topic, queues in self._queues.items() if not names.isdisjoint(queues)]

    def where(self, accepts: Callable[[int], bool]) -> list[str]:
        """Return the topics by the flags that their first broker registered."""
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
        # Where no other broker has it, the table is shared.
        self._queues[topic] = alone if len(before) == is_known else {**before, **alone}
        if is_known:
            return
        self.route_nums += 1
        # The name that is known already: each registration brings a text of its own.
        self._of_broker.setdefault(broker_name, {})[topic] = None

    def count_new(self, broker_name: str, topics: Iterable[str]) -> int:
        """Return how many of the topics the broker does not have yet."""
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
        """Change the permission of all topics of a broker in steps; return how many they are."""
        # Of all topics with the same queues the change makes one table, not thousands. The table
        # is kept with it, or another one might get its id.
        made: dict[int, tuple[Queues, Queues]] = {}
        changed = 0
        for number, topic in enumerate(list(self.of_broker(broker_name))):
            if number % TOPICS_PER_STEP == TOPICS_PER_STEP - 1:
                yield
            queues = self._queues.get(topic, {})
            if broker_name not in queues:
                # It went between two steps.
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
