"""Limits on the connections of one port."""

from __future__ import annotations

import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StrangerConnectionLimits:
    """Limits of connections on which no account has signed in yet. Immutable."""

    connections_max: int = 2_000
    """More than the kernel queues, because all clients reconnect at the same time after a restart.
    """
    connections_per_host_max: int = 256
    idle_s: float = 30.0


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of one port. Immutable."""

    connections_max: int = 10_000
    connections_per_host_max: int = 1_000
    is_loopback_bounded: bool = False
    """Whether the limit per host also applies to this machine's own addresses: tools and proxies.
    """
    idle_s: float = 120.0
    """A connection without traffic closes after this time."""
    send_buffer_bytes: int = 0
    receive_buffer_bytes: int = 0
    """Size of the kernel buffers of each socket; 0 lets the system choose."""
    backlog: int = 1024
    """Connections that the kernel queues until the server accepts them."""
    strangers: StrangerConnectionLimits | None = None
    """None if sign-in is off."""

    def apply_to(self, one: socket.socket) -> None:
        """Set the buffer sizes of a socket."""
        if self.send_buffer_bytes:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        if self.receive_buffer_bytes:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)
