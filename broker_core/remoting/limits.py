"""RemotingLimits: bounds on the memory, sockets and time that peers can take."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker_core.protocol.frame import FrameLimits

if TYPE_CHECKING:
    from broker_core.clock import Clock

logger = logging.getLogger(__name__)

MIB = 1024 * 1024

LOG_WINDOW_S = 10.0
LOG_LINES_PER_WINDOW = 5


@dataclass(frozen=True, slots=True)
class StrangerLimits:
    """Limits of connections on which no request of an account has come yet. Immutable.

    The first request of an account may be as long as any other. What these do not name is as in
    RemotingLimits.
    """

    connections_max: int = 2_000
    """More than the kernel queues: after a restart all clients come at once."""
    connections_per_host_max: int = 256
    kept_bytes_max: int = 32 * MIB
    requests_in_flight_max: int = 100
    in_flight_bytes_max: int = MIB
    write_buffer_high: int = 64 * 1024
    write_buffer_max: int = MIB
    idle_s: float = 30.0
    half_frame_s: float = 30.0


@dataclass(frozen=True, slots=True)
class RemotingLimits:
    """Limits of one server or client. Immutable."""

    frame: FrameLimits = field(default_factory=FrameLimits)
    connections_max: int = 10_000
    connections_per_host_max: int = 1_000
    is_loopback_bounded: bool = False
    """Whether the limit per host also binds this machine's own addresses: tools and proxies."""
    kept_bytes_max: int = 256 * MIB
    """Beginnings of unfinished frames, of all connections together."""
    requests_in_flight_max: int = 10_000
    in_flight_bytes_max: int = 64 * MIB
    """With this many unanswered requests, or bytes of them, a connection stops reading."""
    write_buffer_high: int = MIB
    """A connection whose peer has more than this unread stops reading until the peer caught up."""
    write_buffer_max: int = 64 * MIB
    """A connection whose peer has more than this unread closes: pushes arrive unasked."""
    idle_s: float = 120.0
    """A connection without traffic closes after this time."""
    half_frame_s: float = 30.0
    """The longest wait for the rest of a frame."""
    drain_s: float = 3.0
    """The longest wait of a shutdown for answers in progress."""
    send_buffer_bytes: int = 0
    receive_buffer_bytes: int = 0
    """Kernel buffers of each socket; 0 leaves the size to the system."""
    backlog: int = 1024
    """Connections that the kernel queues until the server accepts them."""
    connect_timeout_s: float = 3.0
    """The longest wait of a client for a connection."""
    strangers: StrangerLimits | None = None
    """None where nobody signs in."""

    def apply_to(self, one: socket.socket) -> None:
        """Set the buffer sizes of a socket."""
        if self.send_buffer_bytes:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        if self.receive_buffer_bytes:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)


class PeerLog:
    """Logs misbehaving peers, too rarely to let them fill the disk. Event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window_to = 0.0
        self._lines = 0

    def report(self, event: str, peer: str, reason: object) -> None:
        """Log an event about a peer, up to LOG_LINES_PER_WINDOW lines a window."""
        now = self._clock.monotonic()
        if now >= self._window_to:
            if self._lines > LOG_LINES_PER_WINDOW:
                logger.warning(
                    "more lines about peers: not_logged=%d", self._lines - LOG_LINES_PER_WINDOW
                )
            self._window_to = now + LOG_WINDOW_S
            self._lines = 0
        self._lines += 1
        if self._lines <= LOG_LINES_PER_WINDOW:
            logger.warning("%s: peer=%s reason=%s", event, peer, reason)
