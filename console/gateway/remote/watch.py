"""WatchGateway over the remoting protocol, with one connection per watch."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from broker_core.protocol.codes import RequestCode
from console.gateway.errors import GatewayError
from console.gateway.remote.requester import Requester
from console.gateway.requests import watch as requests

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from console.gateway.answers import TraceBatch, WatchFilter, WatchPlace

logger = logging.getLogger(__name__)

# Both ends close a connection that is idle for two minutes.
KEEP_ALIVE_S = 30.0
UNWATCH_S = 1.0
"""If the broker hangs, it detects the lost connection itself."""


class RemoteWatches:
    """Works in any event loop; holds no state."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def open(self, address: str, on_batch: Callable[[TraceBatch], None]) -> RemoteWatch:
        return RemoteWatch(address, on_batch, self._timeout_s)


class RemoteWatch:
    """One connection to one broker. Event loop only."""

    def __init__(
        self, address: str, on_batch: Callable[[TraceBatch], None], timeout_s: float
    ) -> None:
        self._address = address
        self._on_batch = on_batch
        self._closed = asyncio.Event()
        self._requester = Requester(
            timeout_s, {RequestCode.TRACE_EVENTS: self._arrived}, on_lost=self._lost
        )
        self._keep_alive: asyncio.Task[None] | None = None

    async def set_filters(
        self, filters: Mapping[str, WatchFilter], after: WatchPlace | None = None
    ) -> bool:
        is_resumed = await requests.trace_watch(self._requester, self._address, filters, after)
        if self._keep_alive is None:
            self._keep_alive = asyncio.get_running_loop().create_task(
                self._stay(), name=f"trace keep-alive {self._address}"
            )
        return is_resumed

    async def until_closed(self) -> None:
        await self._closed.wait()

    async def close(self) -> None:
        is_watching = self._keep_alive is not None and not self._closed.is_set()
        self._closed.set()
        if is_watching:
            with suppress(GatewayError, TimeoutError):
                async with asyncio.timeout(UNWATCH_S):
                    await requests.trace_unwatch(self._requester, self._address)
        if self._keep_alive is not None:
            self._keep_alive.cancel()
            await asyncio.gather(self._keep_alive, return_exceptions=True)
        await self._requester.shutdown()

    def _arrived(self, command: RemotingCommand, _: Connection) -> None:
        try:
            batch = requests.trace_batch(command.body)
        except ValueError as error:
            logger.warning("trace events unreadable address=%s error=%s", self._address, error)
            return
        self._on_batch(batch)

    def _lost(self, _: Connection) -> None:
        self._closed.set()

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_S)
            try:
                await requests.keep_alive(
                    self._requester, self._address, f"trebuchet-console@{os.getpid()}"
                )
            except GatewayError:
                # The broker is gone or hangs; in both cases the owner opens a new watch.
                self._closed.set()
                return
            except Exception:
                self._closed.set()
                raise
