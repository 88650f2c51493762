"""A live trace watch as a test sees it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.remoting.client import RemotingClient
from tests.support.client import Client, json_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.protocol.command import RemotingCommand
    from broker_core.protocol.signature import Credentials
    from broker_core.remoting.connection import Connection


class Watched:
    """The events that a broker pushes to a connection; the test has the client's role."""

    def __init__(self, address: str) -> None:
        self.batches: list[dict[str, Any]] = []
        self.watch_id = ""
        self.is_resumed = False
        self._arrived = asyncio.Event()
        self.client = Client(address, {RequestCode.TRACE_EVENTS: self._take})

    def _take(self, command: RemotingCommand, _: Connection) -> None:
        self.batches.append(json_body(command))
        self._arrived.set()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for batch in self.batches for event in batch["events"]]

    async def begin(self, **options: Any) -> None:
        answer = await self.client.ask(RequestCode.TRACE_WATCH, json.dumps(options).encode())
        assert answer.code == ResponseCode.SUCCESS
        self.watch_id = answer.ext_fields["watchId"]
        self.is_resumed = answer.ext_fields["resumed"] == "true"

    def sign(self, credentials: Credentials) -> None:
        """Sign requests from now on."""
        self.client.remoting = RemotingClient(
            handlers={RequestCode.TRACE_EVENTS: self._take}, signer=credentials
        )

    async def recorded(self, **options: Any) -> list[dict[str, Any]]:
        """Query the recorder; return its events."""
        answer = await self.client.ask(RequestCode.TRACE_RECORDED, json.dumps(options).encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        events: list[dict[str, Any]] = json_body(answer)["events"]
        return events

    async def level(self, **options: Any) -> dict[str, Any]:
        """Set the level, if given; return the level in force."""
        answer = await self.client.ask(RequestCode.TRACE_LEVEL, json.dumps(options).encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        found: dict[str, Any] = json_body(answer)
        return found

    def come(self, stage: str) -> int:
        """Return how many events of a stage have arrived."""
        return sum(event["stage"] == stage for event in self.events)

    async def next(
        self, count: int, meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> list[dict[str, Any]]:
        """Wait for the given number of events, and return all; `meanwhile` advances a clock."""
        async with asyncio.timeout(60):
            while len(self.events) < count:
                self._arrived.clear()
                if meanwhile is None:
                    await self._arrived.wait()
                else:
                    await meanwhile()
        return self.events

    async def shutdown(self) -> None:
        await self.client.shutdown()
