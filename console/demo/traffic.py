"""The demo traffic: a producer for three topics, and a consumer group that reads them.

One queue is read more slowly than it is written, to produce some lag. Event loop only.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from console.gateway.answers import Client, OutgoingMessage, TopicConfig
from console.gateway.errors import GatewayError, RequestFailedError
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from console.gateway.answers import MessageQueue, TopicRoute
    from console.gateway.ports import Gateway

PRODUCER_GROUP = "demo-producers"
CONSUMER_GROUP = "demo-consumers"
TOPICS = ("orders", "payments", "telemetry")
QUEUE_NUMS = 4
PERM_READ_WRITE = 6

RATE_MAX = 2_000
TICK_S = 0.1
WAVE_S = 90.0
IN_FLIGHT_MAX = 256
HEARTBEAT_S = 10.0
ROUTE_WAIT_S = 30.0
RETRY_S = 1.0
LAST_SENDS_S = 2.0
REPORT_S = 10.0
# The consumer reads the slow queue at this fraction of its write rate.
SLOW_SHARE = 0.7

KINDS: dict[str, tuple[str, ...]] = {
    "orders": ("created", "created", "created", "paid", "paid", "shipped", "cancelled"),
    "payments": ("authorised", "authorised", "captured", "captured", "refused"),
    "telemetry": ("temperature", "humidity", "vibration"),
}
OTHER_KINDS = ("alpha", "beta", "gamma")


class DemoError(Exception):
    """The demo can't continue; the text is a sentence for people."""


@dataclass(slots=True)
class Counts:
    """Messages so far."""

    sent: int = 0
    failed: int = 0
    consumed: int = 0


class DemoTraffic:
    """Sends and consumes until it is cancelled.

    `say` prints a line. `rate` is the average number of messages per second over all topics.
    """

    def __init__(
        self,
        gateway: Gateway,
        topics: Sequence[str] = TOPICS,
        rate: int = 40,
        say: Callable[[str], None] = lambda _: None,
        rng: random.Random | None = None,
    ) -> None:
        self.counts = Counts()
        self.client = Client(
            client_id=f"{local_address()}@demo{os.getpid()}",
            producer_group=PRODUCER_GROUP,
            consumer_group=CONSUMER_GROUP,
            topics=tuple(topics),
            sub_version=now_ms(),
        )
        self._topics = tuple(topics)
        self._rate = min(rate, RATE_MAX)
        self._say = say
        self._rng = rng or random.Random()
        self._cluster = gateway.cluster
        self._topic_gateway = gateway.topics
        self._messages = gateway.messages
        self._routes: dict[str, TopicRoute] = {}
        self._rebalance_now = asyncio.Event()
        self._readers: dict[MessageQueue, asyncio.Task[None]] = {}
        self._trouble = ""

    async def run(self, seconds: float | None = None) -> None:
        """Run for some seconds or until cancelled, then unregister from the brokers.

        Raises:
            DemoError: no name server or no broker responds at the start.
        """
        try:
            await self._prepare()
            self._say(
                f"Demo traffic to {', '.join(self._topics)}: about {self._rate} messages a second."
            )
            work: list[Coroutine[None, None, None]] = [
                self._produce(),
                self._stay_member(),
                self._watch_members(),
                self._rebalance(),
                self._report(),
            ]
            tasks = [asyncio.create_task(each) for each in work]
            try:
                done, _ = await asyncio.wait(
                    tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION
                )
                for task in done:
                    task.result()
            finally:
                await end([*tasks, *self._readers.values()])
        finally:
            await self._unregister()

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

    async def _produce(self) -> None:
        """Send in small batches; the rate varies around its mean, with a rare burst."""
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(IN_FLIGHT_MAX)
        started, owed, number, burst_until = loop.time(), 0.0, 0, 0.0
        sending: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(TICK_S)
                now = loop.time()
                wave = 1.0 + 0.5 * math.sin((now - started) * 2 * math.pi / WAVE_S)
                if now >= burst_until and self._rng.random() < TICK_S / 45:
                    burst_until = now + 3.0
                owed += self._rate * TICK_S * wave * (2.5 if now < burst_until else 1.0)
                portion, owed = int(owed), owed - int(owed)
                for _ in range(portion):
                    number += 1
                    await room.acquire()
                    task = asyncio.create_task(self._send(self._message(number), number, room))
                    sending.add(task)
                    task.add_done_callback(sending.discard)
        finally:
            # The broker may still store pending messages; wait for a correct count.
            if sending:
                await asyncio.wait(set(sending), timeout=LAST_SENDS_S)
            await end(list(sending))

    async def _send(self, message: OutgoingMessage, number: int, room: asyncio.Semaphore) -> None:
        queues = self._routes[message.topic].write_queues
        try:
            await self._messages.send(queues[number % len(queues)], message, PRODUCER_GROUP)
            self.counts.sent += 1
            self._trouble = ""
        except GatewayError as error:
            self.counts.failed += 1
            self._complain(error)
            # Keep the in-flight slot while waiting, so that an unreachable broker gets few
            # attempts.
            await asyncio.sleep(RETRY_S)
        finally:
            room.release()

    def _message(self, number: int) -> OutgoingMessage:
        topic = self._rng.choice(self._topics)
        kind = self._rng.choice(KINDS.get(topic, OTHER_KINDS))
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        if topic == "telemetry":
            device = f"device-{self._rng.randrange(1, 41):03d}"
            content = {"device": device, "kind": kind, "value": round(self._rng.gauss(21, 4), 2)}
            keys = device
        else:
            order = f"order-{100_000 + number // 3}"
            content = {
                "order": order,
                "state": kind,
                "amount": round(self._rng.lognormvariate(3.4, 0.9), 2),
                "lines": self._rng.randrange(1, 9),
                "note": "x" * min(4_000, int(self._rng.expovariate(1 / 160))),
            }
            keys = order if topic == "orders" else f"{order} payment-{number}"
        body = json.dumps({**content, "at": when}).encode()
        return OutgoingMessage(topic, body, tags=kind, keys=keys, born_ms=now_ms())

    def _complain(self, error: Exception) -> None:
        """Report a problem once, until a send succeeds again."""
        if not self._trouble:
            self._trouble = str(error)
            self._say(f"Problem, retrying: {error}")

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            counts = self.counts
            self._say(f"sent {counts.sent}, consumed {counts.consumed}, failed {counts.failed}")


async def end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


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


def local_address() -> str:
    """Return this machine's address as used in a client ID."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
