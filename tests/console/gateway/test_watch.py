"""The contract of WatchGateway."""

from __future__ import annotations

import asyncio
import random
from contextlib import nullcontext
from typing import TYPE_CHECKING

from console.gateway.answers import TraceBatch, WatchFilter, WatchPlace
from console.gateway.remote.watch import RemoteWatches
from tests.console.gateway.support import ORDERS, ask, send
from tests.support.bad_link import BadLink, Badness
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from console.gateway.ports import Gateway


class Received:
    """The events of one watch."""

    def __init__(self) -> None:
        self._batches: asyncio.Queue[TraceBatch] = asyncio.Queue()
        self.watch_id = ""
        self.rest: list[dict[str, object]] = []

    def __call__(self, batch: TraceBatch) -> None:
        self.watch_id = batch.watch_id
        self._batches.put_nowait(batch)

    async def next(self) -> dict[str, object]:
        async with asyncio.timeout(10):
            while not (events := (await self._batches.get()).events):
                pass
        self.rest = list(events[1:])
        return events[0]


async def test_a_watch_delivers_stored_messages(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    [node] = (await ask(gateway.cluster.registered)).masters
    received = Received()
    watch = gateway.watch.open(node.address, received)
    await watch.set_filters(
        {"one": WatchFilter(topic="Ord*"), "other": WatchFilter(topic="Payments")}
    )

    await send(gateway, "Orders", queue_id=1, count=1)
    event = await received.next()
    await watch.close()

    assert (event["stage"], event["topic"]) == ("stored", "Orders")
    assert event["matched"] == ["one"]
    assert (event["queueId"], event["queueOffset"]) == (1, "0")
    assert (event["tags"], event["keys"], event["bodySize"]) == ("TagA", "k1 k2", 5)


async def test_a_watch_only_delivers_its_latest_selection(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    [node] = (await ask(gateway.cluster.registered)).masters
    received = Received()
    watch = gateway.watch.open(node.address, received)
    await watch.set_filters({"": WatchFilter(topic="Payments")})
    await send(gateway, "Orders", queue_id=0, count=1)

    await watch.set_filters({"stored": WatchFilter(stages=frozenset({"stored"}))})
    await send(gateway, "Orders", queue_id=0, count=1)
    event = await received.next()
    await watch.close()

    assert event["queueOffset"] == "1"


async def test_a_closed_watch_has_ended_and_may_be_closed_again(gateway: Gateway) -> None:
    [node] = (await ask(gateway.cluster.registered)).masters
    watch = gateway.watch.open(node.address, lambda _: None)
    await watch.set_filters({"all": WatchFilter()})

    await watch.close()
    await watch.close()

    await asyncio.wait_for(watch.until_closed(), 1)


async def test_a_watch_with_a_broken_connection_continues_where_it_was(gateway: Gateway) -> None:
    if not isinstance(gateway.watch, RemoteWatches):
        return  # A fake resumes as its test says.
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    [node] = (await ask(gateway.cluster.registered)).masters
    host, _, port = node.address.rpartition(":")
    link = BadLink((host, int(port)), random.Random(1), nullcontext(), "127.0.0.1")
    watches, received = RemoteWatches(PATIENCE_S), Received()
    address = f"127.0.0.1:{await asyncio.to_thread(link.open)}"
    filters = {"all": WatchFilter(stages=frozenset({"stored"}))}
    watch = watches.open(address, received)
    assert not await watch.set_filters(filters)
    await send(gateway, "Orders", queue_id=0, count=1)
    first = await received.next()
    place = WatchPlace(received.watch_id, int(str(first["seq"])), 1)

    link.badness = Badness(break_chance=1.0)
    await send(gateway, "Orders", queue_id=0, count=2)
    await asyncio.wait_for(watch.until_closed(), PATIENCE_S)
    link.badness = Badness()
    await watch.close()
    again = watches.open(address, received)
    is_resumed = await again.set_filters(filters, place)
    offsets = [(await received.next())["queueOffset"]]
    offsets += [each["queueOffset"] for each in received.rest]
    if len(offsets) < 2:
        offsets.append((await received.next())["queueOffset"])

    assert is_resumed
    assert offsets == ["1", "2"]
    await again.close()
    one_more = watches.open(address, received)
    assert not await one_more.set_filters(filters, place)
    await one_more.close()
    await asyncio.to_thread(link.close)
