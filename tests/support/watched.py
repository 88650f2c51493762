"""A watch of the live trace, as a test sees it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.client import Client, json_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection


class Watched:
    """The events that a broker pushes to a connection of its own."""

    def __init__(self, address: str) -> None:
        self.batches: list[dict[str, Any]] = []
        self.watch_id = ""
        self._arrived = asyncio.Event()
        self._client = Client(address, {RequestCode.TRACE_EVENTS: self._take})

    def _take(self, command: RemotingCommand, _: Connection) -> None:
        self.batches.append(json_body(command))
        self._arrived.set()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for batch in self.batches for event in batch["events"]]

    async def begin(self, **wanted: Any) -> None:
        answer = await self._client.ask(RequestCode.TRACE_WATCH, json.dumps(wanted).encode())
        assert answer.code == ResponseCode.SUCCESS
        self.watch_id = answer.ext_fields["watchId"]

    async def next(
        self, count: int, meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> list[dict[str, Any]]:
        """Wait until so many events have come, and return all; `meanwhile` moves a clock."""
        async with asyncio.timeout(60):
            while len(self.events) < count:
                self._arrived.clear()
                if meanwhile is None:
                    await self._arrived.wait()
                else:
                    await meanwhile()
        return self.events

    async def shutdown(self) -> None:
        await self._client.shutdown()
