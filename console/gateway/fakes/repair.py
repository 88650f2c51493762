"""Fake RepairGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.answers import MessageQueue, TopicQueue
from console.gateway.copies import Copies, MessageCopy
from console.gateway.errors import SYSTEM_ERROR, RequestFailedError
from console.gateway.fakes.broker import ADDRESS, BROKER_NAME
from console.gateway.fakes.browse import FakeBrowse
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.fakes.broker import FakeBroker
    from console.lib.stored import BrokerQueue


class FakeRepair:
    """Returns stored messages and adds resent ones to `broker.resent`."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def copies(self, topic: str, queue: BrokerQueue, offset: int, count: int) -> Copies:
        kept = self._broker.queues_of(topic)[queue.queue_id]
        first = max(offset, kept.min_offset)
        found = []
        for each in range(first, min(first + count, kept.max_offset)):
            stored = FakeBrowse(self._broker).at(topic, queue, each)
            assert stored is not None
            found.append(MessageCopy(stored, 0, 0, stored.body or b""))
        return Copies(tuple(found), first + len(found))

    def writable(self, topic: str) -> tuple[MessageQueue, ...]:
        self._broker.check()
        config = self._broker.topic_configs.get(topic)
        if config is None or not config.is_writable:
            return ()
        return tuple(
            MessageQueue(topic, BROKER_NAME, each) for each in range(config.write_queue_nums)
        )

    def resend(self, copy: MessageCopy, queue: MessageQueue, properties: Mapping[str, str]) -> int:
        self._broker.check()
        if self._broker.resend_fails is not None:
            raise self._broker.resend_fails
        kept = self._broker.queues.get(TopicQueue(queue.topic, queue.queue_id))
        if kept is None or queue.broker_name != BROKER_NAME:
            raise RequestFailedError(ADDRESS, SYSTEM_ERROR, "request queueId is illegal")
        offset = self._broker.put_message(
            queue.topic, queue.queue_id, copy.body, now_ms(), **properties
        )
        self._broker.resent.append((queue.topic, copy.body, dict(properties)))
        return offset
