"""CommitCheck: checks whether a client can have read up to the consumer offset that it commits.

Differs: RocketMQ stores any offset of any topic. An offset past the end of a queue makes the group
skip every message up to it, and makes the group's lag negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broker_core.clients.consumers import Consumers
    from broker_core.ha.role import Role
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.metadata.topics import Topics
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore

SLAVE_BEHIND_MAX = 1 << 40
"""How far past a slave's end an offset may be; the group reads the master, which is ahead."""


class Refusal(NamedTuple):
    """The reason for refusing an offset."""

    why: str
    is_topic_missing: bool = False


class CommitCheck:
    """Event loop only."""

    def __init__(
        self,
        topics: Topics,
        offsets: ConsumerOffsets,
        store: MessageStore,
        role: Role,
        consumers: Consumers,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._former = offsets.former
        self._queues = store.files.queues
        self._role = role
        self._consumers = consumers

    def refusal(
        self, group: str, topic: str, queue_id: int, offset: int, connection: Connection
    ) -> Refusal | None:
        """Return why a client's offset can't be stored, or None if it can.

        The last message put is the exact limit: no client can have read further. The
        native turn makes the same check for pulls, up to the last readable message.
        """
        queue = self._queues.find(topic, queue_id)
        end = 0 if queue is None else queue.next_offset
        if topic not in self._topics.table:
            return Refusal(f"Topic {topic} not exist!", is_topic_missing=True)
        if offset > end and (not self._role.is_slave or offset - end > SLAVE_BEHIND_MAX):
            return Refusal(
                f"offset {offset} is beyond the end {end} of queue {queue_id} in {topic}"
            )
        if self.is_former(group, topic, queue_id, offset, connection):
            return Refusal(
                f"offset {offset} comes from a deleted topic {topic}; the group has to ask for "
                f"its offset in queue {queue_id} first"
            )
        return None

    def is_former(
        self, group: str, topic: str, queue_id: int, offset: int, connection: Connection
    ) -> bool:
        """Return whether an offset belongs to a deleted topic with the same name."""
        if not self._former.count:
            return False
        queue = self._queues.find(topic, queue_id)
        if offset <= (0 if queue is None else queue.min_offset):
            return False
        is_first = self._offsets.query(group, topic, queue_id) < 0
        if not is_first or not self._former.is_former(group, topic, queue_id):
            return False
        found = self._consumers.find(group)
        # Tools that set offsets aren't members of the group.
        return found is not None and connection in found.members
