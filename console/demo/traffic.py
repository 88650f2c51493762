"""The demo traffic over the remoting protocol: a producer for three topics, and a consumer group
that reads them.

One queue is read more slowly than it is written, to produce some lag. Event loop only.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from console.demo.workload import (
    HEARTBEAT_S,
    PERM_READ_WRITE,
    QUEUE_NUMS,
    RETRY_S,
    ROUTE_WAIT_S,
    TOPICS,
    DemoError,
    Workload,
    end,
    local_address,
)
from console.gateway.answers import Client, TopicConfig
from console.gateway.errors import GatewayError, RequestFailedError
from console.lib.moment import now_ms

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from console.gateway.answers import MessageQueue, OutgoingMessage, TopicRoute
    from console.gateway.ports import Gateway

PRODUCER_GROUP = "demo-producers"
CONSUMER_GROUP = "demo-consumers"
# The consumer reads the slow queue at this fraction of its write rate.
SLOW_SHARE = 0.7


class DemoTraffic(Workload):
    """Sends and consumes until it is cancelled."""

    def __init__(
        self,
        gateway: Gateway,
        topics: Sequence[str] = TOPICS,
        rate: int = 40,
        say: Callable[[str], None] = lambda _: None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(topics, rate, say, rng)
        self.client = Client(
            client_id=f"{local_address()}@demo{os.getpid()}",
            producer_group=PRODUCER_GROUP,
            consumer_group=CONSUMER_GROUP,
            topics=tuple(topics),
            sub_version=now_ms(),
        )
        self._cluster = gateway.cluster
        self._topic_gateway = gateway.topics
        self._messages = gateway.messages
        self._routes: dict[str, TopicRoute] = {}
        self._rebalance_now = asyncio.Event()
        self._readers: dict[MessageQueue, asyncio.Task[None]] = {}

    def _duties(self) -> Sequence[Coroutine[None, None, None]]:
        return (self._stay_member(), self._watch_members(), self._rebalance())

    async def _deliver(self, message: OutgoingMessage, number: int) -> None:
        queues = self._routes[message.topic].write_queues
        await self._messages.send(queues[number % len(queues)], message, PRODUCER_GROUP)

    async def _stop_consuming(self) -> None:
        await end(list(self._readers.values()))

    async def _prepare(self) -> None:
        """Look up the topics and create missing ones; wait for a broker that is still starting."""
        deadline = asyncio.get_running_loop().time() + ROUTE_WAIT_S
        while True:
            try:
                for topic in self._topics:
                    self._routes[topic] = await self._route_of(topic)
                await self._messages.join(self.client)
            except RequestFailedError as error:
                raise DemoError(f"The broker refused the demo's messages: {error}") from error
            except (GatewayError, LookupError) as error:
                if asyncio.get_running_loop().time() >= deadline:
                    raise DemoError(f"The demo couldn't start: {error}") from error
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _route_of(self, topic: str) -> TopicRoute:
        route = await self._messages.route(topic)
        if route is None:
            cluster = await asyncio.to_thread(self._cluster.registered)
            if not cluster.masters:
                raise LookupError("no broker is registered with the name server.")
            config = TopicConfig(topic, QUEUE_NUMS, QUEUE_NUMS, PERM_READ_WRITE)
            names = [node.broker_name for node in cluster.masters]
            await asyncio.to_thread(self._topic_gateway.save, config, names)
            route = await self._messages.route(topic)
        if route is None or not route.write_queues:
            raise LookupError(f"no broker has queues of the topic {topic}.")
        return route

    async def _stay_member(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                for topic in self._topics:
                    self._routes[topic] = await self._route_of(topic)
                await self._messages.join(self.client)
            except (GatewayError, LookupError) as error:
                self._complain(error)
            self._rebalance_now.set()

    async def _watch_members(self) -> None:
        while True:
            await self._messages.until_members_change()
            self._rebalance_now.set()

    async def _unregister(self) -> None:
        await self._messages.leave(self.client)
        await self._messages.close()

    async def _rebalance(self) -> None:
        """Read only this consumer's share of the queues."""
        while True:
            self._rebalance_now.clear()
            try:
                wanted = await self._allocated()
            except GatewayError as error:
                self._complain(error)
            else:
                await end([self._readers.pop(queue) for queue in set(self._readers) - wanted])
                for queue in wanted - set(self._readers):
                    self._readers[queue] = asyncio.create_task(self._consume(queue))
            await self._rebalance_now.wait()

    async def _allocated(self) -> set[MessageQueue]:
        queues: set[MessageQueue] = set()
        for route in self._routes.values():
            if route.read_queues:
                members = await self._messages.members(route.read_queues[0], CONSUMER_GROUP)
                queues.update(allocate(route.read_queues, members, self.client.client_id))
        return queues

    async def _consume(self, queue: MessageQueue) -> None:
        """Pull a queue until cancelled, and commit messages as soon as they are read."""
        offset = -1
        while True:
            try:
                if offset < 0:
                    offset = await self._messages.consumer_offset(queue, CONSUMER_GROUP)
                pulled = await self._messages.pull(
                    queue, CONSUMER_GROUP, offset, self.client.sub_version
                )
                if pulled.next_begin_offset != offset:
                    await asyncio.sleep(pulled.message_count * self._seconds_a_message(queue))
                    offset = pulled.next_begin_offset
                    self.counts.consumed += pulled.message_count
                    await self._messages.commit(queue, CONSUMER_GROUP, offset)
            except GatewayError as error:
                self._complain(error)
                await asyncio.sleep(RETRY_S)
                # Ask the broker again for the group's offset.
                offset = -1

    def _seconds_a_message(self, queue: MessageQueue) -> float:
        """Return the processing time of a message, which is long only for the slow queue."""
        if queue.topic != self._topics[0] or queue.queue_id != 0:
            return 0.001
        share = self._rate / len(self._topics) / max(1, len(self._routes[queue.topic].read_queues))
        return 1.0 / max(0.05, share * SLOW_SHARE)


def allocate(
    queues: Iterable[MessageQueue], members: Sequence[str], client_id: str
) -> list[MessageQueue]:
    """Return this consumer's queues: equal, adjacent shares, as AllocateMessageQueueAveragely."""
    if client_id not in members:
        return []
    every = sorted(queues)
    share, rest = divmod(len(every), len(members))
    index = members.index(client_id)
    start = index * share + min(index, rest)
    return every[start : start + share + (1 if index < rest else 0)]
