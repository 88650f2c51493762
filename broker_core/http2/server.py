"""A port with its connections and the methods that they can call."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

from broker_core.clock import SystemClock, wait_within
from broker_core.errors import RemotingError
from broker_core.http2.connection import Connection
from broker_core.http2.engine import PYTHON, Engine
from broker_core.http2.limits import Http2Limits
from broker_core.http2.wire import Wire
from broker_core.listening.admission import Admission
from broker_core.listening.budgets import Budgets
from broker_core.listening.listener import Listener, listen
from broker_core.listening.peer_log import PeerLog
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.clock import Clock, Timer
    from broker_core.http2.methods import Method
    from broker_core.listening.proxies import TrustedProxies
    from broker_core.listening.tls import TlsGate

SWEEP_S = 5.0
ALPN = ("h2",)
"""ALPN protocols that the TLS gate of an HTTP/2 port offers."""


class Http2Server(Service):
    """Accepts connections and serves gRPC calls. Event loop only.

    Call `start` once and `shutdown` once. `methods` are keyed by path, "/package.Service/Method".
    `tls` decides which connections are encrypted. With `proxies`, each connection must come from
    one of them and begin with a PROXY header. `on_connection_lost` is called with each connection
    that has ended. `engine` is the compiled one if it was built. `budgets` are shared with the
    process's other ports.
    """

    def __init__(
        self,
        name: str,
        methods: Mapping[str, Method],
        clock: Clock | None = None,
        limits: Http2Limits | None = None,
        tls: TlsGate | None = None,
        *,
        proxies: TrustedProxies | None = None,
        on_connection_lost: Callable[[Connection], None] | None = None,
        engine: Engine = PYTHON,
        budgets: Budgets | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self._clock = clock or SystemClock()
        self._limits = limits or Http2Limits()
        self._tls = tls
        self._proxies = proxies
        self._on_connection_lost = on_connection_lost
        self._admission = Admission(self._limits)
        self._listener: Listener | None = None
        self._sweep_timer: Timer | None = None
        self._wire = Wire(
            methods=methods,
            clock=self._clock,
            limits=self._limits,
            owner=self,
            budgets=budgets or Budgets(self._clock),
            peer_log=PeerLog(self._clock),
            on_made=self._made,
            on_lost=self._lost,
            on_signed_in=self._signed_in,
            engine=engine,
        )

    @property
    def connections(self) -> frozenset[Connection]:
        """The open connections."""
        return frozenset(self._wire.connections)

    @property
    def wire(self) -> Wire:
        """The state that the connections share."""
        return self._wire

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which the system chooses if `port` is 0.

        Raises:
            RemotingError: the server can't listen there; the text is one sentence.
        """
        try:
            sockets = await listen(host, port, self._limits)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise RemotingError(
                f"{self.name} cannot listen on {host}:{port}: {reason.lower()}"
            ) from error
        wire = self._wire
        self._listener = Listener(
            partial(Connection, wire),
            wire.connections.__len__,
            sockets,
            self._limits,
            self._clock,
            wire.peer_log,
            tls=self._tls,
            proxies=self._proxies,
        )
        self._listener.start()
        self._sweep_later()
        bound: int = sockets[0].getsockname()[1]
        return bound

    async def shutdown(self) -> None:
        """Stop accepting; give calls in progress `drain_s` to end, then close."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._listener is not None:
            await self._listener.shutdown()
            self._listener = None
        wire = self._wire
        if wire.connections:
            drained = wire.drained = asyncio.get_running_loop().create_future()
            for connection in list(wire.connections):
                connection.drain()
            if not await wait_within(self._clock, drained, self._limits.drain_s):
                for connection in list(wire.connections):
                    connection.finish("the server is shutting down")
                if not await wait_within(self._clock, drained, self._limits.drain_s):
                    for connection in list(wire.connections):
                        connection.abort()
                    await drained
        wire.deadlines.shutdown()
        await super().shutdown()

    def _made(self, connection: Connection) -> str | None:
        """Count a new connection; return the reason if the server refuses it, else None."""
        return self._admission.open(connection.remote_address, len(self._wire.connections))

    def _signed_in(self, connection: Connection) -> None:
        self._admission.sign_in(connection.remote_address)

    def _lost(self, connection: Connection) -> None:
        self._admission.close(connection.remote_address, is_signed_in=connection.is_signed_in)
        if self._on_connection_lost is not None:
            self._on_connection_lost(connection)

    def _sweep_later(self) -> None:
        self._sweep_timer = self._clock.call_at(self._clock.monotonic() + SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        for connection in list(self._wire.connections):
            connection.sweep(now)
        if self._listener is not None:
            self._listener.sweep(now)
        if self._tls is not None:
            self._tls.reload_if_changed()
            self._tls.warn_of_expiry()
        self._sweep_later()
