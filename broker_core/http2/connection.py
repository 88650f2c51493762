"""Connection: reads one peer's frames and answers them (RFC 9113, sections 3 to 6)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from broker_core.errors import Http2ConnectionError, Http2StreamError
from broker_core.http2 import codes, dispatch, frames, preface
from broker_core.http2.codes import ErrorCode, GrpcStatus
from broker_core.http2.control_frames import CONTROL_FRAMES
from broker_core.http2.frame_loop import RECEIVE_WINDOW
from broker_core.http2.frames import WINDOW_DEFAULT
from broker_core.http2.nuisances import Nuisances
from broker_core.http2.outbox import Outbox
from broker_core.http2.requests import Requests, unpadded
from broker_core.listening.peer_address import peer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.http2.limits import Http2Limits, StrangerHttp2Limits
    from broker_core.http2.wire import Wire

DRAIN_PING = b"draining"


class Connection(asyncio.BufferedProtocol):
    """One peer. Event loop only.

    Attributes:
        remote_address: the peer as "ip:port".
        remote_host: the same in the form of stored messages: 4 or 16 bytes, int32 port.
        on_close: functions to call once, with this connection, after it ended.
        attributes: the owner's notes about the peer.
        limits: those of an account, or of a stranger.
        now: when the turn began, by the monotonic clock.
        block: the field block that CONTINUATION frames go on with.
        receive_window: what the peer may still send on all streams together.
        is_stopped: whether it serves no further frames.
    """

    __slots__ = (
        "__weakref__",
        "_block_flags",
        "_block_frames",
        "_block_stream",
        "_half_since",
        "_has_greeted",
        "_idle_since",
        "_is_draining",
        "_is_paused",
        "_is_postponed",
        "_nuisances",
        "_peer",
        "_progress",
        "_progress_at",
        "_rest",
        "_swept_stream_id",
        "attributes",
        "block",
        "is_stopped",
        "limits",
        "now",
        "on_close",
        "outbox",
        "receive_window",
        "remote_address",
        "remote_host",
        "requests",
        "wire",
    )

    def __init__(self, wire: Wire, peer: tuple[str, int] | None = None) -> None:
        self.remote_address = ""
        self.remote_host = b""
        self.on_close: list[Callable[[Connection], None]] = []
        self.attributes: dict[str, Any] = {}
        self.wire = wire
        self.limits: Http2Limits | StrangerHttp2Limits = wire.limits.strangers or wire.limits
        self.now = wire.clock.monotonic()
        self.outbox = Outbox(self)
        self.requests = Requests(self)
        self._peer = peer
        self._nuisances = Nuisances(wire.limits, self.now)
        self._has_greeted = False
        # Received and not yet served: the beginning of a frame, or what a long turn left.
        self._rest = b""
        self.block: bytearray | None = None
        self._block_stream = 0
        self._block_flags = 0
        self._block_frames = 0
        self.receive_window = RECEIVE_WINDOW
        self.is_stopped = False
        self._is_draining = False
        self._is_postponed = False
        self._is_paused = False
        self._half_since = self.now
        self._idle_since = self.now
        self._swept_stream_id = 0
        self._progress: tuple[int, int] = (0, 0)
        self._progress_at = self.now

    def __repr__(self) -> str:
        return f"<Connection {self.remote_address}>"

    # What owners call.

    @property
    def protocol(self) -> asyncio.BufferedProtocol:
        """What a transport is given."""
        return self

    @property
    def is_open(self) -> bool:
        """Whether the transport still takes frames."""
        transport = self.outbox.transport
        return transport is not None and not transport.is_closing()

    @property
    def is_signed_in(self) -> bool:
        """Whether a call of an account has come, or need not come."""
        return self.limits is self.wire.limits

    def sign_in(self) -> None:
        """Give the connection the limits of an account; at its first call that may pass."""
        wire = self.wire
        wire.strangers_buffered_bytes -= self.requests.buffered_bytes + len(self._rest)
        self.limits = wire.limits
        self.outbox.put(frames.settings({codes.MAX_CONCURRENT_STREAMS: wire.limits.streams_max}))
        wire.on_signed_in(self)

    def drain(self) -> None:
        """Take no new calls; close when those in progress have ended (RFC 9113, 6.8).

        The last stream identifier is sent when the peer has seen the first GOAWAY, so that no call
        that it sent before is lost.
        """
        if self._is_draining or not self.is_open:
            return
        self._is_draining = True
        outbox = self.outbox
        outbox.put(frames.goaway(frames.STREAM_ID_MAX, ErrorCode.NO_ERROR, "shutting down"))
        outbox.put(frames.ping(DRAIN_PING, is_ack=False))

    def finish(self, message: str) -> None:
        """End the calls in progress with UNAVAILABLE, then close."""
        for call in list(self.requests.streams.values()):
            dispatch.give_up(call, GrpcStatus.UNAVAILABLE, message)
        self.close(ErrorCode.NO_ERROR, message)

    def close(self, code: int = ErrorCode.NO_ERROR, reason: str = "") -> None:
        """Say why in a GOAWAY, send everything that no window holds back, then close."""
        outbox = self.outbox
        if self.is_stopped or outbox.transport is None:
            return
        self.is_stopped = True
        if self._has_greeted:
            outbox.put(frames.goaway(self.requests.last_stream_id, code, reason))
        outbox.flush()
        outbox.transport.close()

    def abort(self) -> None:
        """Close at once and lose unsent frames."""
        self.is_stopped = True
        if self.outbox.transport is not None:
            self.outbox.transport.abort()

    def forsake(self) -> None:
        """End, where the task that was to make the connection was cancelled.

        uvloop closes what it has made in that turn, and never calls `connection_lost`.
        """
        self.abort()
        self.connection_lost(None)

    def sweep(self, now: float) -> None:
        """Close if the peer was idle, owes the rest of something or reads nothing for too long."""
        limits = self.wire.limits
        requests, outbox = self.requests, self.outbox
        if outbox.transport is None:
            return
        is_half = self._half_since >= 0 and not self._is_paused
        if is_half and now - self._half_since >= limits.half_frame_s:
            reason = f"the rest of a frame did not arrive within {limits.half_frame_s:g} s"
            self._log_end(reason)
            self.close(ErrorCode.PROTOCOL_ERROR, reason)
            return
        progress = (outbox.sent_bytes, outbox.transport.get_write_buffer_size())
        if progress != self._progress or not outbox.waiting_bytes:
            self._progress, self._progress_at = progress, now
        elif now - self._progress_at >= limits.stalled_s:
            self._log_end(
                f"the peer read none of {outbox.waiting_bytes} bytes within {limits.stalled_s:g} s"
            )
            self.abort()
            return
        if requests.streams or requests.last_stream_id != self._swept_stream_id:
            self._swept_stream_id = requests.last_stream_id
            self._idle_since = now
            requests.sweep(now, limits.half_frame_s)
        elif now - self._idle_since >= self.limits.idle_s:
            self.close(ErrorCode.NO_ERROR, "idle")
            # If the peer does not read either, a closing transport never finishes.
            if not outbox.is_writable:
                self.abort()

    # What its requests and its outbox call.

    def nuisance(self, what: str) -> None:
        """Count a frame that makes work and carries nothing.

        Raises:
            Http2ConnectionError: there were too many.
        """
        self._nuisances.count(self.now, what)

    def ping_answered(self, data: bytes) -> None:
        """Take the answer to a PING: a peer that drains has seen the first GOAWAY."""
        requests = self.requests
        if data == DRAIN_PING and self._is_draining:
            requests.refused_after = requests.last_stream_id
            self.outbox.put(
                frames.goaway(requests.last_stream_id, ErrorCode.NO_ERROR, "shutting down")
            )
            if not requests.streams:
                self.emptied()

    def emptied(self) -> None:
        """The last call has ended: close a connection that drains."""
        if self.requests.refused_after < frames.STREAM_ID_MAX:
            # Soon, not now: the last frame of the call goes out first.
            asyncio.get_running_loop().call_soon(self.close)

    def buffered_changed(self, change: int) -> None:
        """Count bytes of unfinished requests and frames; close above the limit of all peers."""
        wire = self.wire
        wire.buffered_bytes += change
        if not self.is_signed_in:
            wire.strangers_buffered_bytes += change
        if change <= 0:
            return
        if wire.buffered_bytes > wire.limits.all_buffered_bytes_max:
            self._end_since(f"unfinished requests of all peers hold {wire.buffered_bytes} bytes")
        elif (
            not self.is_signed_in
            and wire.limits.strangers is not None
            and wire.strangers_buffered_bytes > wire.limits.strangers.all_buffered_bytes_max
        ):
            self._end_since(
                f"unfinished requests of peers that have not signed in hold "
                f"{wire.strangers_buffered_bytes} bytes"
            )

    def unsent_changed(self, change: int) -> None:
        """Count bytes that wait for the peer; close above its limit or that of all peers."""
        wire = self.wire
        wire.unsent_bytes += change
        if change <= 0:
            return
        if self.outbox.unsent_bytes > self.limits.unsent_bytes_max:
            self._end_since(f"{self.outbox.unsent_bytes} bytes wait for the peer to read")
        elif wire.unsent_bytes > wire.limits.all_unsent_bytes_max:
            self._end_since(f"{wire.unsent_bytes} bytes wait for all peers to read")

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = self.wire
        outbox = self.outbox
        outbox.transport = cast("asyncio.Transport", transport)
        self.remote_address, self.remote_host = peer_of(self._peer, transport)
        outbox.transport.set_write_buffer_limits(high=wire.limits.write_buffer_high)
        wire.connections[self] = None
        refusal = wire.on_made(self)
        if refusal is not None:
            wire.peer_log.report("connection refused", self.remote_address, refusal)
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.wire.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Serve every whole frame received; send the answers that are ready in one write."""
        if not self.is_stopped:
            self._serve(self._rest + self.wire.receive_buffer[:nbytes])

    def pause_writing(self) -> None:
        self.outbox.is_writable = False
        self._pause()

    def resume_writing(self) -> None:
        self.outbox.is_writable = True
        # Soon, not now: the transport may call this during one of our writes.
        asyncio.get_running_loop().call_soon(self._catch_up)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.outbox.transport is None:
            # Never made, or forsaken before.
            return
        wire = self.wire
        self.is_stopped = True
        self.outbox.transport = None
        self._keep(b"")
        for call in list(self.requests.streams.values()):
            self.requests.leave(call)
            dispatch.cancelled(call)
        wire.connections.pop(self, None)
        if wire.emptied is not None and not wire.connections and not wire.emptied.done():
            wire.emptied.set_result(None)
        wire.on_lost(self)
        for callback in self.on_close:
            callback(self)
        self.on_close.clear()

    # What the frame loop calls.

    def other_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Serve a frame that the frame loop leaves."""
        if self.block is not None:
            self._continue_block(kind, flags, stream_id, payload)
            return
        try:
            if kind == codes.DATA:
                if not stream_id:
                    raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "DATA names no stream")
                self.requests.data(stream_id, flags, payload)
            elif kind == codes.HEADERS:
                self._headers(stream_id, flags, payload)
            elif (serve := CONTROL_FRAMES.get(kind)) is not None:
                serve(self, flags, stream_id, payload)
            else:
                self.nuisance("frames of unknown types")
        except Http2StreamError as error:
            self.requests.fault(stream_id, error)

    def widen(self) -> None:
        """Let the peer send more on all streams together."""
        self.outbox.put(frames.window_update(0, RECEIVE_WINDOW - self.receive_window))
        self.receive_window = RECEIVE_WINDOW

    def is_turn_over(self) -> bool:
        """Return whether the frames of this turn have taken long enough."""
        return self.wire.clock.monotonic() - self.now > self.wire.limits.turn_s

    def postpone(self) -> None:
        """Leave the rest of what was received to the next turn of the loop."""
        self._is_postponed = True
        self._pause()
        asyncio.get_running_loop().call_soon(self._go_on)

    # Inside.

    def _serve(self, data: bytes) -> None:
        outbox = self.outbox
        outbox.is_collecting = True
        self.now = self.wire.clock.monotonic()
        try:
            served = (
                self.wire.engine.take_frames(self, data) if self._has_greeted else self._greet(data)
            )
        except Http2ConnectionError as error:
            self._log_end(error)
            self.close(error.code, str(error))
            return
        except MemoryError:
            self._end_since("there is no memory for its requests")
            return
        finally:
            outbox.is_collecting = False
        if not self.is_stopped:
            if served < len(data) or self._rest:
                self._keep(data[served:])
            if self._rest or self.block is not None:
                if served or self._half_since < 0:
                    self._half_since = self.now
            else:
                self._half_since = -1.0
        outbox.flush()

    def _greet(self, data: bytes) -> int:
        """Take the beginning of a connection; return how much of it was served."""
        if preface.is_http_1(data):
            self.is_stopped = True
            self._log_end("it is HTTP/1.1")
            if self.outbox.transport is not None:
                self.outbox.transport.write(preface.HTTP_1_ANSWER)
                self.outbox.transport.close()
            return len(data)
        if not preface.is_whole(data):
            return 0
        self._has_greeted = True
        self._send_settings()
        preface.check_first_frame(data)
        start = len(frames.PREFACE)
        return start + self.wire.engine.take_frames(self, data[start:])

    def _send_settings(self) -> None:
        self.outbox.put(
            frames.settings(
                {
                    codes.MAX_CONCURRENT_STREAMS: self.limits.streams_max,
                    codes.MAX_HEADER_LIST_SIZE: self.wire.limits.header_list_bytes_max,
                }
            )
        )
        self.outbox.put(frames.window_update(0, RECEIVE_WINDOW - WINDOW_DEFAULT))

    def _headers(self, stream_id: int, flags: int, payload: bytes) -> None:
        block = unpadded(flags, payload)
        if flags & codes.HAS_PRIORITY:
            if len(block) < 5:
                raise Http2ConnectionError(
                    ErrorCode.FRAME_SIZE_ERROR, "HEADERS is too short for its priority"
                )
            block = block[5:]
        if flags & codes.END_HEADERS:
            self.requests.headers(stream_id, flags, block)
            return
        self.block = bytearray(block)
        self._block_stream, self._block_flags, self._block_frames = stream_id, flags, 1

    def _continue_block(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Take a CONTINUATION; nothing else may come between the frames of a field block."""
        block = self.block
        assert block is not None
        if kind != codes.CONTINUATION or stream_id != self._block_stream:
            raise Http2ConnectionError(
                ErrorCode.PROTOCOL_ERROR, "a field block is interrupted by another frame"
            )
        block += payload
        self._block_frames += 1
        limits = self.wire.limits
        if (
            len(block) > limits.header_block_bytes_max
            or self._block_frames > limits.header_block_frames_max
        ):
            raise Http2ConnectionError(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"a field block has {len(block)} bytes in {self._block_frames} frames",
            )
        if flags & codes.END_HEADERS:
            self.block = None
            try:
                self.requests.headers(stream_id, self._block_flags, bytes(block))
            except Http2StreamError as error:
                self.requests.fault(stream_id, error)

    def _keep(self, rest: bytes) -> None:
        change = len(rest) - len(self._rest)
        self._rest = rest
        if change:
            self.buffered_changed(change)

    def _go_on(self) -> None:
        if self.is_stopped:
            return
        self._is_postponed = False
        self._serve(self._rest)
        self._resume()

    def _catch_up(self) -> None:
        """The peer reads again: send what waited for it."""
        if not self.is_stopped:
            self.outbox.flush()
            self._resume()

    def _pause(self) -> None:
        transport = self.outbox.transport
        if not self._is_paused and transport is not None and not transport.is_closing():
            self._is_paused = True
            transport.pause_reading()

    def _resume(self) -> None:
        transport = self.outbox.transport
        if (
            self._is_paused
            and self.outbox.is_writable
            and not self._is_postponed
            and transport is not None
            and not transport.is_closing()
        ):
            self._is_paused = False
            if self._half_since >= 0:
                self._half_since = self.wire.clock.monotonic()
            transport.resume_reading()

    # Ends.

    def _end_since(self, reason: str) -> None:
        """Close a connection that takes too much."""
        if self.is_stopped:
            return
        self._log_end(reason)
        self.close(ErrorCode.ENHANCE_YOUR_CALM, reason)
        if not self.outbox.is_writable:
            self.abort()

    def _log_end(self, reason: object) -> None:
        self.wire.peer_log.report("connection closed", self.remote_address, reason)
