"""The watch of one broker over the remoting protocol: TRACE_WATCH out, TRACE_EVENTS in."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import msgspec
from asgiref.sync import sync_to_async

from broker_core.errors import RemotingError, RequestRefusedError
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.client import RemotingClient
from console.gateway.access import gateway
from console.gateway.credentials import broker_credentials
from console.gateway.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.remoting.connection import Connection

TIMEOUT_S = 3.0
# A broker closes a connection on which nothing moves for two minutes, and so do we.
KEEP_ALIVE_S = 30.0


class BrokersUnknownError(RemotingError):
    """No name server says which brokers there are."""


class RemotingWatchLink:
    """One connection to one broker. Event loop only."""

    def __init__(self, address: str, on_events: Callable[[bytes], None]) -> None:
        self._address = address
        self._on_events = on_events
        self._closed = asyncio.Event()
        self._client = RemotingClient(
            handlers={RequestCode.TRACE_EVENTS: self._arrived}, credentials=broker_credentials()
        )
        self._client.on_connection_lost = self._lost
        self._keep_alive: asyncio.Task[None] | None = None

    async def watch(self, body: bytes) -> None:
        """Ask for events, or change what was asked for.

        Raises:
            RemotingError: no connection, or no answer.
            RequestRefusedError: the broker will not.
        """
        request = RemotingCommand.request(RequestCode.TRACE_WATCH, body=body)
        answer = await self._client.request(self._address, request, TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefusedError(answer.code, answer.remark or f"code {answer.code}")
        if self._keep_alive is None:
            self._keep_alive = asyncio.get_running_loop().create_task(
                self._stay(), name=f"trace keep-alive {self._address}"
            )

    async def until_closed(self) -> None:
        await self._closed.wait()

    async def close(self) -> None:
        self._closed.set()
        if self._keep_alive is not None:
            self._keep_alive.cancel()
            await asyncio.gather(self._keep_alive, return_exceptions=True)
        await self._client.shutdown()

    def _arrived(self, command: RemotingCommand, _: Connection) -> None:
        self._on_events(command.body)

    def _lost(self, _: Connection) -> None:
        self._closed.set()

    async def _stay(self) -> None:
        """Say now and then that somebody is here, so that a quiet watch is not taken for dead."""
        body = msgspec.json.encode(
            {
                "clientID": f"trebuchet-console@{os.getpid()}",
                "producerDataSet": [],
                "consumerDataSet": [],
            }
        )
        while True:
            await asyncio.sleep(KEEP_ALIVE_S)
            try:
                await self._client.request(
                    self._address,
                    RemotingCommand.request(RequestCode.HEART_BEAT, body=body),
                    TIMEOUT_S,
                )
            except RemotingError:
                # Not there, or hung: the bridge makes a new link either way.
                self._closed.set()
                return


async def find_brokers() -> dict[str, str]:
    """Return name -> address of each master.

    Raises:
        BrokersUnknownError: why they cannot be found.
    """
    try:
        cluster = await sync_to_async(gateway().cluster, thread_sensitive=False)()
    except GatewayError as error:
        raise BrokersUnknownError(str(error)) from error
    return {node.broker_name: node.address for node in cluster.masters}
