"""The demo traffic over gRPC: a producer and a consumer for each broker with a gRPC port.

The consumer postpones some messages, so that retries show. Event loop only.
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
    local_address,
)
from console.gateway.answers import TopicConfig
from console.gateway.errors import GatewayError, RequestFailedError
from console.gateway.listeners import GRPC
from console.gateway.remote.grpc_client import GrpcConsumer, GrpcProducer

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Sequence

    from console.gateway.answers import OutgoingMessage
    from console.gateway.ports import Gateway
    from console.gateway.remote.grpc_client import Received

CONSUMER_GROUP = "demo-grpc-consumers"
"""Not the group of the remoting demo: both can run at the same time."""
SECONDS_A_MESSAGE = 0.001
POSTPONED_SHARE = 0.01
POSTPONED_S = 10


class GrpcTraffic(Workload):
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
        self.postponed = 0
        self._cluster = gateway.cluster
        self._topic_gateway = gateway.topics
        self._messages = gateway.messages
        self._producers: list[GrpcProducer] = []
        self._consumers: list[GrpcConsumer] = []

    @property
    def client_ids(self) -> set[str]:
        return {each.client_id for each in (*self._producers, *self._consumers)}

    def _opening(self) -> str:
        addresses = ", ".join(each.address for each in self._producers)
        return f"{super()._opening()[:-1]}, over gRPC to {addresses}."

    async def _prepare(self) -> None:
        """Connect to each broker with a gRPC port and create missing topics; wait for a broker that
        is still starting.
        """
        deadline = asyncio.get_running_loop().time() + ROUTE_WAIT_S
        while True:
            try:
                for broker_name, address in (await self._addresses()).items():
                    await self._connect(broker_name, address)
            except RequestFailedError as error:
                raise DemoError(f"The broker refused the demo's clients: {error}") from error
            except (GatewayError, LookupError) as error:
                await self._leave()
                if asyncio.get_running_loop().time() >= deadline:
                    raise DemoError(f"The demo couldn't start: {error}") from error
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _addresses(self) -> dict[str, str]:
        """Return the gRPC address of each master that has one, by broker name.

        Raises:
            DemoError: the brokers respond, and none has a gRPC port.
            GatewayError, LookupError: there is no broker, or none responds.
        """
        masters = (await asyncio.to_thread(self._cluster.registered)).masters
        if not masters:
            raise LookupError("no broker is registered with the name server.")
        listeners = await asyncio.to_thread(self._cluster.listeners)
        found, problems = {}, []
        for node in masters:
            ports = listeners.get(node.address, ())
            if isinstance(ports, GatewayError):
                problems.append(ports)
                continue
            for port in ports:
                if port.kind == GRPC:
                    found[node.broker_name] = port.address
        if found:
            return found
        if problems:
            raise problems[0]
        names = ", ".join(node.broker_name for node in masters)
        raise DemoError(
            f"The demo couldn't start over gRPC: {names} has no gRPC port. Set grpcListenPort=8081 "
            "in the broker's configuration and restart it, or run the demo without --grpc."
            if len(masters) == 1
            else f"The demo couldn't start over gRPC: none of the brokers {names} has a gRPC port. "
            "Set grpcListenPort=8081 in a broker's configuration and restart it, or run the demo "
            "without --grpc."
        )

    async def _connect(self, broker_name: str, address: str) -> None:
        """Start a producer and a consumer of a broker, with the topics there."""
        name = f"{local_address()}@demo{os.getpid()}@{broker_name}"
        producer = GrpcProducer(address, f"{name}@producer", self._topics)
        self._producers.append(producer)
        for topic in self._topics:
            if not await producer.has_topic(topic):
                # gRPC clients can't create topics.
                config = TopicConfig(topic, QUEUE_NUMS, QUEUE_NUMS, PERM_READ_WRITE)
                await asyncio.to_thread(self._topic_gateway.save, config, [broker_name])
        consumer = GrpcConsumer(address, f"{name}@consumer", CONSUMER_GROUP, self._topics)
        self._consumers.append(consumer)
        await consumer.start()

    def _duties(self) -> Sequence[Coroutine[None, None, None]]:
        readers = [
            self._consume(consumer, topic) for consumer in self._consumers for topic in self._topics
        ]
        return (self._stay_registered(), *readers)

    async def _deliver(self, message: OutgoingMessage, number: int) -> None:
        await self._producers[number % len(self._producers)].send(message)

    async def _stay_registered(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for client in (*self._producers, *self._consumers):
                try:
                    await client.heartbeat()
                except GatewayError as error:
                    self._complain(error)

    async def _consume(self, consumer: GrpcConsumer, topic: str) -> None:
        while True:
            try:
                received = await consumer.receive(topic)
                await asyncio.sleep(len(received) * SECONDS_A_MESSAGE)
                await self._finish(consumer, received)
            except GatewayError as error:
                self._complain(error)
                await asyncio.sleep(RETRY_S)

    async def _finish(self, consumer: GrpcConsumer, received: Sequence[Received]) -> None:
        """Acknowledge messages, except a few that are postponed on their first delivery."""
        done = []
        for message in received:
            if message.attempt == 1 and self._rng.random() < POSTPONED_SHARE:
                await consumer.postpone(message, POSTPONED_S)
                self.postponed += 1
            else:
                done.append(message)
        await consumer.acknowledge(done)
        self.counts.consumed += len(done)

    def _summary(self) -> str:
        return f"{super()._summary()}, postponed {self.postponed}"

    async def _unregister(self) -> None:
        await self._leave()
        await self._messages.close()

    async def _leave(self) -> None:
        clients = (*self._consumers, *self._producers)
        await asyncio.gather(*(each.close() for each in clients))
        self._producers.clear()
        self._consumers.clear()
