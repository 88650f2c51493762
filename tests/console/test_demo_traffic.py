"""The demo traffic against a real broker: it sends, consumes, shares queues, takes its leave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.remoting.client import RemotingClient
from console.demo.traffic import CONSUMER_GROUP, DemoError, DemoTraffic
from console.demo.wire import DemoCalls, Queue, allocate, parse_route

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable

    from tests.support.broker_process import BrokerProcess

ROUTE = {
    "brokerDatas": [
        {"brokerName": "a", "brokerAddrs": {"0": "h:1", "1": "h:2"}},
        {"brokerName": "slave-only", "brokerAddrs": {"1": "h:3"}},
    ],
    "queueDatas": [
        {"brokerName": "a", "perm": 6, "readQueueNums": 3, "writeQueueNums": 2},
        {"brokerName": "slave-only", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1},
    ],
}


def test_a_route_names_the_queues_of_masters_only() -> None:
    route = parse_route("orders", ROUTE)

    assert [queue.queue_id for queue in route.write_queues] == [0, 1]
    assert {queue.address for queue in route.read_queues} == {"h:1"}
    assert len(route.read_queues) == 3


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_every_queue_has_exactly_one_reader(count: int) -> None:
    queues = [Queue("t", "a", number, "h:1") for number in range(7)]
    members = [f"client-{number}" for number in range(count)]

    shares = [allocate(queues, members, member) for member in members]

    assert sorted(queue for share in shares for queue in share) == queues
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_member_the_broker_does_not_know_reads_nothing() -> None:
    assert allocate([Queue("t", "a", 0, "h:1")], ["other"], "me") == []


@pytest.fixture
async def calls(broker_process: BrokerProcess) -> AsyncIterator[DemoCalls]:
    client = RemotingClient()
    yield DemoCalls(client, [broker_process.namesrv])
    await client.shutdown()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # another process does what is waited for


async def test_the_demo_makes_topics_sends_consumes_and_takes_its_leave(
    broker_process: BrokerProcess, calls: DemoCalls, rng: random.Random
) -> None:
    traffic = DemoTraffic([broker_process.namesrv], rate=200, rng=rng)
    running = asyncio.create_task(traffic.run())
    await until(lambda: traffic.counts.consumed >= 100)
    route = await calls.route("orders")
    assert route is not None
    address = route.read_queues[0].address
    assert await calls.members(address, CONSUMER_GROUP) == [traffic.client_id]

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert await calls.members(address, CONSUMER_GROUP) == []
    assert traffic.counts.failed == 0
    committed = [await calls.consumer_offset(queue, CONSUMER_GROUP) for queue in route.read_queues]
    assert sum(committed) > 0


async def test_the_demo_goes_on_after_the_broker_was_away(
    broker_process: BrokerProcess, rng: random.Random
) -> None:
    said: list[str] = []
    traffic = DemoTraffic([broker_process.namesrv], rate=100, say=said.append, rng=rng)
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

    assert sum(line.startswith("Trouble") for line in said) >= 1


async def test_without_a_name_server_the_demo_says_so(
    free_ports: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.demo.traffic.ROUTE_WAIT_S", 0.0)
    traffic = DemoTraffic([f"127.0.0.1:{free_ports()}"])

    with pytest.raises(DemoError, match="The demo cannot start: no connection to 127"):
        await traffic.run()
