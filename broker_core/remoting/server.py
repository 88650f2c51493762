"""RemotingServer: a port, the connections made to it."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from broker_core.clock import SystemClock
from broker_core.errors import RemotingError
from broker_core.remoting.connection import Connection, Wire
from broker_core.remoting.dispatch import Dispatcher, Handler
from broker_core.remoting.limits import PeerLog, RemotingLimits
from broker_core.remoting.listener import Listener, is_loopback, listen
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.clock import Clock, Timer
    from broker_core.remoting.tls import TlsGate

SWEEP_S = 5.0


class RemotingServer(Service):
    """Accepts connections, serves their requests. Event loop only.

    `start` once, `shutdown` once. `tls` decides which connections are secured, `is_proxied` says
    that each begins with a PROXY header. `on_connection_lost` is called with each connection that
    ended.
    """

    def __init__(
        self,
        name: str,
        handlers: Mapping[int, Handler],
        clock: Clock | None = None,
        limits: RemotingLimits | None = None,
        tls: TlsGate | None = None,
        *,
        is_proxied: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.on_connection_lost: Callable[[Connection], None] | None = None
        self._clock = clock or SystemClock()
        self._limits = limits or RemotingLimits()
        self._per_host: Counter[str] = Counter()
        self._listener: Listener | None = None
        self._tls = tls
        self._is_proxied = is_proxied
        self._sweep_timer: Timer | None = None
        self._wire = Wire(
            dispatcher=Dispatcher(handlers),
            clock=self._clock,
            limits=self._limits,
            owner=self,
            peer_log=PeerLog(self._clock),
            on_made=self._made,
            on_lost=self._lost,
        )

    @property
    def connections(self) -> frozenset[Connection]:
        """The peers connected now."""
        return frozenset(self._wire.connections)

    def watch_turns(self, on_turn: Callable[[float], None]) -> None:
        """Have on_turn called with the seconds that each turn of a connection's requests took."""
        self._wire.on_turn = on_turn

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which the system chose when 0 was asked for.

        Raises:
            RemotingError: the address cannot be listened on, one sentence.
        """
        try:
            sockets = await listen(host, port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise RemotingError(
                f"{self.name} cannot listen on {host}:{port}: {reason.lower()}"
            ) from error
        self._listener = Listener(self._wire, sockets, tls=self._tls, is_proxied=self._is_proxied)
        self._listener.start()
        self._sweep_later()
        bound: int = sockets[0].getsockname()[1]
        return bound

    def override(self, handlers: Mapping[int, Handler]) -> None:
        """Have other handlers serve codes of the table for a while; see Dispatcher.override."""
        self._wire.dispatcher.override(handlers)

    async def shutdown(self) -> None:
        """Take nothing new, let answers that are being made leave, then close."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._listener is not None:
            await self._listener.shutdown()
            self._listener = None
        for connection in self._wire.connections:
            connection.stop_reading()
        await self._wire.all_answered()
        await super().shutdown()
        await self._wire.close_all()

    def _made(self, connection: Connection) -> str | None:
        """Count a new connection; return why it is refused, None when it is welcome."""
        host = connection.remote_address.rpartition(":")[0]
        self._per_host[host] += 1
        if len(self._wire.connections) > self._limits.connections_max:
            return f"more than {self._limits.connections_max} connections"
        limits = self._limits
        if self._per_host[host] > limits.connections_per_host_max and (
            limits.is_loopback_bounded or not is_loopback(host)
        ):
            return f"more than {self._limits.connections_per_host_max} connections of one host"
        return None

    def _lost(self, connection: Connection) -> None:
        host = connection.remote_address.rpartition(":")[0]
        self._per_host[host] -= 1
        if self._per_host[host] <= 0:
            del self._per_host[host]
        if self.on_connection_lost is not None:
            self.on_connection_lost(connection)

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
        self._sweep_later()
