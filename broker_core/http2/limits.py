"""Http2Limits: bounds on the memory, work and time that HTTP/2 peers can take."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.listening.limits import ListenerLimits, StrangerConnectionLimits

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StrangerHttp2Limits(StrangerConnectionLimits):
    """Limits of connections on which no call of an account has come yet. Immutable."""

    streams_max: int = 100
    buffered_bytes_max: int = MIB
    all_buffered_bytes_max: int = 32 * MIB
    unsent_bytes_max: int = MIB


@dataclass(frozen=True, slots=True)
class Http2Limits(ListenerLimits):
    """Limits of one server. Immutable. `idle_s` is the time without an open stream."""

    streams_max: int = 1_000
    """Calls of one connection at a time; a further one is refused, and clients try again."""
    all_streams_max: int = 100_000
    """The same, of all connections together."""
    message_bytes_max: int = 16 * MIB
    """A request message; a larger one is refused when its length is known."""
    buffered_bytes_max: int = 64 * MIB
    """Unfinished requests of one connection. What is longer than a window waits for its turn."""
    all_buffered_bytes_max: int = 256 * MIB
    """Unfinished requests of all connections; above it the connection that sends closes."""
    unsent_bytes_max: int = 64 * MIB
    """Answers that one peer has not read; above it the connection closes."""
    all_unsent_bytes_max: int = 512 * MIB
    """Answers that all peers have not read; above it the connection that is sent to closes."""
    write_buffer_high: int = MIB
    """A connection with more than this in its transport stops reading until its peer caught up."""
    header_list_bytes_max: int = 16 * 1024
    """The fields of a request, as RFC 9113 6.5.2 counts them. More: the call is refused."""
    header_block_bytes_max: int = 32 * 1024
    """The compressed fields of a request. More: the connection closes."""
    header_block_frames_max: int = 16
    """The frames that they come in. More: the connection closes."""
    nuisances_per_s: float = 100.0
    nuisances_burst: float = 1_000.0
    """Frames that make work and carry nothing: resets, settings, empty DATA, unknown types. Pings
    are answered without a limit: clients of gRPC keep connections alive with them."""
    turn_s: float = 0.02
    """A connection whose frames take longer in one turn goes on in the next."""
    half_frame_s: float = 30.0
    """The longest wait for the rest of a frame, of a field block or of a request."""
    stalled_s: float = 60.0
    """The longest time in which a peer reads nothing although something waits for it."""
    drain_s: float = 3.0
    """The longest wait of a shutdown for calls in progress."""
    strangers: StrangerHttp2Limits | None = None
    """None where nobody signs in."""
