"""Brokers that push trace events, without sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from console.gateway.fakes.broker import FakeBroker
from console.gateway.fakes.cluster import FakeCluster
from console.gateway.fakes.watch import FakeWatches
from console.messages.tracing.bridge import TraceBridge

if TYPE_CHECKING:
    from collections.abc import Callable


def an_event(**fields: Any) -> dict[str, Any]:
    return {
        "seq": "1",
        "timeMs": "1795000000000",
        "stage": "stored",
        "topic": "orders",
        "queueId": 0,
        "queueOffset": "7",
        **fields,
    }


class TracedBroker(FakeWatches):
    """One broker, and the watches that a bridge opened on it."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        super().__init__(self.broker)

    def bridge(self, **seconds: float) -> TraceBridge:
        return TraceBridge(FakeCluster(self.broker), self, **seconds)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Run other tasks until a condition holds."""
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)  # the code under test does the work

    async def until_watched(self) -> None:
        await self.until(lambda: any(watch.subscriptions for watch in self.open_watches))
