"""RemotingLimits: bounds on the memory, sockets and time that peers can take."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.listening.limits import ListenerLimits, StrangerConnectionLimits
from broker_core.protocol.frame import FrameLimits

MIB = 1024 * 1024
REQUESTS = FrameLimits(header_bytes_max=MIB)
"""Frames of requests. Differs: the original reads headers of any length. Reading 16 MiB of header
takes our decoder about 40 ms, and no RocketMQ client sends a header of more than 200 KiB."""


@dataclass(frozen=True, slots=True)
class StrangerLimits(StrangerConnectionLimits):
    """Limits of connections on which no request of an account has come yet. Immutable.

    The first request of an account may be as long as any other. What these do not name is as in
    RemotingLimits.
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
    """A connection whose peer has more than this unread stops reading until the peer caught up."""
    write_buffer_max: int = 16 * MIB
    """A connection closes if it has more to send while its peer has more than this unread."""
    half_frame_s: float = 30.0
    """The longest wait for the rest of a frame."""
    drain_s: float = 3.0
    """The longest wait of a shutdown for answers in progress."""
    connect_timeout_s: float = 3.0
    """The longest wait of a client for a connection."""
    strangers: StrangerLimits | None = None
    """None where nobody signs in."""
