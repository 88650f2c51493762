"""BrowseGateway over the remoting protocol."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker_core.message.ids import parse_offset_msg_id
from broker_core.message.names import HIDDEN_TOPICS
from console.gateway.errors import (
    GatewayError,
    NotFoundError,
    RequestFailedError,
    UnknownStoreError,
)
from console.gateway.remote.brokers import each
from console.gateway.remote.topics import status
from console.gateway.requests import browse, offsets
from console.gateway.requests.configuration import configuration
from console.gateway.requests.records import BODY_SHOWN_MAX, BODY_WHOLE_MAX
from console.lib.stored import KeyFound, KeyFoundIn, NewestMessages, Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.message.ids import OffsetMsgId
    from console.gateway.answers import BrokerNode, QueueStatus
    from console.gateway.remote.brokers import RemoteBrokers
    from console.lib.stored import BrokerQueue, MessageRange, StoredMessage

AT_ONCE_MAX = 32
"""Default maximum number of messages in a broker's answer."""
TOPICS_AT_ONCE = 8
"""Topics to search at the same time; each costs a request to each master."""
FOUND_MAX, PROBLEMS_MAX = 200, 5
READ_AHEAD_MAX = 256
"""Messages of a queue to request at a time when many are wanted."""


@dataclass(slots=True)
class Cursor:
    """A backward read of a queue; offsets from `low_offset` to `end_offset` remain."""

    queue: BrokerQueue
    address: str
    low_offset: int
    end_offset: int
    high_ms: int
    reached: Place | None = None  # the oldest message read so far
    messages: list[StoredMessage] = field(default_factory=list)

    @property
    def left(self) -> int:
        return max(0, self.end_offset - self.low_offset)

    @property
    def is_done(self) -> bool:
        return self.end_offset <= self.low_offset


class RemoteBrowse:
    """Thread-safe; calls block until the brokers answer."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def newest(self, wanted: MessageRange, before: Place | None, count: int) -> NewestMessages:
        return self._brokers.run(self._newest(wanted, before, count))

    def at(
        self, topic: str, queue: BrokerQueue, offset: int, *, is_whole: bool = False
    ) -> StoredMessage | None:
        return self._brokers.run(self._at(topic, queue, offset, is_whole=is_whole))

    def by_id(self, offset_msg_id: OffsetMsgId) -> StoredMessage | None:
        return self._brokers.run(self._by_id(offset_msg_id))

    def by_key(self, topic: str, key: str, low_ms: int, high_ms: int) -> KeyFound:
        return self._brokers.run(self._by_key(topic, key, low_ms, high_ms))

    def by_key_in(
        self, topics: Sequence[str], key: str, low_ms: int, high_ms: int, seconds: float
    ) -> KeyFoundIn:
        return self._brokers.run(self._by_key_in(topics, key, low_ms, high_ms, seconds))

    async def _newest(
        self, wanted: MessageRange, before: Place | None, count: int
    ) -> NewestMessages:
        cursors = await self._cursors(wanted, before)
        total = sum(cursor.left for cursor in cursors)
        at_once = min(READ_AHEAD_MAX, max(AT_ONCE_MAX, count // max(1, len(cursors))))

        async def read_cursor(cursor: Cursor) -> None:
            await self._read_older(wanted, cursor, at_once)

        while True:
            # Messages are final once no queue can contribute a newer one; the rest wait for the
            # slowest.
            unfinished = [cursor for cursor in cursors if not cursor.is_done]
            unread = [cursor for cursor in unfinished if cursor.reached is None]
            bound = max((c.reached for c in unfinished if c.reached is not None), default=None)
            read = sorted(
                (message for cursor in cursors for message in cursor.messages),
                key=lambda message: message.place,
                reverse=True,
            )
            ready = read if bound is None else [each for each in read if each.place >= bound]
            if not unread and (bound is None or len(ready) >= count):
                left = sum(cursor.left for cursor in cursors)
                shown = ready[:count]
                return NewestMessages(tuple(shown), left + len(read) - len(shown), total)
            await each(unread or [c for c in unfinished if c.reached == bound], read_cursor)

    async def _cursors(self, wanted: MessageRange, before: Place | None) -> list[Cursor]:
        rows = [
            row
            for row in await status(self._brokers, wanted.topic)
            if wanted.queue is None or row.queue == wanted.queue
        ]
        address = {node.broker_name: node.address for node in await self._brokers.masters()}

        async def one(row: QueueStatus) -> Cursor:
            high_ms = wanted.high_ms
            if before is not None:
                # Within the same millisecond, only messages from earlier queues remain.
                is_earlier = row.queue < before.queue
                high_ms = min(high_ms, before.store_ms + (1 if is_earlier else 0))
            broker = address[row.broker_name]
            # A search can end one message early, or among messages of the same millisecond.
            low, high = await asyncio.gather(
                *(
                    offsets.search_offset(self._brokers.ask, broker, wanted.topic, row.queue_id, at)
                    for at in (max(0, wanted.low_ms - 1), high_ms)
                )
            )
            end = min(high + 1, row.max_offset)
            if before is not None and row.queue == before.queue:
                end, high_ms = min(before.queue_offset, row.max_offset), before.store_ms + 1
            return Cursor(row.queue, broker, max(low, row.min_offset), end, high_ms)

        return [cursor for _row, cursor in await each(rows, one)]

    async def _read_older(self, wanted: MessageRange, cursor: Cursor, count: int) -> None:
        """Read the newest remaining messages of a queue."""
        end = cursor.end_offset
        begin = max(cursor.low_offset, end - count)
        parts = await each(
            range(begin, end, AT_ONCE_MAX),
            lambda at: self._block(wanted.topic, cursor, at, min(end, at + AT_ONCE_MAX)),
        )
        messages = [message for _at, block in parts for message in block]
        cursor.end_offset = begin
        if messages:
            cursor.reached = messages[0].place
        elif cursor.reached is None:
            # Skip a hole in the queue, where no message is readable.
            cursor.reached = Place(cursor.high_ms, cursor.queue, begin)
        cursor.messages += [
            each for each in messages if wanted.low_ms <= each.store_ms < cursor.high_ms
        ]

    async def _block(self, topic: str, cursor: Cursor, begin: int, end: int) -> list[StoredMessage]:
        """Return a queue's messages between two offsets; this can take several requests."""
        found: list[StoredMessage] = []
        at = begin
        while at < end:
            batch = await browse.read(
                self._brokers.ask,
                cursor.address,
                cursor.queue.broker_name,
                topic,
                cursor.queue.queue_id,
                at,
                end - at,
            )
            found += [each for each in batch.messages if begin <= each.queue_offset < end]
            if batch.next_offset <= at:
                break
            at = batch.next_offset
        return found

    async def _by_id(self, offset_msg_id: OffsetMsgId) -> StoredMessage | None:
        masters = await self._brokers.masters()
        own = [node for node in masters if node.address == offset_msg_id.host]
        # A promoted slave has records that carry the address of the previous master.
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

    async def _named(
        self, node: BrokerNode, topic: str, key: str, low_ms: int, high_ms: int
    ) -> browse.Indexed:
        """Return a broker's messages with a key; half messages need a separate request."""
        ask = self._brokers.ask
        if topic in HIDDEN_TOPICS:
            halves = await browse.halves(ask, node.address, node.broker_name, {"key": key})
            if halves is not None:
                found = tuple(each for each in halves if low_ms <= each.store_ms < high_ms)
                return browse.Indexed(found, is_full=False, has_index=True)
        named = await browse.query(ask, node.address, node.broker_name, topic, key, low_ms, high_ms)
        if named.has_index:
            return named
        return named._replace(has_index=await self._keeps_index(node))

    async def _keeps_index(self, node: BrokerNode) -> bool:
        """Return whether a broker with an empty index maintains one, as far as it reports that.

        RocketMQ gives the same answer for an unknown key and for a missing index.
        """
        try:
            keys = await configuration(self._brokers.ask, node.address)
        except GatewayError:
            return True
        return ("messageIndexEnable", "false") not in {(each.key, each.value) for each in keys}

    async def _by_key(self, topic: str, key: str, low_ms: int, high_ms: int) -> KeyFound:
        answers = await self._brokers.on_masters(
            lambda node: self._named(node, topic, key, low_ms, high_ms)
        )
        messages = sorted(
            (message for _node, found in answers for message in found.messages),
            key=lambda message: (message.store_ms, message.queue, message.queue_offset),
            reverse=True,
        )
        has_more = any(found.is_full for _node, found in answers)
        if has_more:
            # If one broker's results are incomplete, older results of the others are incomplete
            # too.
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

    async def _by_key_in(
        self, topics: Sequence[str], key: str, low_ms: int, high_ms: int, seconds: float
    ) -> KeyFoundIn:
        masters = await self._brokers.masters()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        remaining = iter(topics)
        found: list[StoredMessage] = []
        problems: dict[str, None] = {}
        down: dict[str, GatewayError] = {}
        without_index: dict[str, BrokerNode] = {}
        searched = 0
        has_more = False

        async def search_topics() -> None:
            # All workers share the iterator, so the topics they start are the first ones.
            nonlocal searched, has_more
            while loop.time() < until and (topic := next(remaining, None)) is not None:
                searched += 1
                for node in masters:
                    if node.broker_name in down:
                        continue
                    try:
                        named = await browse.query(
                            self._brokers.ask,
                            node.address,
                            node.broker_name,
                            topic,
                            key,
                            low_ms,
                            high_ms,
                        )
                    except NotFoundError:
                        continue
                    except RequestFailedError as error:
                        problems[f"{topic}: {error.what}"] = None
                        continue
                    except GatewayError as error:
                        down[node.broker_name] = error
                        problems[error.what] = None
                        continue
                    found.extend(named.messages)
                    has_more |= named.is_full
                    if len(found) > 2 * FOUND_MAX:
                        # Messages have the start of their bodies: keep only what is shown.
                        found.sort(key=lambda each: each.place, reverse=True)
                        del found[FOUND_MAX:]
                        has_more = True
                    if not named.has_index:
                        without_index[node.broker_name] = node

        await asyncio.gather(*(search_topics() for _worker in range(TOPICS_AT_ONCE)))
        if len(down) == len(masters):
            raise next(iter(down.values()))
        empty = [name for name, node in without_index.items() if not await self._keeps_index(node)]
        found.sort(key=lambda each: each.place, reverse=True)
        return KeyFoundIn(
            tuple(found[:FOUND_MAX]),
            has_more or len(found) > FOUND_MAX,
            tuple(sorted(empty)),
            searched,
            tuple(problems)[:PROBLEMS_MAX],
        )

    async def _at(
        self, topic: str, queue: BrokerQueue, offset: int, *, is_whole: bool
    ) -> StoredMessage | None:
        address = {node.broker_name: node.address for node in await self._brokers.masters()}
        if queue.broker_name not in address:
            return None
        if topic in HIDDEN_TOPICS:
            place: dict[str, str | int] = {"queueOffset": offset}
            halves = await browse.halves(
                self._brokers.ask, address[queue.broker_name], queue.broker_name, place
            )
            if halves is not None:
                return next(iter(halves), None)
        batch = await browse.read(
            self._brokers.ask,
            address[queue.broker_name],
            queue.broker_name,
            topic,
            queue.queue_id,
            offset,
            1,
            BODY_WHOLE_MAX if is_whole else BODY_SHOWN_MAX,
        )
        return next((each for each in batch.messages if each.queue_offset == offset), None)
