"""The bridge with a broker process: it watches the broker again after a restart."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from console.gateway.answers import MessageQueue, OutgoingMessage
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to
from console.messages.tracing.bridge import TraceBridge, Viewer

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

TIMEOUT_S = 5.0


async def watching(viewer: Viewer) -> None:
    """Wait until the broker has a watch for this viewer."""
    async with asyncio.timeout(20):
        while True:
            await viewer.wait_for_events()
            for frame in map(json.loads, viewer.take()):
                if frame["type"] == "status" and any(
                    broker["state"] == "watching" for broker in frame["brokers"]
                ):
                    return


async def seen(viewer: Viewer) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            await viewer.wait_for_events()
            frame = json.loads(viewer.take()[-1])
            if frame["events"]:
                event: dict[str, Any] = frame["events"][0]
                return event


async def test_a_restarted_broker_is_watched_again(broker_process: BrokerProcess) -> None:
    brokers = RemoteBrokers([broker_process.namesrv], TIMEOUT_S)
    gateway = gateway_to(brokers)
    bridge = TraceBridge(gateway.cluster, gateway.watch, backoff_first_s=0.05)
    viewer = Viewer(1)
    bridge.join(viewer)
    await watching(viewer)

    await asyncio.to_thread(broker_process.kill)
    await asyncio.to_thread(broker_process.start)
    await watching(viewer)
    message = OutgoingMessage("TBW102", b"hello", tags="TagA", keys="k1", born_ms=1)
    await gateway.messages.route("TBW102")
    await gateway.messages.send(MessageQueue("orders", "broker-a", 0), message, "pg")
    event = await seen(viewer)
    await bridge.shutdown()
    await gateway.messages.close()
    await asyncio.to_thread(brokers.close)

    assert event["keys"] == "k1"
