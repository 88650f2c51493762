"""RemotingLimits, everything that bounds what peers can make a process hold or wait for."""

from __future__ import annotations

import logging
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
class RemotingLimits:
    """Bounds of one server or client. Immutable."""

    frame: FrameLimits = field(default_factory=FrameLimits)
    connections_max: int = 10_000
    connections_per_host_max: int = 1_000
    is_loopback_bounded: bool = False
    """Whether that holds for this machine's own addresses, from which tools and proxies connect."""
    kept_bytes_max: int = 256 * MIB
    """Beginnings of frames, all connections together."""
    requests_in_flight_max: int = 10_000
    in_flight_bytes_max: int = 64 * MIB
    """With so many requests, or bytes of bodies, that wait for answers a peer is not read from."""
    write_buffer_high: int = MIB
    """A peer with more than this unread is not read from until it caught up."""
    write_buffer_max: int = 64 * MIB
    """A peer with more than this unread is disconnected: it gets pushes without asking."""
    idle_s: float = 120.0
    """A connection on which nothing came or went for this long is closed."""
    half_frame_s: float = 30.0
    """How long the rest of a frame may take."""
    drain_s: float = 3.0
    """How long shutdown waits for answers that are being made."""


class PeerLog:
    """Log lines about misbehaving peers, so few that no peer can fill a disk with them.

    Event loop only.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window_to = 0.0
        self._lines = 0

    def report(self, event: str, peer: str, reason: object) -> None:
        """Log one event about a peer, unless too many were logged just before."""
        now = self._clock.monotonic()
        if now >= self._window_to:
            if self._lines > LOG_LINES_PER_WINDOW:
                logger.warning(
                    "more of the same about peers: left_out=%d", self._lines - LOG_LINES_PER_WINDOW
                )
            self._window_to = now + LOG_WINDOW_S
            self._lines = 0
        self._lines += 1
        if self._lines <= LOG_LINES_PER_WINDOW:
            logger.warning("%s: peer=%s reason=%s", event, peer, reason)
