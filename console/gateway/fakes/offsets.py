"""Fake OffsetGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.answers import LATEST_TIMESTAMP
from console.gateway.errors import CONSUMER_NOT_ONLINE, SYSTEM_ERROR, RequestFailedError
from console.gateway.fakes.broker import ADDRESS, BROKER_NAME
from console.lib.stored import BrokerQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.fakes.broker import FakeBroker


class FakeOffsets:
    """The consumer offsets of one broker."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def at(self, topic: str, timestamp_ms: int) -> dict[BrokerQueue, int]:
        self._broker.check()
        return {
            BrokerQueue(BROKER_NAME, queue_id): queue.min_offset
            + sum(1 for stored in queue.store_timestamps if stored < timestamp_ms)
            for queue_id, queue in self._broker.queues_of(topic).items()
        }

    def commit(self, group: str, topic: str, offsets: Mapping[BrokerQueue, int]) -> None:
        self._broker.check()
        queues = self._broker.queues_of(topic)
        refused = ""
        for queue, offset in offsets.items():
            found = queues.get(queue.queue_id)
            end = 0 if found is None else found.max_offset
            if offset > end:
                refused = f"the offset is not stored: offset {offset} is beyond the end {end}"
            else:
                self._broker.offsets[group, topic, queue.queue_id] = offset
        if refused:
            raise RequestFailedError(ADDRESS, SYSTEM_ERROR, refused)

    def move_online(self, group: str, topic: str, offsets: Mapping[BrokerQueue, int]) -> None:
        self._broker.check()
        self._require_members(group, topic)
        ends = {row.queue: row for row in self._broker.status_of(topic)}
        for queue, offset in offsets.items():
            if queue not in ends or not (
                ends[queue].min_offset <= offset <= ends[queue].max_offset + 1
            ):
                raise RequestFailedError(ADDRESS, SYSTEM_ERROR, f"no {offset} in {queue}")
        self._broker.moves.append((group, topic, dict(offsets)))
        self.commit(
            group,
            topic,
            {queue: min(offset, ends[queue].max_offset) for queue, offset in offsets.items()},
        )

    def reset_online(self, group: str, topic: str, timestamp_ms: int) -> dict[BrokerQueue, int]:
        self._broker.check()
        self._require_members(group, topic)
        self._broker.resets.append((group, topic, timestamp_ms))
        if timestamp_ms == LATEST_TIMESTAMP:
            moved = {row.queue: row.max_offset for row in self._broker.status_of(topic)}
        else:
            moved = self.at(topic, timestamp_ms)
        self.commit(group, topic, moved)
        return moved

    def _require_members(self, group: str, topic: str) -> None:
        if not self._broker.members.get(group):
            raise RequestFailedError(
                ADDRESS, CONSUMER_NOT_ONLINE, f"Consumer not online: {group} {topic}"
            )
