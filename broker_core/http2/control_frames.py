"""Handlers of frames that control a connection or end a stream (RFC 9113, 6.3 to 6.9).

Each handler receives the complete `payload`. It raises Http2ConnectionError or Http2StreamError,
which the connection turns into an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import Http2ConnectionError
from broker_core.http2 import codes, dispatch, frames
from broker_core.http2.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.http2.connection import Connection

RAPID_RESET_S = 1.0
"""A call cancelled within this time counts as useless work. Later cancels don't count: when a
broker
is slow, hundreds of calls a second end at their deadlines.
"""


def priority(connection: Connection, _flags: int, stream_id: int, payload: bytes) -> None:
    """Check a PRIORITY and ignore it: RFC 9113 deprecates priorities."""
    _of_a_stream("PRIORITY", stream_id)
    _check_size("PRIORITY", payload, 5)
    connection.count_useless("PRIORITY frames")


def rst_stream(connection: Connection, _flags: int, stream_id: int, payload: bytes) -> None:
    """Cancel a call."""
    _of_a_stream("RST_STREAM", stream_id)
    _check_size("RST_STREAM", payload, 4)
    connection.requests.require_begun("RST_STREAM", stream_id)
    call = connection.requests.streams.get(stream_id)
    if call is not None:
        if connection.now - call.received_at < RAPID_RESET_S:
            connection.count_useless("calls cancelled at once")
        connection.requests.leave(call)
        dispatch.cancelled(call)


def settings(connection: Connection, flags: int, stream_id: int, payload: bytes) -> None:
    """Apply the peer's settings in order and acknowledge them."""
    _of_the_connection("SETTINGS", stream_id)
    if flags & codes.ACK:
        _check_size("acknowledgement of SETTINGS", payload, 0)
        return
    if len(payload) % frames.SETTING_BYTES:
        raise Http2ConnectionError(
            ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS has {len(payload)} bytes, no multiple of 6"
        )
    connection.count_useless("SETTINGS frames")
    outbox = connection.outbox
    for name, value in frames.settings_of(payload):
        if name == codes.INITIAL_WINDOW_SIZE:
            if value > frames.WINDOW_MAX:
                raise Http2ConnectionError(
                    ErrorCode.FLOW_CONTROL_ERROR, f"SETTINGS_INITIAL_WINDOW_SIZE is {value}"
                )
            calls = connection.requests.streams.values()
            outbox.set_initial_window(value, max((call.send_window for call in calls), default=0))
        elif name == codes.MAX_FRAME_SIZE:
            if not frames.FRAME_BYTES_DEFAULT <= value <= frames.FRAME_BYTES_MAX:
                raise Http2ConnectionError(
                    ErrorCode.PROTOCOL_ERROR, f"SETTINGS_MAX_FRAME_SIZE is {value}"
                )
            outbox.set_frame_bytes_max(value)
        elif name == codes.ENABLE_PUSH and value > 1:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, f"SETTINGS_ENABLE_PUSH is {value}")
        # The other settings don't affect us: our answers use no table, no push and short headers.
    outbox.put(frames.SETTINGS_ACK)


def push_promise(_connection: Connection, _flags: int, _stream_id: int, _payload: bytes) -> None:
    """Reject a frame that only servers may send."""
    raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a client sent PUSH_PROMISE")


def ping(connection: Connection, flags: int, stream_id: int, payload: bytes) -> None:
    """Answer a PING, without a rate limit."""
    _of_the_connection("PING", stream_id)
    _check_size("PING", payload, 8)
    if flags & codes.ACK:
        connection.ping_answered(payload)
    else:
        connection.outbox.put(frames.ping(payload, is_ack=True))


def goaway(_connection: Connection, _flags: int, stream_id: int, payload: bytes) -> None:
    """Check a GOAWAY: open calls go on, and the client opens no new ones."""
    _of_the_connection("GOAWAY", stream_id)
    if len(payload) < 8:
        raise Http2ConnectionError(
            ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY has {len(payload)} bytes, fewer than 8"
        )


def window_update(connection: Connection, _flags: int, stream_id: int, payload: bytes) -> None:
    """Let more DATA be sent."""
    _check_size("WINDOW_UPDATE", payload, 4)
    increment = frames.uint31(payload)
    if not stream_id:
        connection.outbox.widen(increment)
        return
    connection.requests.require_begun("WINDOW_UPDATE", stream_id)
    call = connection.requests.streams.get(stream_id)
    if call is not None:
        connection.outbox.widen_stream(call, increment)


def unexpected_continuation(
    _connection: Connection, _flags: int, _stream_id: int, _payload: bytes
) -> None:
    """Reject a CONTINUATION that doesn't follow HEADERS."""
    raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION continues nothing")


CONTROL_FRAMES: dict[int, Callable[[Connection, int, int, bytes], None]] = {
    codes.PRIORITY: priority,
    codes.RST_STREAM: rst_stream,
    codes.SETTINGS: settings,
    codes.PUSH_PROMISE: push_promise,
    codes.PING: ping,
    codes.GOAWAY: goaway,
    codes.WINDOW_UPDATE: window_update,
    codes.CONTINUATION: unexpected_continuation,
}
"""The connection handles DATA and HEADERS itself; frames of unknown types are ignored (5.5)."""


def _of_a_stream(name: str, stream_id: int) -> None:
    if not stream_id:
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, f"{name} names no stream")


def _of_the_connection(name: str, stream_id: int) -> None:
    if stream_id:
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, f"{name} names a stream")


def _check_size(name: str, payload: bytes, size: int) -> None:
    if len(payload) != size:
        raise Http2ConnectionError(
            ErrorCode.FRAME_SIZE_ERROR, f"{name} has {len(payload)} bytes, not {size}"
        )
