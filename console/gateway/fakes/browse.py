"""BrowseGateway without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.message import names
from console.gateway.answers import BrokerQueue
from console.gateway.fakes.broker import BROKER_NAME
from console.gateway.stored import Found, StoredMessage

if TYPE_CHECKING:
    from console.gateway.fakes.broker import FakeBroker


class FakeBrowse:
    """Messages made up from the store times that the broker keeps."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def between(
        self, topic: str, low_ms: int, high_ms: int, queue: BrokerQueue | None, count: int
    ) -> Found:
        self._broker.check()
        found = [
            self._message(topic, queue_id, kept.min_offset + index, stored)
            for queue_id, kept in self._broker.queues_of(topic).items()
            for index, stored in enumerate(kept.store_timestamps)
            if low_ms <= stored < high_ms and queue in (None, BrokerQueue(BROKER_NAME, queue_id))
        ]
        found.sort(key=lambda each: (each.store_ms, each.queue, each.queue_offset))
        return Found(tuple(found[:count]), len(found) > count)

    def at(self, topic: str, queue: BrokerQueue, offset: int) -> StoredMessage | None:
        self._broker.check()
        kept = self._broker.queues_of(topic).get(queue.queue_id)
        if kept is None or queue.broker_name != BROKER_NAME:
            return None
        index = offset - kept.min_offset
        if not 0 <= index < len(kept.store_timestamps):
            return None
        return self._message(topic, queue.queue_id, offset, kept.store_timestamps[index])

    def _message(self, topic: str, queue_id: int, offset: int, stored: int) -> StoredMessage:
        body = b'{"order": %d}' % offset
        return StoredMessage(
            topic=topic,
            broker_name=BROKER_NAME,
            queue_id=queue_id,
            queue_offset=offset,
            commit_log_offset=offset * 256,
            offset_msg_id=f"{offset:032X}",
            store_ms=stored,
            born_ms=stored,
            born_host="127.0.0.1:50001",
            reconsume_times=0,
            properties={names.PROPERTY_KEYS: f"order-{offset}", names.PROPERTY_TAGS: "paid"},
            body=body,
            body_bytes=len(body),
        )
