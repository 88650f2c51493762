"""RemotingClient: requests to brokers or name servers, over one connection each.

Usable without any of a broker's configuration: `RemotingClient()` will do.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from broker_core.clock import SystemClock
from broker_core.errors import RemotingConnectError
from broker_core.remoting.connection import Connection, Wire
from broker_core.remoting.dispatch import Dispatcher, Handler
from broker_core.remoting.limits import PeerLog, RemotingLimits
from broker_core.remoting.waiting import wait_within
from broker_core.service import Service

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from broker_core.clock import Clock, Timer
    from broker_core.protocol.command import RemotingCommand
    from broker_core.protocol.signature import Credentials

REQUEST_TIMEOUT_S = 5.0
SWEEP_S = 5.0


class RemotingClient(Service):
    """Connects to an address when something is first asked of it, again after a connection ended.

    One event loop only, the one it is first used on. `handlers` serve what peers ask of us on
    our own connections, pushes included; `tls` secures them; `credentials` sign every request
    that is sent. A failed request is never sent again here: only the caller knows whether it may
    be.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler] | None = None,
        clock: Clock | None = None,
        limits: RemotingLimits | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        credentials: Credentials | None = None,
    ) -> None:
        super().__init__()
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
            credentials=credentials,
        )

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> RemotingCommand:
        """Ask "host:port", return its answer, whatever its code. Connecting takes of the time too.

        Raises:
            RemotingConnectError: no connection; the request was not sent.
            RemotingTimeoutError: no answer in time.
            RemotingSendError: the connection ended before the answer.
        """
        started = self._clock.monotonic()
        connection = await self.connection(address, timeout_s)
        left_s = timeout_s - (self._clock.monotonic() - started)
        return await connection.request(command, max(left_s, 0.0))

    async def oneway(
        self, address: str, command: RemotingCommand, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        """Send a request that is not answered; it is not known whether it arrives.

        Raises:
            RemotingConnectError: no connection.
        """
        (await self.connection(address, timeout_s)).oneway(command)

    async def connection(self, address: str, timeout_s: float = REQUEST_TIMEOUT_S) -> Connection:
        """Return the open connection to "host:port", made now when there is none.

        Raises:
            RemotingConnectError: none can be made, one sentence.
        """
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        if self._is_closed:
            raise RemotingConnectError("the client is shut down")
        connecting = self._connecting.get(address)
        if connecting is None:
            connecting = asyncio.get_running_loop().create_future()
            # Those who wait may all have gone by the time it fails.
            connecting.add_done_callback(_look_at_error)
            self._connecting[address] = connecting
            self.spawn(self._connect(address, connecting), name=f"connect to {address}")
        if not await wait_within(self._clock, connecting, timeout_s):
            raise RemotingConnectError(f"no connection to {address} within {timeout_s:g} s")
        return connecting.result()

    def close(self, address: str) -> None:
        """Close the connection to an address, if there is one."""
        connection = self._connections.get(address)
        if connection is not None:
            connection.close()

    async def shutdown(self) -> None:
        """Close all connections; requests that wait end in RemotingSendError."""
        self._is_closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        await super().shutdown()
        await self._wire.close_all()

    async def _connect(self, address: str, connecting: asyncio.Future[Connection]) -> None:
        try:
            host, port = split_address(address)
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(self._wire), host, port, ssl=self._tls
            )
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
        finally:
            del self._connecting[address]
            if not connecting.done():
                connecting.set_exception(RemotingConnectError("the client is shut down"))

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
            connection.sweep(now)
        # Without connections no timer is left behind in the loop of a short-lived caller.
        self._sweep_timer = None
        if self._wire.connections:
            self._sweep_later()


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port"; an IPv6 host may stand in brackets.

    Raises:
        RemotingConnectError: it is no such address.
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
    # asyncio puts its own words into strerror; a failed look-up has a number of its own space.
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno).lower()
    return str(error).lower()
