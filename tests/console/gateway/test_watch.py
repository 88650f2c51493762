"""The contract of WatchGateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from console.gateway.answers import TraceBatch, WatchFilter
from tests.console.gateway.support import ORDERS, ask, send

if TYPE_CHECKING:
    from console.gateway.ports import Gateway


class Received:
    """The events of one watch."""

    def __init__(self) -> None:
        self._batches: asyncio.Queue[TraceBatch] = asyncio.Queue()

    def __call__(self, batch: TraceBatch) -> None:
        self._batches.put_nowait(batch)

    async def next(self) -> dict[str, object]:
        async with asyncio.timeout(10):
            while not (events := (await self._batches.get()).events):
                pass
        return events[0]


async def test_a_watch_brings_what_was_stored(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    [node] = (await ask(gateway.cluster.registered)).masters
    received = Received()
    watch = gateway.watch.open(node.address, received)
    await watch.ask_for({"one": WatchFilter(topic="Ord*"), "other": WatchFilter(topic="Payments")})

    await send(gateway, "Orders", queue_id=1, count=1)
    event = await received.next()
    await watch.close()

    assert (event["stage"], event["topic"]) == ("stored", "Orders")
    assert event["matched"] == ["one"]
    assert (event["queueId"], event["queueOffset"]) == (1, "0")
    assert (event["tags"], event["keys"], event["bodySize"]) == ("TagA", "k1 k2", 5)


async def test_a_watch_brings_only_what_it_was_asked_for_last(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    [node] = (await ask(gateway.cluster.registered)).masters
    received = Received()
    watch = gateway.watch.open(node.address, received)
    await watch.ask_for({"": WatchFilter(topic="Payments")})
    await send(gateway, "Orders", queue_id=0, count=1)

    await watch.ask_for({"stored": WatchFilter(stages=frozenset({"stored"}))})
    await send(gateway, "Orders", queue_id=0, count=1)
    event = await received.next()
    await watch.close()

    assert event["queueOffset"] == "1"


async def test_a_closed_watch_has_ended_and_may_be_closed_again(gateway: Gateway) -> None:
    [node] = (await ask(gateway.cluster.registered)).masters
    watch = gateway.watch.open(node.address, lambda _: None)
    await watch.ask_for({"all": WatchFilter()})

    await watch.close()
    await watch.close()

    await asyncio.wait_for(watch.until_closed(), 1)
