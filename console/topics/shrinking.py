"""Queues that a topic is to lose: first nobody writes to them, then they are read, then they go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.gateway.access import gateway

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from console.gateway.answers import BrokerQueue, QueueStatus, Topic


@dataclass(frozen=True, slots=True)
class Draining:
    """Queues that take no messages any more and are still read; `unread` by group.

    `queue_nums` is how many the topic has when they are gone.
    """

    queue_nums: int
    queues: tuple[QueueStatus, ...]
    unread: Mapping[str, int]

    @property
    def stored(self) -> int:
        return sum(row.message_count for row in self.queues)

    @property
    def waiting(self) -> list[tuple[str, int]]:
        """The groups that have not read them to their end."""
        return sorted((group, count) for group, count in self.unread.items() if count)

    @property
    def is_read(self) -> bool:
        return not self.waiting and (bool(self.unread) or not self.stored)


def unread_in(topic: str, going: Mapping[BrokerQueue, QueueStatus]) -> dict[str, int]:
    """Return how many messages of some queues each group has not read.

    Where it never committed, these are all that the queue retains.
    """
    groups = gateway().topics.consumers(topic)
    progresses = gateway().groups.progress_of(groups) if groups else {}
    return {
        group: sum(
            going[row.queue].message_count if row.lag is None else row.lag
            for row in progress.queues
            if row.topic == topic and row.queue in going
        )
        for group, progress in progresses.items()
    }


def draining_of(topic: Topic, status: Sequence[QueueStatus]) -> Draining | None:
    """Return the queues that a topic is about to lose, None where all take messages."""
    shrinking = {
        name: config.write_queue_nums
        for name, config in topic.configs.items()
        if config.read_queue_nums > config.write_queue_nums
    }
    if not shrinking:
        return None
    going = {
        row.queue: row
        for row in status
        if row.broker_name in shrinking and row.queue_id >= shrinking[row.broker_name]
    }
    return Draining(max(shrinking.values()), tuple(going.values()), unread_in(topic.name, going))
