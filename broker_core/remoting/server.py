"""A port and its connections."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker_core.clock import SystemClock
from broker_core.errors import RemotingError
from broker_core.isolation import isolated
from broker_core.listening.admission import Admission
from broker_core.listening.listener import Listener, listen, listen_at_path
from broker_core.listening.peer_log import PeerLog
from broker_core.remoting.connection import Connection
from broker_core.remoting.dispatch import Dispatcher, Handler, OnRefused
from broker_core.remoting.limits import RemotingLimits
from broker_core.remoting.wire import Wire
from broker_core.service import Service

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from broker_core.clock import Clock, Timer
    from broker_core.listening.budgets import Budgets
    from broker_core.listening.proxies import TrustedProxies
    from broker_core.listening.tls import TlsGate
    from broker_core.remoting.intake import Intake
    from broker_core.remoting.plain_requests import PlainRequests

SWEEP_S = 5.0


class ServerEvents(NamedTuple):
    """Callbacks for a server's events."""

    on_connection_lost: Callable[[Connection], None] | None = None
    on_turn: Callable[[float], None] | None = None
    """Called with the duration in seconds of each turn of a connection's requests."""
    on_refused: OnRefused | None = None
    """Called for each request that a handler refuses."""
    on_writable: Callable[[Intake], None] | None = None
    """Called with each connection whose peer reads again."""


class RemotingServer(Service):
    """Accepts connections and serves their requests. Event loop only.

    Call `start` once and `shutdown` once. `tls` decides which connections are encrypted. With
    `proxies`, each connection must come from one of them and begin with a PROXY header.
    `plain_requests` may serve frames before their handlers. Servers of one process share
    `budgets`.
    """

    def __init__(
        self,
        name: str,
        handlers: Mapping[int, Handler],
        clock: Clock | None = None,
        limits: RemotingLimits | None = None,
        tls: TlsGate | None = None,
        *,
        proxies: TrustedProxies | None = None,
        events: ServerEvents | None = None,
        plain_requests: PlainRequests | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        events = events or ServerEvents()
        self._on_connection_lost = events.on_connection_lost
        self._clock = clock or SystemClock()
        self._limits = limits or RemotingLimits()
        self._admission = Admission(self._limits)
        self._listener: Listener | None = None
        self._tls = tls
        self._proxies = proxies
        self._sweep_timer: Timer | None = None
        self._wire = Wire(
            dispatcher=Dispatcher(handlers, events.on_refused),
            clock=self._clock,
            limits=self._limits,
            owner=self,
            peer_log=PeerLog(self._clock),
            on_made=self._made,
            on_lost=self._lost,
            on_signed_in=self._signed_in,
            on_turn=events.on_turn,
        )
        if budgets is not None:
            self._wire.share(budgets)
        self._wire.plain_requests = plain_requests
        self._wire.on_writable = events.on_writable

    @property
    def connections(self) -> frozenset[Connection]:
        """The open connections."""
        return frozenset(self._wire.connections)

    @property
    def kept_bytes(self) -> int:
        """Bytes of incomplete frames of all connections."""
        return self._wire.kept_bytes

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which the system chooses if `port` is 0.

        Raises:
            RemotingError: the server can't listen there; the text is one sentence.
        """
        try:
            sockets = await listen(host, port, self._limits)
        except OSError as error:
            raise self._cannot_listen(f"{host}:{port}", error) from error
        self._serve(sockets)
        bound: int = sockets[0].getsockname()[1]
        return bound

    def start_at_path(self, path: str) -> None:
        """Listen on a unix socket, whose peers have no address; `shutdown` removes it.

        Raises:
            RemotingError: the server can't listen on the path; the text is one sentence.
        """
        try:
            listening = listen_at_path(path, self._limits)
        except OSError as error:
            raise self._cannot_listen(path, error) from error
        self._serve([listening])

    def _cannot_listen(self, where: str, error: OSError) -> RemotingError:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return RemotingError(f"{self.name} cannot listen on {where}: {reason.lower()}")

    def _serve(self, sockets: list[socket.socket]) -> None:
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

    def override(self, handlers: Mapping[int, Handler]) -> None:
        """Replace the handlers of some codes; see Dispatcher.override."""
        self._wire.dispatcher.override(handlers)

    async def shutdown(self) -> None:
        """Stop accepting and reading, send the answers in progress, then close."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._listener is not None:
            await self._listener.shutdown()
            self._listener = None
        for connection in list(self._wire.connections):
            connection.stop_reading()
        await self._wire.all_answered()
        await super().shutdown()
        await self._wire.close_all()

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
        self._sweep_later()
        now = self._clock.monotonic()
        for connection in list(self._wire.connections):
            with isolated("sweeping a connection", connection):
                connection.sweep(now)
        if self._listener is not None:
            with isolated("sweeping a listener", self.name):
                self._listener.sweep(now)
        if self._tls is not None:
            with isolated("checking certificates", self.name):
                self._tls.reload_if_changed()
                self._tls.warn_of_expiry()
