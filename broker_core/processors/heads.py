"""Looks up messages in the log that the recorder knows only by offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import CorruptRecordError
from broker_core.formats.record import decode
from broker_core.message.ids import offset_msg_id
from broker_core.message.names import PROPERTY_KEYS, PROPERTY_ORIGIN_MESSAGE_ID, PROPERTY_TAGS

if TYPE_CHECKING:
    from broker_core.message.message import MessageExt
    from broker_core.store.message_store import MessageStore
    from broker_core.trace.event import TraceEvent


class Heads:
    """Looks up messages that are likely in memory. Event loop only."""

    def __init__(self, store: MessageStore, store_host: bytes) -> None:
        self._store = store
        self._store_host = store_host

    def added(self, event: TraceEvent) -> TraceEvent:
        """Return a multi-message event with the head of the message with the worst latency."""
        if event.worst_offset is None or event.message_id is not None or event.queue_id is None:
            return event
        message = self._message_at(event.topic, event.queue_id, int(event.worst_offset))
        if message is None:
            return event
        msg_id = offset_msg_id(self._store_host, message.commit_log_offset)
        get = message.properties.get
        return msgspec.structs.replace(
            event,
            message_id=message.uniq_key or get(PROPERTY_ORIGIN_MESSAGE_ID) or msg_id,
            uniq_key=message.uniq_key,
            tags=get(PROPERTY_TAGS),
            keys=get(PROPERTY_KEYS),
            commit_log_offset=str(message.commit_log_offset),
            offset_msg_id=msg_id,
            body_size=len(message.body),
        )

    def _message_at(self, topic: str, queue_id: int, queue_offset: int) -> MessageExt | None:
        units = self._store.units(topic, queue_id, queue_offset, 1)
        found = self._store.glance(units[0][0]) if units else None
        try:
            return None if found is None else decode(found[0])
        except CorruptRecordError:
            return None
