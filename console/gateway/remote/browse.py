"""BrowseGateway over the remoting protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker_core.message.ids import parse_offset_msg_id
from console.gateway.errors import UnknownStoreError
from console.gateway.remote.brokers import each
from console.gateway.remote.topics import status
from console.gateway.requests import browse, offsets
from console.gateway.requests.records import BODY_SHOWN_MAX, BODY_WHOLE_MAX
from console.gateway.stored import Found, KeyFound

if TYPE_CHECKING:
    from broker_core.message.ids import OffsetMsgId
    from console.gateway.answers import BrokerQueue
    from console.gateway.remote.brokers import RemoteBrokers
    from console.gateway.stored import StoredMessage

AT_ONCE_MAX = 32
"""Brokers hand out no more in an answer, unless they are set to."""


@dataclass(slots=True)
class Cursor:
    """How far a queue is read: what it had, and whether it has no more of the time asked for."""

    queue: BrokerQueue
    address: str
    next_offset: int
    end_offset: int
    reached_ms: int
    messages: list[StoredMessage] = field(default_factory=list)
    is_done: bool = False


class RemoteBrowse:
    """Any thread; blocks."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def between(
        self, topic: str, low_ms: int, high_ms: int, queue: BrokerQueue | None, count: int
    ) -> Found:
        return self._brokers.run(self._between(topic, low_ms, high_ms, queue, count))

    def at(
        self, topic: str, queue: BrokerQueue, offset: int, *, is_whole: bool = False
    ) -> StoredMessage | None:
        return self._brokers.run(self._at(topic, queue, offset, is_whole=is_whole))

    def by_id(self, offset_msg_id: OffsetMsgId) -> StoredMessage | None:
        return self._brokers.run(self._by_id(offset_msg_id))

    def by_key(self, topic: str, key: str, low_ms: int, high_ms: int) -> KeyFound:
        return self._brokers.run(self._by_key(topic, key, low_ms, high_ms))

    async def _between(
        self, topic: str, low_ms: int, high_ms: int, queue: BrokerQueue | None, count: int
    ) -> Found:
        cursors = await self._cursors(topic, low_ms, queue)

        async def go_on(cursor: Cursor) -> None:
            await self._go_on(topic, cursor, high_ms)

        while True:
            # What no queue can come before any more stands; the rest waits for the slowest.
            open_ms = min((each.reached_ms for each in cursors if not each.is_done), default=None)
            ready = sorted(
                (
                    message
                    for cursor in cursors
                    for message in cursor.messages
                    if open_ms is None or message.store_ms < open_ms
                ),
                key=lambda message: (message.store_ms, message.queue, message.queue_offset),
            )
            if open_ms is None or len(ready) > count:
                return Found(tuple(ready[:count]), len(ready) > count)
            await each(
                [c for c in cursors if not c.is_done and c.reached_ms == open_ms],
                go_on,
            )

    async def _cursors(self, topic: str, low_ms: int, queue: BrokerQueue | None) -> list[Cursor]:
        rows = [
            row for row in await status(self._brokers, topic) if queue is None or row.queue == queue
        ]
        address = {node.broker_name: node.address for node in await self._brokers.masters()}
        found = await each(
            rows,
            lambda row: offsets.search_offset(
                self._brokers.ask, address[row.broker_name], topic, row.queue_id, low_ms
            ),
        )
        return [
            Cursor(
                row.queue,
                address[row.broker_name],
                max(offset, row.min_offset),
                row.max_offset,
                low_ms,
                is_done=max(offset, row.min_offset) >= row.max_offset,
            )
            for row, offset in found
        ]

    async def _go_on(self, topic: str, cursor: Cursor, high_ms: int) -> None:
        broker_name, queue_id = cursor.queue.broker_name, cursor.queue.queue_id
        came = await browse.read(
            self._brokers.ask,
            cursor.address,
            broker_name,
            topic,
            queue_id,
            cursor.next_offset,
            AT_ONCE_MAX,
        )
        low_ms = cursor.reached_ms
        within = [each for each in came.messages if each.store_ms < high_ms]
        # A search by time may begin before it.
        cursor.messages += [each for each in within if each.store_ms >= low_ms]
        cursor.is_done = (
            len(within) < len(came.messages)
            or came.next_offset <= cursor.next_offset
            or came.next_offset >= cursor.end_offset
        )
        cursor.next_offset = came.next_offset
        if within:
            cursor.reached_ms = max(low_ms, within[-1].store_ms)

    async def _by_id(self, offset_msg_id: OffsetMsgId) -> StoredMessage | None:
        masters = await self._brokers.masters()
        own = [node for node in masters if node.address == offset_msg_id.host]
        # A slave that became master has the records of the one before it, with that one's address.
        looked = await each(
            own or masters,
            lambda node: browse.view(
                self._brokers.ask, node.address, node.broker_name, offset_msg_id.commit_log_offset
            ),
        )
        for _node, found in looked:
            if found is not None and parse_offset_msg_id(found.offset_msg_id) == offset_msg_id:
                return found
        if not own:
            raise UnknownStoreError(offset_msg_id.host)
        return None

    async def _by_key(self, topic: str, key: str, low_ms: int, high_ms: int) -> KeyFound:
        answers = await self._brokers.on_masters(
            lambda node: browse.query(
                self._brokers.ask, node.address, node.broker_name, topic, key, low_ms, high_ms
            )
        )
        messages = sorted(
            (message for _node, found in answers for message in found.messages),
            key=lambda message: (message.store_ms, message.queue, message.queue_offset),
            reverse=True,
        )
        has_more = any(found.is_full for _node, found in answers)
        if has_more:
            # Older than what an unfinished broker has named, others are not whole either.
            whole_from = max(
                min((each.store_ms for each in found.messages), default=low_ms)
                for _node, found in answers
                if found.is_full
            )
            messages = [each for each in messages if each.store_ms >= whole_from]
        return KeyFound(
            tuple(messages),
            has_more,
            tuple(node.broker_name for node, found in answers if not found.has_index),
        )

    async def _at(
        self, topic: str, queue: BrokerQueue, offset: int, *, is_whole: bool
    ) -> StoredMessage | None:
        address = {node.broker_name: node.address for node in await self._brokers.masters()}
        if queue.broker_name not in address:
            return None
        came = await browse.read(
            self._brokers.ask,
            address[queue.broker_name],
            queue.broker_name,
            topic,
            queue.queue_id,
            offset,
            1,
            BODY_WHOLE_MAX if is_whole else BODY_SHOWN_MAX,
        )
        return next((each for each in came.messages if each.queue_offset == offset), None)
