"""The demo traffic: a producer of three topics, a consumer group that reads them.

Speaks to name server and brokers as any client does. One queue is read more slowly than it is
written, so that there is a backlog to look at. Event loop only.
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

from broker_core.errors import BrokerError, RemotingError, RequestRefusedError
from broker_core.protocol.codes import RequestCode
from broker_core.remoting.client import RemotingClient
from console.demo.wire import (
    DemoCalls,
    Outgoing,
    Queue,
    TopicRoute,
    allocate,
    heartbeat_body,
)
from console.gateway.credentials import broker_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection

PRODUCER_GROUP = "demo-producers"
CONSUMER_GROUP = "demo-consumers"
TOPICS = ("orders", "payments", "telemetry")

RATE_MAX = 2_000
TICK_S = 0.1
WAVE_S = 90.0
IN_FLIGHT_MAX = 256
HEARTBEAT_S = 10.0
ROUTE_WAIT_S = 30.0
RETRY_S = 1.0
LAST_SENDS_S = 2.0
REPORT_S = 10.0
# The slow queue is read at this part of its share of the rate.
SLOW_SHARE = 0.7

KINDS: dict[str, tuple[str, ...]] = {
    "orders": ("created", "created", "created", "paid", "paid", "shipped", "cancelled"),
    "payments": ("authorised", "authorised", "captured", "captured", "refused"),
    "telemetry": ("temperature", "humidity", "vibration"),
}
OTHER_KINDS = ("alpha", "beta", "gamma")


class DemoError(Exception):
    """The demo cannot go on; the text is a sentence for people."""


@dataclass(slots=True)
class Counts:
    """What the demo did so far, in messages."""

    sent: int = 0
    failed: int = 0
    consumed: int = 0


class DemoTraffic:
    """Sends and consumes until it is cancelled.

    `say` takes a line for people. `rate` is messages a second on average over all topics.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        topics: Sequence[str] = TOPICS,
        rate: int = 40,
        say: Callable[[str], None] = lambda _: None,
        rng: random.Random | None = None,
    ) -> None:
        self.counts = Counts()
        self.client_id = f"{local_address()}@demo{os.getpid()}"
        self._topics = tuple(topics)
        self._rate = min(rate, RATE_MAX)
        self._say = say
        self._rng = rng or random.Random()
        self._client = RemotingClient(
            handlers={RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed},
            credentials=broker_credentials(),
        )
        self._calls = DemoCalls(self._client, name_servers)
        self._name_servers = name_servers
        self._routes: dict[str, TopicRoute] = {}
        self._sub_version = now_ms()
        self._rebalance_now = asyncio.Event()
        self._readers: dict[Queue, asyncio.Task[None]] = {}
        self._trouble = ""

    async def run(self, seconds: float | None = None) -> None:
        """Run for some seconds, or until cancelled; take leave of the brokers at the end.

        Raises:
            DemoError: no name server or no broker answers at the start.
        """
        try:
            await self._prepare()
            self._say(
                f"Demo traffic to {', '.join(self._topics)}: about {self._rate} messages a second."
            )
            work: list[Coroutine[None, None, None]] = [
                self._produce(),
                self._stay_member(),
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
            await self._take_leave()

    # At the start.

    async def _prepare(self) -> None:
        """Find the topics, make the missing ones; a broker that still starts is waited for."""
        deadline = asyncio.get_running_loop().time() + ROUTE_WAIT_S
        while True:
            try:
                for topic in self._topics:
                    self._routes[topic] = await self._route_of(topic)
                await self._heartbeat()
            except (RemotingError, LookupError) as error:
                if asyncio.get_running_loop().time() >= deadline:
                    raise DemoError(
                        f"The demo cannot start: {error} "
                        f"(name server {';'.join(self._name_servers)})."
                    ) from error
                await asyncio.sleep(RETRY_S)
            except BrokerError as error:
                raise DemoError(f"The broker refuses the demo: {error}.") from error
            else:
                return

    async def _route_of(self, topic: str) -> TopicRoute:
        route = await self._calls.route(topic)
        if route is None:
            masters = await self._calls.masters()
            if not masters:
                raise LookupError("the name server knows no broker")
            for address in masters:
                await self._calls.create_topic(address, topic)
            route = await self._calls.route(topic)
        if route is None or not route.write_queues:
            raise LookupError(f"no broker has queues for topic {topic}")
        return route

    # Membership.

    def _addresses(self) -> list[str]:
        return sorted(
            {queue.address for route in self._routes.values() for queue in route.read_queues}
        )

    async def _heartbeat(self) -> None:
        body = heartbeat_body(
            self.client_id, PRODUCER_GROUP, CONSUMER_GROUP, self._topics, self._sub_version
        )
        for address in self._addresses():
            await self._calls.heartbeat(address, body)

    async def _stay_member(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                for topic in self._topics:
                    self._routes[topic] = await self._route_of(topic)
                await self._heartbeat()
            except (BrokerError, LookupError) as error:
                self._complain(error)
            self._rebalance_now.set()

    def _members_changed(self, _: RemotingCommand, __: Connection) -> None:
        self._rebalance_now.set()

    async def _take_leave(self) -> None:
        for address in self._addresses():
            try:
                await self._calls.unregister(
                    address, self.client_id, PRODUCER_GROUP, CONSUMER_GROUP
                )
            except BrokerError:
                # It is gone, and forgets us by itself.
                continue
        await self._client.shutdown()

    # Consuming.

    async def _rebalance(self) -> None:
        """Read the queues that are ours among the group's members, and no others."""
        while True:
            self._rebalance_now.clear()
            try:
                wanted = await self._allocated()
            except BrokerError as error:
                self._complain(error)
            else:
                await end([self._readers.pop(queue) for queue in set(self._readers) - wanted])
                for queue in wanted - set(self._readers):
                    self._readers[queue] = asyncio.create_task(self._consume(queue))
            await self._rebalance_now.wait()

    async def _allocated(self) -> set[Queue]:
        queues: set[Queue] = set()
        for route in self._routes.values():
            if route.read_queues:
                members = await self._calls.members(route.read_queues[0].address, CONSUMER_GROUP)
                queues.update(allocate(route.read_queues, members, self.client_id))
        return queues

    async def _consume(self, queue: Queue) -> None:
        """Pull a queue for ever; what was read is committed at once."""
        offset = -1
        while True:
            try:
                if offset < 0:
                    offset = await self._calls.consumer_offset(queue, CONSUMER_GROUP)
                pulled = await self._calls.pull(queue, CONSUMER_GROUP, offset, self._sub_version)
                if pulled.next_begin_offset != offset:
                    await asyncio.sleep(pulled.message_count * self._seconds_a_message(queue))
                    offset = pulled.next_begin_offset
                    self.counts.consumed += pulled.message_count
                    await self._calls.commit(queue, CONSUMER_GROUP, offset)
            except BrokerError as error:
                self._complain(error)
                await asyncio.sleep(RETRY_S)
                # What the group's offset is now, the broker knows better than we do.
                offset = -1

    def _seconds_a_message(self, queue: Queue) -> float:
        """Return how long the demo works on a message: long on the slow queue, hardly elsewhere."""
        if queue.topic != self._topics[0] or queue.queue_id != 0:
            return 0.001
        share = self._rate / len(self._topics) / max(1, len(self._routes[queue.topic].read_queues))
        return 1.0 / max(0.05, share * SLOW_SHARE)

    # Producing.

    async def _produce(self) -> None:
        """Send in small portions; the rate swings around its mean, with a rare burst."""
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
            # What is under way may still be stored: wait for it, so that the count is right.
            if sending:
                await asyncio.wait(set(sending), timeout=LAST_SENDS_S)
            await end(list(sending))

    async def _send(self, message: Outgoing, number: int, room: asyncio.Semaphore) -> None:
        queues = self._routes[message.topic].write_queues
        try:
            await self._calls.send(
                queues[number % len(queues)], message, PRODUCER_GROUP, born_ms=now_ms()
            )
            self.counts.sent += 1
            self._trouble = ""
        except (RemotingError, RequestRefusedError) as error:
            self.counts.failed += 1
            self._complain(error)
            # Holds its place among those in flight, so that a dead broker is not hammered.
            await asyncio.sleep(RETRY_S)
        finally:
            room.release()

    def _message(self, number: int) -> Outgoing:
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
        return Outgoing(topic=topic, body=body, tags=kind, keys=keys)

    # Telling.

    def _complain(self, error: Exception) -> None:
        """Say what goes wrong, once until it goes right again."""
        if not self._trouble:
            self._trouble = str(error)
            self._say(f"Trouble, trying again: {error}")

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            counts = self.counts
            self._say(f"sent {counts.sent}, consumed {counts.consumed}, failed {counts.failed}")


async def end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def local_address() -> str:
    """Return this machine's address as a client id shows it."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
