"""Door: limits the number of connections and how long each may stall.

uvicorn limits the requests in progress and closes a connection that stays idle after a response.
But it waits indefinitely for a peer to finish its headers, its body or its reading, and lets one
peer take all connections. The door counts connections, in total and by network, and checks each of
them every SWEEP_S: a phase that exceeds its limit ends the connection.
"""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from console.lib.networks import network_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable
    from ipaddress import IPv4Network, IPv6Network

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 1_024
NETWORK_CONNECTIONS_MAX = 128
"""Enough for an office behind one address: a browser opens six, and one for each Live page."""
SWEEP_S = 0.5
REMIND_EVERY_S = 60.0


class Phase(Enum):
    """What a connection is waiting for."""

    HEADERS = "headers"
    BODY = "body"
    ANSWER = "answer"
    READER = "reader"
    CLOSE = "close"


PHASE_SECONDS_MAX: dict[Phase, float] = {
    Phase.HEADERS: 10.0,
    Phase.BODY: 30.0,
    # Our own work; requests to brokers have their own timeouts.
    Phase.ANSWER: float("inf"),
    Phase.READER: 30.0,
    Phase.CLOSE: 5.0,
}


class Connection(Protocol):
    """The door's view of a server connection."""

    transport: asyncio.Transport

    def phase(self) -> tuple[Phase, object]:
        """Return the phase, and a token that distinguishes phases of the same kind."""
        ...


@dataclass(slots=True)
class AdmittedConnection:
    """An admitted connection: its network, its phase, and when the phase began."""

    network: str
    phase: tuple[Phase, object]
    since: float


class Door:
    """Admits connections and ends those that stall. Event loop only."""

    def __init__(
        self,
        *,
        connections_max: int = CONNECTIONS_MAX,
        network_connections_max: int = NETWORK_CONNECTIONS_MAX,
        proxies: Iterable[IPv4Network | IPv6Network] = (),
    ) -> None:
        self._connections_max = connections_max
        self._network_connections_max = network_connections_max
        # All visitors share these addresses; the proxy must limit its own clients.
        self._proxies = tuple(proxies)
        self._stays: dict[Connection, AdmittedConnection] = {}
        self._by_network: dict[str, int] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._reminded_at = float("-inf")

    def admit(self, connection: Connection, address: str, loop: asyncio.AbstractEventLoop) -> bool:
        """Admit a connection; return False if a limit is reached."""
        network = network_of(address)
        inside = self._by_network.get(network, 0)
        full = len(self._stays) >= self._connections_max
        if full or (inside >= self._network_connections_max and not self._is_proxy(address)):
            if loop.time() - self._reminded_at >= REMIND_EVERY_S:
                self._reminded_at = loop.time()
                logger.warning(
                    "connection refused network=%s network_connections=%d connections=%d",
                    network,
                    inside,
                    len(self._stays),
                )
            return False
        self._by_network[network] = inside + 1
        self._stays[connection] = AdmittedConnection(network, (Phase.HEADERS, None), loop.time())
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(SWEEP_S, self._sweep, loop)
        return True

    def hand_over(self, old: Connection, new: Connection) -> None:
        """Replace `old` with `new` after an upgrade of the connection."""
        self._stays[new] = self._stays.pop(old)

    def leave(self, connection: Connection) -> None:
        stay = self._stays.pop(connection, None)
        if stay is None:
            return
        self._by_network[stay.network] -= 1
        if not self._by_network[stay.network]:
            del self._by_network[stay.network]

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection, stay in self._stays.items():
            phase = connection.phase()
            if phase != stay.phase:
                stay.phase, stay.since = phase, now
            elif now - stay.since >= PHASE_SECONDS_MAX[phase[0]]:
                self._end(connection, phase[0])
        self._sweep_timer = loop.call_later(SWEEP_S, self._sweep, loop) if self._stays else None

    def _end(self, connection: Connection, phase: Phase) -> None:
        if phase in (Phase.READER, Phase.CLOSE):
            # Closing would wait for the peer to read the rest.
            connection.transport.abort()
        else:
            connection.transport.close()

    def _is_proxy(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._proxies)
