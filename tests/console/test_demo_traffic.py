"""The demo traffic with a real broker: it sends, consumes, shares queues, unregisters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from console.demo.traffic import CONSUMER_GROUP, DemoTraffic, allocate
from console.demo.workload import DemoError
from console.gateway.answers import MessageQueue
from console.gateway.fakes.gateway import fake_gateway
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable

    from console.gateway.ports import Gateway, MessageGateway
    from tests.support.broker_process import BrokerProcess

TIMEOUT_S = 5.0


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_every_queue_has_exactly_one_reader(count: int) -> None:
    queues = [MessageQueue("t", "a", number) for number in range(7)]
    members = [f"client-{number}" for number in range(count)]

    shares = [allocate(queues, members, member) for member in members]

    assert sorted(queue for share in shares for queue in share) == queues
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_member_unknown_to_the_broker_reads_nothing() -> None:
    assert allocate([MessageQueue("t", "a", 0)], ["other"], "me") == []


def gateway_of(namesrv: str) -> Gateway:
    return gateway_to(RemoteBrokers([namesrv], TIMEOUT_S))


@pytest.fixture
async def messages(broker_process: BrokerProcess) -> AsyncIterator[MessageGateway]:
    """Another client of the same broker."""
    opened = gateway_of(broker_process.namesrv).messages
    yield opened
    await opened.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # another process does the work


async def test_the_demo_creates_topics_sends_consumes_and_cleans_up(
    broker_process: BrokerProcess, messages: MessageGateway, rng: random.Random
) -> None:
    traffic = DemoTraffic(gateway_of(broker_process.namesrv), rate=200, rng=rng)
    running = asyncio.create_task(traffic.run())
    await until(lambda: traffic.counts.consumed >= 100)
    route = await messages.route("orders")
    assert route is not None
    [queue, *_] = route.read_queues
    assert await messages.members(queue, CONSUMER_GROUP) == (traffic.client.client_id,)

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert await messages.members(queue, CONSUMER_GROUP) == ()
    assert traffic.counts.failed == 0
    committed = [await messages.consumer_offset(each, CONSUMER_GROUP) for each in route.read_queues]
    assert sum(committed) > 0


async def test_the_demo_continues_after_a_broker_outage(
    broker_process: BrokerProcess, rng: random.Random
) -> None:
    texts: list[str] = []
    gateway = gateway_of(broker_process.namesrv)
    traffic = DemoTraffic(gateway, rate=100, say=texts.append, rng=rng)
    running = asyncio.create_task(traffic.run())
    try:
        await until(lambda: traffic.counts.sent >= 20)

        await asyncio.to_thread(broker_process.kill)
        await until(lambda: traffic.counts.failed > 0)
        await asyncio.to_thread(broker_process.start)
        sent = traffic.counts.sent
        await until(lambda: traffic.counts.sent > sent + 20)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert sum(line.startswith("Problem") for line in texts) >= 1


async def test_without_a_name_server_the_demo_explains_it(
    free_ports: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.demo.traffic.ROUTE_WAIT_S", 0.0)
    traffic = DemoTraffic(gateway_of(f"127.0.0.1:{free_ports()}"))

    with pytest.raises(DemoError, match="The demo couldn't start: The name server at 127"):
        await traffic.run()


async def test_the_demo_runs_over_any_gateway(rng: random.Random) -> None:
    traffic = DemoTraffic(fake_gateway(), topics=["orders"], rate=500, rng=rng)

    running = asyncio.create_task(traffic.run())
    await until(lambda: traffic.counts.consumed >= 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert traffic.counts.sent >= traffic.counts.consumed
    assert traffic.counts.failed == 0
