"""Removing queues of a topic: stop writes, wait until consumers have read them, then delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, ngettext

from console.gateway.access import gateway

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from console.gateway.answers import QueueStatus, Topic, TopicConfig
    from console.lib.stored import BrokerQueue


@dataclass(frozen=True, slots=True)
class Draining:
    """Queues that are closed for writing but still read; `unread` is by group.

    `queue_nums` is the topic's number of queues after their removal.
    """

    queue_nums: int
    queues: tuple[QueueStatus, ...]
    unread: Mapping[str, int]

    @property
    def stored(self) -> int:
        return sum(row.message_count for row in self.queues)

    @property
    def waiting(self) -> list[tuple[str, int]]:
        """The groups that haven't read the queues to the end."""
        return sorted((group, count) for group, count in self.unread.items() if count)

    @property
    def is_read(self) -> bool:
        return not self.waiting and (bool(self.unread) or not self.stored)


def unread_in(topic: str, going: Mapping[BrokerQueue, QueueStatus]) -> dict[str, int]:
    """Return each group's number of unread messages in the given queues.

    For a queue without a committed offset, this is the number of retained messages.
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
    """Return the queues that are being removed, or None if all are writable."""
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


def objection(befores: Mapping[str, TopicConfig], after: TopicConfig) -> str | None:
    """Return why queues can't be removed: the messages that would become unreachable."""
    brokers = {
        broker
        for broker, before in befores.items()
        if after.read_queue_nums < before.read_queue_nums
    }
    if not brokers:
        return None
    write_queue_nums = max(befores[broker].write_queue_nums for broker in brokers)
    if after.read_queue_nums < write_queue_nums:
        return _(
            "Producers use %(writes)d queues until they learn about the change, and messages "
            "sent to queues from %(first)d on would never be read. Reduce the write queues "
            "first, then the read queues once the last queues are empty."
        ) % {"writes": write_queue_nums, "first": after.read_queue_nums}
    topic = after.topic
    going = {
        row.queue: row
        for row in gateway().topics.status(topic)
        if row.broker_name in brokers and row.queue_id >= after.read_queue_nums
    }
    unread = unread_in(topic, going)
    waiting = {group: count for group, count in unread.items() if count}
    if waiting:
        each = ", ".join(f"{group} ({count})" for group, count in sorted(waiting.items()))
        return _(
            "Queues from %(first)d on hold messages that these groups haven't read and would "
            "lose: %(groups)s. Wait until they've read them."
        ) % {"first": after.read_queue_nums, "groups": each}
    stored = sum(row.message_count for row in going.values())
    if stored and not unread:
        return ngettext(
            "Queues from %(first)d on hold %(count)d message that no group has read and that "
            "would become unreadable.",
            "Queues from %(first)d on hold %(count)d messages that no group has read and that "
            "would become unreadable.",
            stored,
        ) % {"first": after.read_queue_nums, "count": stored}
    return None
