"""Limits on the memory, work and time that HTTP/2 peers can use."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.listening.limits import ListenerLimits, StrangerConnectionLimits
from broker_core.listening.turns import TURN_S

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StrangerHttp2Limits(StrangerConnectionLimits):
    """Limits for connections on which no account has made a call yet. Immutable."""

    streams_max: int = 100
    buffered_bytes_max: int = MIB
    all_buffered_bytes_max: int = 32 * MIB
    unsent_bytes_max: int = MIB


@dataclass(frozen=True, slots=True)
class Http2Limits(ListenerLimits):
    """Limits of one server. Immutable. `idle_s` is the maximum time without an open stream."""

    streams_max: int = 1_000
    """Concurrent calls of one connection; more are refused, and clients retry."""
    all_streams_max: int = 100_000
    """Concurrent calls of all connections together."""
    message_bytes_max: int = 16 * MIB
    """Size of a request message; a larger one is refused as soon as its length is known."""
    buffered_bytes_max: int = 64 * MIB
    """Unfinished requests of one connection. Requests longer than a window wait for their turn."""
    all_buffered_bytes_max: int = 256 * MIB
    """Unfinished requests of all connections; above it, the connection that sends more is closed.
    """
    unsent_bytes_max: int = 64 * MIB
    """Answers that one peer hasn't read; above it, the connection is closed."""
    all_unsent_bytes_max: int = 512 * MIB
    """Answers that all peers haven't read; above it, the connection being written to is closed."""
    write_buffer_high: int = MIB
    """With more than this in its transport, a connection stops reading until its peer has caught
    up.
    """
    header_list_bytes_max: int = 16 * 1024
    """Fields of a request, counted as in RFC 9113 6.5.2. Above it, the call is refused."""
    header_block_bytes_max: int = 32 * 1024
    """Compressed fields of a request. Above it, the connection is closed."""
    header_block_frames_max: int = 16
    """Frames of one field block. Above it, the connection is closed."""
    useless_frames_per_s: float = 100.0
    useless_frames_burst: float = 1_000.0
    """Frames that cost work and carry no data: resets, settings, empty DATA, unknown types. PINGs
    are
    answered without a limit because gRPC clients keep connections alive with them.
    """
    turn_s: float = TURN_S
    """A connection whose frames take longer than this in one turn continues in the next."""
    half_frame_s: float = 30.0
    """Maximum wait for the rest of a frame, a field block or a request."""
    stalled_s: float = 60.0
    """Maximum time in which a peer reads nothing although data is waiting for it."""
    drain_s: float = 3.0
    """Maximum wait for calls in progress during shutdown."""
    strangers: StrangerHttp2Limits | None = None
    """None if the server doesn't require sign-in."""
