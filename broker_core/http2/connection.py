"""Read one peer's frames and answer them (RFC 9113, sections 3 to 6)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from broker_core.errors import Http2ConnectionError, Http2StreamError
from broker_core.http2 import codes, dispatch, frames, preface
from broker_core.http2.codes import ErrorCode, GrpcStatus
from broker_core.http2.control_frames import CONTROL_FRAMES
from broker_core.http2.frame_loop import RECEIVE_WINDOW
from broker_core.http2.frames import WINDOW_DEFAULT
from broker_core.http2.outbox import Outbox
from broker_core.http2.requests import Requests, remove_padding
from broker_core.http2.useless_frames import UselessFrames
from broker_core.listening.peer_address import peer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.http2.limits import Http2Limits, StrangerHttp2Limits
    from broker_core.http2.wire import Wire

DRAIN_PING = b"draining"


class Connection(asyncio.BufferedProtocol):
    """A connection to one peer. Event loop only.

    Attributes:
        remote_address: the peer as "ip:port".
        remote_host: the peer in the form of stored messages: 4 or 16 bytes, then an int32 port.
        on_close: functions called once, with this connection, after it has ended.
        attributes: the owner's data about the peer.
        limits: the limits for signed-in accounts or for strangers.
        now: when the current turn began, by the monotonic clock.
        block: the field block that CONTINUATION frames add to.
        receive_window: bytes that the peer may still send on all streams together.
        is_stopped: whether the connection ignores further frames.
    """

    __slots__ = (
        "__weakref__",
        "_block_flags",
        "_block_frames",
        "_block_stream",
        "_half_since",
        "_has_greeted",
        "_idle_since",
        "_is_counted",
        "_is_draining",
        "_is_paused",
        "_is_postponed",
        "_peer",
        "_progress",
        "_progress_at",
        "_rest",
        "_swept_stream_id",
        "_useless_frames",
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
        self._useless_frames = UselessFrames(wire.limits, self.now)
        self._has_greeted = False
        # Received but not processed yet: the start of a frame, or the rest of a long turn.
        self._rest = b""
        self.block: bytearray | None = None
        self._block_stream = 0
        self._block_flags = 0
        self._block_frames = 0
        self.receive_window = RECEIVE_WINDOW
        self.is_stopped = False
        self._is_counted = False
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

    # Called by owners.

    @property
    def protocol(self) -> asyncio.BufferedProtocol:
        """Return the asyncio protocol for the transport."""
        return self

    @property
    def is_open(self) -> bool:
        """Whether the transport still accepts frames."""
        transport = self.outbox.transport
        return transport is not None and not transport.is_closing()

    @property
    def is_signed_in(self) -> bool:
        """Whether the limits for accounts apply."""
        return self.limits is self.wire.limits

    def sign_in(self) -> None:
        """Apply the limits for accounts; call this on the first authorized call."""
        wire = self.wire
        wire.strangers_buffered_bytes -= self.requests.buffered_bytes + len(self._rest)
        self.limits = wire.limits
        self.outbox.put(frames.settings({codes.MAX_CONCURRENT_STREAMS: wire.limits.streams_max}))
        wire.on_signed_in(self)

    def drain(self) -> None:
        """Refuse new calls; close when the calls in progress have ended (RFC 9113, 6.8).

        The last stream identifier is sent only after the peer has seen the first GOAWAY, so that no
        call sent before that is lost.
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
        """Send a GOAWAY with the reason and everything that no window blocks, then close."""
        outbox = self.outbox
        if self.is_stopped or outbox.transport is None:
            return
        self.is_stopped = True
        if self._has_greeted:
            outbox.put(frames.goaway(self.requests.last_stream_id, code, reason))
        outbox.flush()
        outbox.transport.close()

    def abort(self) -> None:
        """Close immediately and discard unsent frames."""
        self.is_stopped = True
        if self.outbox.transport is not None:
            self.outbox.transport.abort()

    def cancel_setup(self) -> None:
        """Close a connection whose setup task was cancelled.

        uvloop closes a transport created in that turn without calling `connection_lost`.
        """
        self.abort()
        self.connection_lost(None)

    def sweep(self, now: float) -> None:
        """Close if the peer was idle, left something unfinished or stopped reading."""
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
            # If the peer doesn't read either, a closing transport never finishes.
            if not outbox.is_writable:
                self.abort()

    # Called by its requests and its outbox.

    def count_useless(self, what: str) -> None:
        """Count a frame that costs work and carries no data.

        Raises:
            Http2ConnectionError: there were too many such frames.
        """
        self._useless_frames.count(self.now, what)

    def ping_answered(self, data: bytes) -> None:
        """Handle the answer to a PING: the peer has now seen the first GOAWAY."""
        requests = self.requests
        if data == DRAIN_PING and self._is_draining:
            requests.refused_after = requests.last_stream_id
            self.outbox.put(
                frames.goaway(requests.last_stream_id, ErrorCode.NO_ERROR, "shutting down")
            )
            if not requests.streams:
                self.end_drain()

    def end_drain(self) -> None:
        """Close a draining connection once its last call has ended."""
        if self.requests.refused_after < frames.STREAM_ID_MAX:
            # Deferred, so that the last frame of the call is sent first.
            asyncio.get_running_loop().call_soon(self.close)

    def buffered_changed(self, change: int) -> None:
        """Count bytes of unfinished requests and frames; close above the limit for all peers."""
        wire = self.wire
        wire.buffered_bytes += change
        if not self.is_signed_in:
            wire.strangers_buffered_bytes += change
        self._held_changed(change)
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
        """Count bytes waiting for the peer to read; close above either limit."""
        wire = self.wire
        wire.unsent_bytes += change
        self._held_changed(change)
        if change <= 0:
            return
        if self.outbox.unsent_bytes > self.limits.unsent_bytes_max:
            self._end_since(f"{self.outbox.unsent_bytes} bytes wait for the peer to read")
        elif wire.unsent_bytes > wire.limits.all_unsent_bytes_max:
            self._end_since(f"{wire.unsent_bytes} bytes wait for all peers to read")

    # Called by the memory budget.

    @property
    def held_bytes(self) -> int:
        """Bytes of unfinished requests and frames, and of answers waiting for a window."""
        return self.requests.buffered_bytes + len(self._rest) + self.outbox.unsent_bytes

    @property
    def stuck_bytes(self) -> int:
        """The same bytes: the peer frees them by sending the rest or by reading."""
        return self.held_bytes

    def drop(self, reason: str) -> None:
        """Close immediately and log the reason."""
        self._is_counted = False
        self._log_end(reason)
        self.abort()

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = self.wire
        outbox = self.outbox
        outbox.transport = cast("asyncio.Transport", transport)
        self.remote_address, self.remote_host = peer_of(self._peer, transport)
        outbox.transport.set_write_buffer_limits(high=wire.limits.write_buffer_high)
        wire.connections[self] = None
        wire.memory.open(self)
        self._is_counted = True
        refusal = wire.on_made(self)
        if refusal is not None:
            wire.peer_log.report("connection refused", self.remote_address, refusal)
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.wire.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Process every complete frame received; send the answers that are ready in one write."""
        if self.is_stopped:
            return
        data = self._rest + self.wire.receive_buffer[:nbytes]
        wire = self.wire
        if wire.turns.is_spent:
            self._keep(data)
            self.postpone()
        else:
            self._serve(data)
            wire.turns.note(wire.clock.monotonic() - self.now)

    def pause_writing(self) -> None:
        self.outbox.is_writable = False
        self._pause()

    def resume_writing(self) -> None:
        self.outbox.is_writable = True
        # Deferred, because the transport may call this during a write.
        asyncio.get_running_loop().call_soon(self._catch_up)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.outbox.transport is None:
            # Never connected, or already closed.
            return
        wire = self.wire
        self.is_stopped = True
        self.outbox.transport = None
        self._keep(b"")
        for call in list(self.requests.streams.values()):
            self.requests.leave(call)
            dispatch.cancelled(call)
        if self._is_counted:
            self._is_counted = False
            wire.memory.close(self)
        wire.connections.pop(self, None)
        if wire.drained is not None and not wire.connections and not wire.drained.done():
            wire.drained.set_result(None)
        wire.on_lost(self)
        for callback in self.on_close:
            callback(self)
        self.on_close.clear()

    # Called by the frame loop.

    def other_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Process a frame that the frame loop doesn't handle itself."""
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
                self.count_useless("frames of unknown types")
        except Http2StreamError as error:
            self.requests.fault(stream_id, error)

    def widen(self) -> None:
        """Let the peer send more on all streams together."""
        self.outbox.put(frames.window_update(0, RECEIVE_WINDOW - self.receive_window))
        self.receive_window = RECEIVE_WINDOW

    def is_turn_over(self) -> bool:
        """Return whether this turn has used up its time."""
        return self.wire.clock.monotonic() - self.now > self.wire.limits.turn_s

    def postpone(self) -> None:
        """Keep the rest of the received data until the other connections have had their turns."""
        if not self._is_postponed:
            self._is_postponed = True
            self._pause()
            self.wire.turns.queue(self._go_on, is_long=True)

    # Internal.

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
        """Process the start of a connection; return the number of bytes used."""
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
        block = remove_padding(flags, payload)
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
        """Process a CONTINUATION; no other frame may arrive inside a field block."""
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

    def _held_changed(self, change: int) -> None:
        if self._is_counted:
            if change > 0:
                self.wire.memory.add(change)
            else:
                self.wire.memory.remove(-change)

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
        """Send the waiting data now that the peer reads again."""
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

    # Closing.

    def _end_since(self, reason: str) -> None:
        """Close a connection that exceeds a limit."""
        if self.is_stopped:
            return
        self._log_end(reason)
        self.close(ErrorCode.ENHANCE_YOUR_CALM, reason)
        if not self.outbox.is_writable:
            self.abort()

    def _log_end(self, reason: object) -> None:
        self.wire.peer_log.report("connection closed", self.remote_address, reason)
