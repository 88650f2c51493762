"""Brokers that push trace events, without sockets."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.errors import BrokerError


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


class FakeLink:
    """A watch that a test feeds."""

    def __init__(self, brokers: FakeBrokers, on_events: Callable[[bytes], None]) -> None:
        self.on_events = on_events
        self.watches: list[bytes] = []
        self.is_closed = False
        self._brokers = brokers
        self._lost = asyncio.Event()

    async def watch(self, body: bytes) -> None:
        await asyncio.sleep(0)
        if self._brokers.failure is not None:
            raise self._brokers.failure
        self.watches.append(body)

    async def until_closed(self) -> None:
        await self._lost.wait()

    async def close(self) -> None:
        self.is_closed = True

    def lose(self) -> None:
        self._lost.set()


class FakeBrokers:
    """What the bridge sees of the world: brokers by name, links it opened to them."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = addresses
        self.failure: BrokerError | None = None
        self.unknown: BrokerError | None = None
        self.asked = 0
        self.links: list[FakeLink] = []

    async def find(self) -> Mapping[str, str]:
        self.asked += 1
        if self.unknown is not None:
            raise self.unknown
        return self.addresses

    def open(self, address: str, on_events: Callable[[bytes], None]) -> FakeLink:
        link = FakeLink(self, on_events)
        self.links.append(link)
        return link

    @property
    def open_links(self) -> list[FakeLink]:
        return [link for link in self.links if not link.is_closed]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let everything else run until something is so."""
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)  # what is waited for belongs to the code under test

    async def until_watched(self) -> None:
        await self.until(lambda: any(link.watches for link in self.open_links))

    def push(self, events: list[dict[str, Any]], *, dropped: int = 0, watch_id: str = "1") -> None:
        body = json.dumps({"watchId": watch_id, "dropped": str(dropped), "events": events})
        self.open_links[-1].on_events(body.encode())
