"""Limits on the memory, sockets and time that peers can use."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.listening.limits import ListenerLimits, StrangerConnectionLimits
from broker_core.protocol.frame import FrameLimits

MIB = 1024 * 1024
REQUESTS = FrameLimits(header_bytes_max=MIB)
"""Frames of requests. Differs: RocketMQ reads headers of any length. Decoding 16 MiB of header
takes about 40 ms, and no RocketMQ client sends a header of more than 200 KiB.
"""


@dataclass(frozen=True, slots=True)
class StrangerLimits(StrangerConnectionLimits):
    """Limits for connections on which no account has made a request yet. Immutable.

    An account's first request may be as long as any other. For all other limits see RemotingLimits.
    """

    kept_bytes_max: int = 32 * MIB
    requests_in_flight_max: int = 100
    in_flight_bytes_max: int = MIB
    write_buffer_high: int = 64 * 1024
    write_buffer_max: int = MIB
    half_frame_s: float = 30.0


@dataclass(frozen=True, slots=True)
class RemotingLimits(ListenerLimits):
    """Limits of one server or client. Immutable."""

    frame: FrameLimits = field(default_factory=FrameLimits)
    requests_in_flight_max: int = 10_000
    in_flight_bytes_max: int = 16 * MIB
    """With this many unanswered requests, or bytes of them, a connection stops reading."""
    write_buffer_high: int = 64 * 1024
    """Above this many unread bytes, a connection stops reading until its peer has caught up."""
    write_buffer_max: int = 16 * MIB
    """A connection is closed if it has more to send while more than this is unread."""
    half_frame_s: float = 30.0
    """Maximum wait for the rest of a frame."""
    drain_s: float = 3.0
    """Maximum wait for answers in progress during shutdown."""
    connect_timeout_s: float = 3.0
    """Maximum time for a client to connect."""
    strangers: StrangerLimits | None = None
    """None if the server doesn't require sign-in."""
