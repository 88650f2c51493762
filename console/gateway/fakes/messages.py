"""Fake MessageGateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_core.message import names
from console.gateway.answers import (
    GroupConfig,
    Member,
    MessageQueue,
    Pulled,
    Subscription,
    TopicQueue,
    TopicRoute,
)
from console.gateway.connections import Producer
from console.gateway.errors import SYSTEM_ERROR, RequestFailedError
from console.gateway.fakes.broker import ADDRESS, BROKER_NAME
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from console.gateway.answers import Client, OutgoingMessage
    from console.gateway.fakes.broker import FakeBroker

PULL_MESSAGES_MAX = 32


class FakeMessages:
    """Keeps only the store times of messages. Event loop only."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._changed = asyncio.Event()

    async def route(self, topic: str) -> TopicRoute | None:
        self._broker.check()
        config = self._broker.topic_configs.get(topic)
        if config is None:
            return None
        writes = range(config.write_queue_nums if config.is_writable else 0)
        reads = range(config.read_queue_nums if config.is_readable else 0)
        return TopicRoute(
            tuple(MessageQueue(topic, BROKER_NAME, queue_id) for queue_id in writes),
            tuple(MessageQueue(topic, BROKER_NAME, queue_id) for queue_id in reads),
        )

    async def send(self, queue: MessageQueue, message: OutgoingMessage, group: str) -> int:
        self._broker.check()
        at = TopicQueue(queue.topic, queue.queue_id)
        if at not in self._broker.queues:
            raise RequestFailedError(ADDRESS, SYSTEM_ERROR, "request queueId is illegal")
        properties = {names.PROPERTY_KEYS: message.keys, names.PROPERTY_TAGS: message.tags}
        queue_offset = self._broker.put_message(
            queue.topic, queue.queue_id, message.body, now_ms(), **properties
        )
        async with self._broker.stored:
            self._broker.stored.notify_all()
        event = {
            "stage": "stored",
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "queueOffset": str(queue_offset),
            "tags": message.tags,
            "keys": message.keys,
            "bodySize": len(message.body),
            "producerGroup": group,
        }
        for watcher in list(self._broker.watchers):
            watcher(event)
        return queue_offset

    async def pull(
        self, queue: MessageQueue, group: str, queue_offset: int, sub_version: int
    ) -> Pulled:
        self._broker.check()
        stored = self._broker.queues[TopicQueue(queue.topic, queue.queue_id)]
        async with self._broker.stored:
            await self._broker.stored.wait_for(lambda: stored.max_offset != queue_offset)
        # Outside the retained range, the broker returns only the next offset.
        begin = min(max(queue_offset, stored.min_offset), stored.max_offset)
        count = min(PULL_MESSAGES_MAX, stored.max_offset - begin) if begin == queue_offset else 0
        return Pulled(count, begin + count)

    async def consumer_offset(self, queue: MessageQueue, group: str) -> int:
        self._broker.check()
        beginning = self._broker.queues[TopicQueue(queue.topic, queue.queue_id)].min_offset
        return self._broker.offsets.get((group, queue.topic, queue.queue_id), beginning)

    async def commit(self, queue: MessageQueue, group: str, queue_offset: int) -> None:
        self._broker.check()
        self._broker.offsets[group, queue.topic, queue.queue_id] = queue_offset

    async def join(self, client: Client) -> None:
        self._broker.check()
        group = client.consumer_group
        self._broker.group_configs.setdefault(group, GroupConfig(group))
        self._broker.subscriptions[group] = [
            Subscription(topic, "TAG", "*") for topic in client.topics
        ]
        members = self._broker.members.setdefault(group, [])
        if all(each.client_id != client.client_id for each in self._broker.producers):
            self._broker.producers.append(
                Producer(
                    client.producer_group,
                    client.client_id,
                    "127.0.0.1:50001",
                    "JAVA",
                    0,
                    now_ms(),
                    (BROKER_NAME,),
                )
            )
        if all(member.client_id != client.client_id for member in members):
            members.append(Member(client.client_id, "127.0.0.1:50001", "JAVA", 0, (BROKER_NAME,)))
            self._changed.set()

    async def leave(self, client: Client) -> None:
        members = self._broker.members.get(client.consumer_group, [])
        members[:] = [member for member in members if member.client_id != client.client_id]

    async def members(self, queue: MessageQueue, group: str) -> tuple[str, ...]:
        self._broker.check()
        return tuple(sorted(member.client_id for member in self._broker.members.get(group, ())))

    async def until_members_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    async def close(self) -> None:
        """Do nothing."""
