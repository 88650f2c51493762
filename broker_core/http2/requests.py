"""Track the streams of one connection, from their HEADERS to the end of their DATA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import CallRefusedError, Http2ConnectionError, Http2StreamError
from broker_core.http2 import codes, dispatch, frames
from broker_core.http2.call import Call
from broker_core.http2.codes import ErrorCode, GrpcStatus
from broker_core.http2.frames import WINDOW_DEFAULT
from broker_core.http2.grpc_framing import only_block
from broker_core.http2.large_requests import LargeRequests
from broker_core.http2.request_body import RequestBody
from broker_core.http2.routes import BIDI

if TYPE_CHECKING:
    from broker_core.http2.connection import Connection

RESETS_REMEMBERED = 256
"""Streams that the server ended first: frames that the peer sent before it noticed are dropped."""


class Requests:
    """The requests of one connection. Event loop only.

    Attributes:
        streams: open calls by stream identifier.
        last_stream_id: the highest identifier that the peer has used.
        refused_after: streams above this identifier are ignored because of a GOAWAY.
        buffered_bytes: bytes of unfinished requests.
        decoder: decodes the connection's field blocks.
    """

    __slots__ = (
        "_connection",
        "_ended_here",
        "_large",
        "buffered_bytes",
        "decoder",
        "last_stream_id",
        "refused_after",
        "streams",
    )

    def __init__(self, connection: Connection) -> None:
        self.streams: dict[int, Call] = {}
        self.last_stream_id = 0
        self.refused_after = frames.STREAM_ID_MAX
        self.buffered_bytes = 0
        self._connection = connection
        wire = connection.wire
        self.decoder = wire.engine.header_decoder(wire.limits.header_list_bytes_max)
        self._large: LargeRequests | None = None
        self._ended_here: dict[int, None] = {}

    # HEADERS.

    def headers(self, stream_id: int, flags: int, block: bytes) -> None:
        """Process a complete field block.

        Raises:
            Http2ConnectionError: the block or the stream identifier is wrong.
            Http2StreamError: the request is malformed, or there are too many streams.
        """
        # Decode first, even if the stream is refused: both sides' tables must stay the same.
        self.decoded(stream_id, flags, self.decoder.decode(block))

    def decoded(self, stream_id: int, flags: int, headers: dict[str, str]) -> None:
        """Process the fields of a block that the decoder has just decoded; see `headers`."""
        if stream_id <= self.last_stream_id:
            self._more_headers(stream_id, flags, headers)
            return
        if not stream_id & 1:
            raise Http2ConnectionError(
                ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} is not for a client to open"
            )
        self.last_stream_id = stream_id
        connection = self._connection
        wire = connection.wire
        if stream_id > self.refused_after:
            self._forget(stream_id)
            return
        if (
            len(self.streams) >= connection.limits.streams_max
            or wire.streams >= wire.limits.all_streams_max
        ):
            raise Http2StreamError(ErrorCode.REFUSED_STREAM, "too many streams are open")
        is_over = bool(flags & codes.END_STREAM)
        if self.decoder.malformed:
            self._malformed(stream_id, is_over=is_over)
            return
        if not headers.get(":path") or ":method" not in headers or ":scheme" not in headers:
            raise Http2StreamError(
                ErrorCode.PROTOCOL_ERROR, "a request has no :method, :scheme or :path"
            )
        route = dispatch.route_of(connection, stream_id, headers)
        if route is None:
            if not is_over:
                self.reset(stream_id, ErrorCode.NO_ERROR)
            return
        call = Call(connection, stream_id, route, headers, connection.now, WINDOW_DEFAULT)
        self.streams[stream_id] = call
        wire.streams += 1
        if "content-length" in headers:
            self._expect(call, headers["content-length"])
        dispatch.begin(call)
        if is_over:
            self._finish(call)

    def _malformed(self, stream_id: int, *, is_over: bool) -> None:
        decoder = self.decoder
        if decoder.list_bytes <= decoder.list_bytes_max:
            raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, decoder.malformed)
        block = only_block(GrpcStatus.RESOURCE_EXHAUSTED, decoder.malformed, 431)
        self._connection.outbox.put(frames.headers(stream_id, block, ends=True))
        if not is_over:
            self.reset(stream_id, ErrorCode.NO_ERROR)

    def _more_headers(self, stream_id: int, flags: int, headers: dict[str, str]) -> None:
        """Process the trailers of a request."""
        call = self.streams.get(stream_id)
        if call is None:
            if stream_id in self._ended_here:
                return
            raise Http2ConnectionError(
                ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} is opened a second time"
            )
        if call.is_request_over:
            raise Http2StreamError(ErrorCode.STREAM_CLOSED, "HEADERS came after END_STREAM")
        if not flags & codes.END_STREAM:
            raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, "trailers do not end their stream")
        if self.decoder.malformed or any(name[:1] == ":" for name in headers):
            raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, "the trailers are malformed")
        self._finish(call)

    def _expect(self, call: Call, content_length: str) -> None:
        if not content_length.isdecimal() or len(content_length) > 18:
            raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, "content-length isn't a number")
        call.content_left = int(content_length)
        call.is_plain = False

    # DATA.

    def data(self, stream_id: int, flags: int, payload: bytes) -> None:
        """Process a DATA frame that isn't the whole request of a call.

        Raises:
            Http2ConnectionError: the stream was never opened, or the padding is wrong.
            Http2StreamError: the stream doesn't accept DATA, or no longer does.
        """
        length = len(payload)
        payload = remove_padding(flags, payload)
        call = self.streams.get(stream_id)
        if call is None:
            self.require_begun("DATA", stream_id)
            if stream_id not in self._ended_here:
                self._connection.count_useless("frames of closed streams")
                raise Http2StreamError(ErrorCode.STREAM_CLOSED, "DATA came after the end")
            return
        if call.is_request_over:
            raise Http2StreamError(ErrorCode.STREAM_CLOSED, "DATA came after END_STREAM")
        is_over = bool(flags & codes.END_STREAM)
        if not payload and not is_over:
            self._connection.count_useless("empty DATA frames")
        call.receive_window -= length
        if call.receive_window < 0:
            raise Http2StreamError(ErrorCode.FLOW_CONTROL_ERROR, "the stream's window is exceeded")
        if call.content_left >= 0:
            call.content_left -= len(payload)
            if call.content_left < 0 or (is_over and call.content_left):
                raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, "content-length is wrong")
        call.is_plain = False
        call.progress_at = self._connection.now
        if call.body is None:
            call.body = RequestBody(self._connection.wire.limits.message_bytes_max)
        try:
            self._feed(call, call.body, payload)
        except CallRefusedError as error:
            dispatch.refuse(call, error)
        if not call.is_open:
            return
        if is_over:
            self._finish(call)
        else:
            self._widen(call, call.body)

    def _feed(self, call: Call, body: RequestBody, payload: bytes) -> None:
        for message in body.feed(payload):
            if call.route.kind == BIDI:
                dispatch.message_received(call, message)
                if not call.is_open:
                    return
            elif call.request is not None:
                raise CallRefusedError(GrpcStatus.INTERNAL, "Too many requests")
            else:
                call.request = message
        kept = body.held_bytes + (0 if call.request is None else len(call.request))
        if not body.missing_bytes:
            self._release(call)
        self._buffer(call, kept)

    def _finish(self, call: Call) -> None:
        """Serve a request that is complete."""
        call.is_request_over = True
        call.is_plain = False
        if not call.is_open:
            return
        if call.content_left > 0:
            raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, "content-length is wrong")
        if call.body is not None and call.body.held_bytes:
            call.fail(GrpcStatus.INTERNAL, "the request ends within a message")
        elif call.route.kind == BIDI:
            dispatch.half_closed(call)
        elif call.request is None:
            call.fail(GrpcStatus.INTERNAL, "Half-closed without a request")
        else:
            request, call.request = call.request, None
            self._buffer(call, 0)
            dispatch.dispatch(call, request)

    # Windows.

    def _widen(self, call: Call, body: RequestBody) -> None:
        """Let the client send the rest of a message, or a conversation's next messages."""
        missing = body.missing_bytes
        if missing > call.receive_window:
            if not call.is_waiting:
                call.is_waiting = True
                if self._large is None:
                    self._large = LargeRequests()
                bytes_max = self._connection.limits.buffered_bytes_max
                if self._large.admit(call, body.held_bytes + missing, bytes_max):
                    self._admit(call)
        elif call.route.kind == BIDI and not missing and call.receive_window < WINDOW_DEFAULT // 2:
            self._open_window(call, WINDOW_DEFAULT)

    def _admit(self, call: Call) -> None:
        """Widen the window of an admitted request slightly past its end."""
        assert call.body is not None
        call.is_waiting = False
        self._open_window(call, call.body.missing_bytes + WINDOW_DEFAULT)

    def _open_window(self, call: Call, size: int) -> None:
        self._connection.outbox.put(
            frames.window_update(call.stream_id, size - call.receive_window)
        )
        call.receive_window = size

    def _release(self, call: Call) -> None:
        if self._large is not None and (call.admitted_bytes or call.is_waiting):
            for next_call in self._large.release(call, self._connection.limits.buffered_bytes_max):
                self._admit(next_call)

    def _buffer(self, call: Call, size: int) -> None:
        """Count the buffered bytes of a request."""
        change = size - call.buffered_bytes
        if change:
            call.buffered_bytes = size
            self.buffered_bytes += change
            self._connection.buffered_changed(change)

    # Ends.

    def leave(self, call: Call) -> None:
        """Remove a call that has ended."""
        del self.streams[call.stream_id]
        connection = self._connection
        connection.wire.streams -= 1
        call.is_open = False
        call.is_plain = False
        if call.has_timer:
            connection.wire.deadlines.remove(call)
        if call.body is not None:
            self._release(call)
            self._buffer(call, 0)
        if call.queue is not None:
            connection.outbox.forget(call)
            call.wake()
        if not self.streams:
            connection.end_drain()

    def ended(self, call: Call) -> None:
        """Clean up when the last frame of a call's answer is sent."""
        if not call.is_request_over:
            self.reset(call.stream_id, ErrorCode.NO_ERROR)
        self.leave(call)

    def cancel(self, call: Call, code: int) -> None:
        """End a call with a RST_STREAM and notify its handler."""
        self.reset(call.stream_id, code)
        self.leave(call)
        dispatch.cancelled(call)

    def fault(self, stream_id: int, error: Http2StreamError) -> None:
        """End a stream that violated the protocol."""
        call = self.streams.get(stream_id)
        if call is None:
            self.reset(stream_id, error.code)
        else:
            self.cancel(call, error.code)

    def reset(self, stream_id: int, code: int) -> None:
        """Send a RST_STREAM; silently drop frames that the peer sent before it noticed."""
        self._connection.outbox.put(frames.rst_stream(stream_id, code))
        self._forget(stream_id)

    def _forget(self, stream_id: int) -> None:
        ended_here = self._ended_here
        ended_here[stream_id] = None
        if len(ended_here) > RESETS_REMEMBERED:
            del ended_here[next(iter(ended_here))]

    def require_begun(self, name: str, stream_id: int) -> None:
        """Check that the peer has opened the stream that a frame names.

        Raises:
            Http2ConnectionError: the stream was never opened.
        """
        if stream_id > self.last_stream_id or not stream_id & 1:
            raise Http2ConnectionError(
                ErrorCode.PROTOCOL_ERROR, f"{name} names stream {stream_id}, which is idle"
            )

    def sweep(self, now: float, half_frame_s: float) -> None:
        """End calls whose requests stay unfinished for too long."""
        for call in list(self.streams.values()):
            is_due = call.buffered_bytes or (not call.is_request_over and call.route.kind != BIDI)
            if is_due and now - call.progress_at >= half_frame_s:
                dispatch.give_up(
                    call,
                    GrpcStatus.DEADLINE_EXCEEDED,
                    f"the rest of the request did not arrive within {half_frame_s:g} s",
                )


def remove_padding(flags: int, payload: bytes) -> bytes:
    """Return the payload of a DATA or HEADERS frame without its padding.

    Raises:
        Http2ConnectionError: the padding is as long as the payload.
    """
    if not flags & codes.PADDED:
        return payload
    if not payload:
        raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "a padded frame is empty")
    if payload[0] >= len(payload):
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "the padding is as long as its frame")
    return payload[1 : len(payload) - payload[0]]
