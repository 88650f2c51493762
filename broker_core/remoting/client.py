"""Send requests to brokers and name servers, over one connection each.

The client needs no broker configuration: `RemotingClient()` works.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING

from broker_core.clock import SystemClock, wait_within
from broker_core.errors import RemotingConnectError
from broker_core.isolation import isolated
from broker_core.listening.peer_log import PeerLog
from broker_core.remoting.broker_hosts import refuse_peer
from broker_core.remoting.connection import Connection
from broker_core.remoting.dispatch import Dispatcher, Handler
from broker_core.remoting.limits import RemotingLimits
from broker_core.remoting.wire import Wire
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.clock import Clock, Timer
    from broker_core.protocol.command import RemotingCommand
    from broker_core.protocol.signature import RequestSigner

REQUEST_TIMEOUT_S = 5.0
SWEEP_S = 5.0
UNIX_HOST = "localhost"
"""The name that a certificate behind a unix socket must have."""


class RemotingClient(Service):
    """Connects to an address on the first request to it, and again after a connection has ended.

    Belongs to the event loop that first uses it. `handlers` serve the requests that peers send over
    its connections, including pushes; `tls` encrypts the connections; `signer` signs every request.
    `trusts` says which addresses are configured; at any other address, the client sends requests
    only to a peer that can be a broker (`broker_hosts`). Without it, every address is trusted.
    The client never repeats a failed request: only the caller can decide whether that is safe.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler] | None = None,
        clock: Clock | None = None,
        limits: RemotingLimits | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        signer: RequestSigner | None = None,
        trusts: Callable[[str], bool] | None = None,
    ) -> None:
        super().__init__()
        self._trusts = trusts
        self.on_connection_lost: Callable[[Connection], None] | None = None
        self._clock = clock or SystemClock()
        self._limits = limits or RemotingLimits()
        self._tls = tls
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Future[Connection]] = {}
        self._sweep_timer: Timer | None = None
        self._is_closed = False
        self._wire = Wire(
            dispatcher=Dispatcher(handlers or {}),
            clock=self._clock,
            limits=self._limits,
            owner=self,
            peer_log=PeerLog(self._clock),
            on_made=lambda _: None,
            on_lost=self._lost,
            signer=signer,
        )

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> RemotingCommand:
        """Send a request to "host:port"; return the response with any code.

        `timeout_s` includes connecting and waiting for the response.

        An address that starts with / is the path of a unix socket.

        Raises:
            RemotingConnectError: no connection; the request wasn't sent.
            RemotingTimeoutError: no response in time.
            RemotingSendError: the connection ended before the response.
        """
        started = self._clock.monotonic()
        connection = await self.connection(address, timeout_s)
        left_s = timeout_s - (self._clock.monotonic() - started)
        return await connection.request(command, max(left_s, 0.0))

    async def oneway(
        self, address: str, command: RemotingCommand, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        """Send a request without a response; it may not arrive.

        Raises:
            RemotingConnectError: no connection.
        """
        (await self.connection(address, timeout_s)).oneway(command)

    async def connection(self, address: str, timeout_s: float = REQUEST_TIMEOUT_S) -> Connection:
        """Return the open connection to "host:port", or create one.

        Raises:
            RemotingConnectError: the client can't connect; the text is one sentence.
        """
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        if self._is_closed:
            raise RemotingConnectError("the client is shut down")
        connecting = self._connecting.get(address)
        if connecting is None:
            connecting = asyncio.get_running_loop().create_future()
            # Retrieve the error, because every waiting caller may have been cancelled by then.
            connecting.add_done_callback(_look_at_error)
            self._connecting[address] = connecting
            task = self.spawn(self._connect(address, connecting), name=f"connect to {address}")
            # Not the task itself: a task cancelled before its first step runs no code.
            task.add_done_callback(partial(self._has_tried, address, connecting))
        within_s = min(timeout_s, self._limits.connect_timeout_s)
        if not await wait_within(self._clock, connecting, within_s):
            raise RemotingConnectError(f"no connection to {address} within {within_s:g} s")
        return connecting.result()

    def close(self, address: str) -> None:
        """Close the connection to an address, if there is one."""
        connection = self._connections.get(address)
        if connection is not None:
            connection.close()

    async def shutdown(self) -> None:
        """Close all connections; pending requests raise RemotingSendError."""
        self._is_closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        await super().shutdown()
        await self._wire.close_all()

    async def _connect(self, address: str, connecting: asyncio.Future[Connection]) -> None:
        try:
            transport, connection = await self._transport_to(address)
            self._limits.apply_to(transport.get_extra_info("socket"))
        except (OSError, UnicodeError) as error:
            connecting.set_exception(
                RemotingConnectError(f"no connection to {address}: {_reason(error)}")
            )
        except RemotingConnectError as error:
            connecting.set_exception(error)
        else:
            self._connections[address] = connection
            if self._sweep_timer is None:
                self._sweep_later()
            connecting.set_result(connection)

    def _has_tried(
        self, address: str, connecting: asyncio.Future[Connection], _: asyncio.Task[None]
    ) -> None:
        del self._connecting[address]
        if not connecting.done():
            connecting.set_exception(RemotingConnectError("the client is shut down"))

    async def _transport_to(self, address: str) -> tuple[asyncio.Transport, Connection]:
        loop = asyncio.get_running_loop()
        connection = Connection(self._wire)
        try:
            if address.startswith("/"):
                return await loop.create_unix_connection(
                    lambda: connection,
                    address,
                    ssl=self._tls,
                    server_hostname=None if self._tls is None else UNIX_HOST,
                )
            host, port = split_address(address)
            made = await loop.create_connection(lambda: connection, host, port, ssl=self._tls)
        except asyncio.CancelledError:
            connection.cancel_setup()
            raise
        if self._trusts is not None and not self._trusts(address):
            refusal = refuse_peer(made[0])
            if refusal is not None:
                raise RemotingConnectError(f"no connection to {address}: {refusal}")
        return made

    def _lost(self, connection: Connection) -> None:
        for address, known in list(self._connections.items()):
            if known is connection:
                del self._connections[address]
        if self.on_connection_lost is not None:
            self.on_connection_lost(connection)

    def _sweep_later(self) -> None:
        self._sweep_timer = self._clock.call_at(self._clock.monotonic() + SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        for connection in list(self._wire.connections):
            with isolated("sweeping a connection", connection):
                connection.sweep(now)
        # Cancel the timer with the last connection, so that a short-lived caller's loop ends clean.
        self._sweep_timer = None
        if self._wire.connections:
            self._sweep_later()


def split_address(address: str) -> tuple[str, int]:
    """Return the host and port of "host:port"; an IPv6 host may be in brackets.

    Raises:
        RemotingConnectError: the text doesn't have this form.
    """
    host, _, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise RemotingConnectError(f"{address!r} is not an address of the form host:port")
    return host, int(port)


def _look_at_error(future: asyncio.Future[Connection]) -> None:
    if not future.cancelled():
        future.exception()


def _reason(error: OSError | UnicodeError) -> str:
    # asyncio rewords strerror, and the errno of a name lookup or of TLS isn't the system's.
    of_others = (socket.gaierror, ssl.SSLError)
    if isinstance(error, OSError) and error.errno and not isinstance(error, of_others):
        return os.strerror(error.errno).lower()
    return str(error).lower()
