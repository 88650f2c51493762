"""Read messages of transactions from the store, by location or key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import CorruptRecordError
from broker_core.formats import record
from broker_core.formats.cq_unit import FILLER_SIZE
from broker_core.message.ids import parse_host
from broker_core.transaction.half import HALF_QUEUE_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_core.message.message import MessageExt
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutMessageResult

UNITS_READ = 1024
FOUND_MAX = 32
NEVER_DUE = 1 << 62


class StoredMessages:
    """Event loop only, except for `read` before the store is started."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def with_key(self, topic: str, key: str) -> list[MessageExt]:
        """Return the messages of a topic with a key, oldest first; empty for the empty key."""
        if not key:
            return []
        views = self._store.query_message(topic, key, FOUND_MAX, 0, NEVER_DUE)
        return [record.decode(view) for view in views]

    def at(self, commit_log_offset: int) -> MessageExt | None:
        """Return the message at an offset of the log, or None if there is no valid message."""
        view = self._store.look_message(commit_log_offset)
        if view is None:
            return None
        try:
            # The store has checked the checksum.
            head = record.examine(view, 0, len(view), None, check_crc=False)
            message = record.decode_examined(view, 0, head)
            parse_host(message.born_host)
        except (CorruptRecordError, ValueError):
            return None
        return message

    def readable_to(self, topic: str) -> int:
        """Return the end of a queue's readable messages."""
        return self._store.max_offset_in_queue(topic, HALF_QUEUE_ID)

    async def until_readable(self, topic: str, end: int, last: PutMessageResult | None) -> None:
        """Wait until a queue is readable to its end, at most as long as the last put's sender.

        With SYNC_FLUSH that is after a flush, on a SYNC_MASTER after replication.
        """
        if self.readable_to(topic) < end and last is not None:
            acknowledged = self._store.acknowledge.until_acknowledged(last)
            if acknowledged is not None:
                await acknowledged
        if self.readable_to(topic) < end:
            await self._store.flush()

    def read(
        self, topic: str, queue_offset: int, queue_id: int = HALF_QUEUE_ID
    ) -> Iterator[MessageExt]:
        """Yield a queue's readable messages, starting at an offset."""
        while units := self._store.units(topic, queue_id, queue_offset, UNITS_READ):
            queue_offset += len(units)
            for commit_log_offset, size, _ in units:
                message = None if size == FILLER_SIZE else self.at(commit_log_offset)
                if message is not None and message.topic == topic:
                    yield message
