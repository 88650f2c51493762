"""The watch over the real wire: what a broker process stores is seen, also after its restart."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.remoting.client import RemotingClient
from console.demo.wire import DemoCalls, Outgoing, Queue
from console.tracing.bridge import TraceBridge, Viewer
from console.tracing.filters import TraceFilter
from console.tracing.link import RemotingWatchLink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.support.broker_process import BrokerProcess


@pytest.fixture
async def calls(broker_process: BrokerProcess) -> AsyncIterator[DemoCalls]:
    client = RemotingClient()
    yield DemoCalls(client, [broker_process.namesrv])
    await client.shutdown()


@pytest.fixture
async def bridge(broker_process: BrokerProcess) -> AsyncIterator[TraceBridge]:
    async def find() -> Mapping[str, str]:
        return {"broker-a": f"127.0.0.1:{broker_process.port}"}

    bridge = TraceBridge(find, RemotingWatchLink, backoff_first_s=0.05)
    yield bridge
    await bridge.shutdown()


async def watching(viewer: Viewer) -> None:
    """Wait until the broker watches for this viewer."""
    async with asyncio.timeout(20):
        while True:
            await viewer.until_news()
            for frame in map(json.loads, viewer.take()):
                if frame["type"] == "status" and any(
                    broker["state"] == "watching" for broker in frame["brokers"]
                ):
                    return


async def seen(viewer: Viewer) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            await viewer.until_news()
            frame = json.loads(viewer.take()[-1])
            if frame["events"]:
                event: dict[str, Any] = frame["events"][0]
                return event


async def send(calls: DemoCalls, broker: BrokerProcess, topic: str, keys: str) -> None:
    queue = Queue(topic, "broker-a", 0, f"127.0.0.1:{broker.port}")
    await calls.send(queue, Outgoing(topic, b"hello", "TagA", keys), "pg", born_ms=1)


async def test_a_stored_message_is_seen_with_what_it_carries(
    bridge: TraceBridge, calls: DemoCalls, broker_process: BrokerProcess
) -> None:
    viewer = Viewer(1)
    viewer.filter = TraceFilter(topic="orders")
    bridge.join(viewer)
    await watching(viewer)

    await send(calls, broker_process, "payments", "k0")
    await send(calls, broker_process, "orders", "k1 k2")
    event = await seen(viewer)

    assert (event["stage"], event["topic"], event["queueOffset"]) == ("stored", "orders", "0")
    assert (event["tags"], event["keys"], event["bodySize"]) == ("TagA", "k1 k2", 5)
    assert viewer.seen == 1


async def test_a_restarted_broker_is_watched_again(
    bridge: TraceBridge, calls: DemoCalls, broker_process: BrokerProcess
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await watching(viewer)

    await asyncio.to_thread(broker_process.kill)
    await asyncio.to_thread(broker_process.start)
    await watching(viewer)
    await send(calls, broker_process, "orders", "k1")

    assert (await seen(viewer))["keys"] == "k1"


async def test_a_filter_the_broker_does_not_know_is_refused(broker_process: BrokerProcess) -> None:
    link = RemotingWatchLink(f"127.0.0.1:{broker_process.port}", lambda _: None)

    with pytest.raises(RequestRefusedError):
        await link.watch(b'{"colour":"red"}')
    await link.close()
