"""Fake BrowseGateway."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker_core.message import ids, names
from console.gateway.answers import TopicQueue
from console.gateway.errors import UnknownStoreError
from console.gateway.fakes.broker import ADDRESS, BROKER_NAME, Content
from console.gateway.requests.records import BODY_SHOWN_MAX
from console.lib.stored import BrokerQueue, KeyFound, KeyFoundIn, NewestMessages, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker_core.message.ids import OffsetMsgId
    from console.gateway.fakes.broker import FakeBroker
    from console.lib.stored import MessageRange, Place

KEYED_MAX = 64


class FakeBrowse:
    """Returns stored messages; contents that a test didn't set are derived from the store times."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def newest(self, wanted: MessageRange, before: Place | None, count: int) -> NewestMessages:
        self._broker.check()
        found = [
            self._message(wanted.topic, queue_id, kept.min_offset + index, stored)
            for queue_id, kept in self._broker.queues_of(wanted.topic).items()
            for index, stored in enumerate(kept.store_timestamps)
            if wanted.low_ms <= stored < wanted.high_ms
            and wanted.queue in (None, BrokerQueue(BROKER_NAME, queue_id))
        ]
        if before is not None:
            found = [each for each in found if each.place < before]
        found.sort(key=lambda each: each.place, reverse=True)
        return NewestMessages(tuple(found[:count]), max(0, len(found) - count), len(found))

    def by_id(self, offset_msg_id: OffsetMsgId) -> StoredMessage | None:
        self._broker.check()
        if offset_msg_id.host != ADDRESS:
            raise UnknownStoreError(offset_msg_id.host)
        at = offset_msg_id.commit_log_offset
        return next((each for each in self._all() if each.commit_log_offset == at), None)

    def by_key(self, topic: str, key: str, low_ms: int, high_ms: int) -> KeyFound:
        self._broker.check()
        found = [
            each
            for each in self._all()
            if each.topic == topic and each.has_key(key) and low_ms <= each.store_ms < high_ms
        ]
        found.sort(key=lambda each: (each.store_ms, each.queue, each.queue_offset), reverse=True)
        return KeyFound(tuple(found[:KEYED_MAX]), len(found) > KEYED_MAX)

    def by_key_in(
        self, topics: Sequence[str], key: str, low_ms: int, high_ms: int, seconds: float
    ) -> KeyFoundIn:
        self._broker.check()
        topics = topics if seconds > 0 else ()
        self._broker.searched.append(tuple(topics))
        found = [self.by_key(topic, key, low_ms, high_ms) for topic in topics]
        messages = [message for each in found for message in each.messages]
        messages.sort(key=lambda each: each.place, reverse=True)
        has_more = any(each.has_more for each in found)
        return KeyFoundIn(tuple(messages), has_more, searched=len(topics))

    def at(
        self, topic: str, queue: BrokerQueue, offset: int, *, is_whole: bool = False
    ) -> StoredMessage | None:
        self._broker.check()
        kept = self._broker.queues_of(topic).get(queue.queue_id)
        if kept is None or queue.broker_name != BROKER_NAME:
            return None
        index = offset - kept.min_offset
        if not 0 <= index < len(kept.store_timestamps):
            return None
        found = self._message(topic, queue.queue_id, offset, kept.store_timestamps[index])
        content = self._broker.contents.get((topic, queue.queue_id, offset))
        if is_whole and content is not None:
            return replace(found, body=content.body, is_cut=False)
        return found

    def _all(self) -> Iterator[StoredMessage]:
        for place, kept in self._broker.queues.items():
            for index, stored in enumerate(kept.store_timestamps):
                yield self._message(place.topic, place.queue_id, kept.min_offset + index, stored)

    def _message(self, topic: str, queue_id: int, offset: int, stored: int) -> StoredMessage:
        made_up = Content(
            b'{"order": %d}' % offset,
            {names.PROPERTY_KEYS: f"order-{offset}", names.PROPERTY_TAGS: "paid"},
        )
        content = self._broker.contents.get((topic, queue_id, offset), made_up)
        body, properties, other_properties = content
        # Gives each message a unique log offset that stays the same between calls.
        place = sorted(self._broker.queues).index(TopicQueue(topic, queue_id))
        at = (place << 40) + offset * 256
        return StoredMessage(
            topic=topic,
            broker_name=BROKER_NAME,
            queue_id=queue_id,
            queue_offset=offset,
            commit_log_offset=at,
            offset_msg_id=ids.offset_msg_id(ids.parse_host(ADDRESS), at),
            store_ms=stored,
            born_ms=stored,
            born_host="127.0.0.1:50001",
            reconsume_times=int(properties.get(names.PROPERTY_RECONSUME_TIME, 0)),
            properties=properties,
            body=body[:BODY_SHOWN_MAX],
            body_bytes=len(body),
            is_cut=len(body) > BODY_SHOWN_MAX,
            store_host=ADDRESS,
            store_size=len(body) + 200,
            other_properties=other_properties,
        )
