"""Send one connection's frames: control frames immediately, DATA as far as the windows allow.

The frames of one loop turn are sent in one write. An answer that fits in the windows is sent
immediately; the rest of a longer one waits in its call's queue, and waiting calls take turns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from broker_core.errors import Http2ConnectionError, Http2StreamError
from broker_core.http2 import codes, frames
from broker_core.http2.codes import ErrorCode
from broker_core.http2.frames import HEAD, WINDOW_DEFAULT, WINDOW_MAX
from broker_core.http2.grpc_framing import HEAD_BLOCK, OK_BLOCK, PREFIX_BYTES, add_prefix

if TYPE_CHECKING:
    from broker_core.http2.call import Call
    from broker_core.http2.connection import Connection

JOIN_BYTES = 128 * 1024
"""Above this size, joining the frames costs more than the transport's scatter write."""
FLUSH_BYTES = 256 * 1024
"""Collected frames of this size are written before the turn ends."""

# Most answers are HEADERS, one DATA frame and HEADERS, where only three numbers differ.
_HEAD_START = HEAD.pack(len(HEAD_BLOCK) << 8 | codes.HEADERS, codes.END_HEADERS, 0)[:5]
_OK_START = HEAD.pack(len(OK_BLOCK) << 8 | codes.HEADERS, codes.END_HEADERS | codes.END_STREAM, 0)[
    :5
]
_DATA_FLAGS = bytes((codes.DATA, 0))
_NOT_COMPRESSED = b"\0"
_ANSWER_EXTRA = len(HEAD_BLOCK) + len(OK_BLOCK) + 3 * HEAD.size + PREFIX_BYTES


class Outbox:
    """The send side of one connection. Event loop only.

    Attributes:
        transport: None before the connection is made and after it is lost.
        is_writable: whether the transport accepts more data.
        is_collecting: whether a turn is running that ends with a call of `flush`.
        unsent_bytes: bytes in the queues of calls.
        sent_bytes: bytes of DATA since the connection began.
    """

    __slots__ = (
        "_connection",
        "_frame_bytes_max",
        "_initial_window",
        "_is_flush_due",
        "_out",
        "_out_bytes",
        "_ready",
        "_waiting",
        "_window",
        "is_collecting",
        "is_writable",
        "sent_bytes",
        "transport",
        "unsent_bytes",
    )

    def __init__(self, connection: Connection) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_writable = True
        self.is_collecting = False
        self.unsent_bytes = 0
        self.sent_bytes = 0
        self._connection = connection
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._is_flush_due = False
        self._window = WINDOW_DEFAULT
        self._initial_window = WINDOW_DEFAULT
        self._frame_bytes_max = frames.FRAME_BYTES_DEFAULT
        # Calls with data to send: first the calls whose own window is open, then the others.
        self._ready: dict[Call, None] = {}
        self._waiting: dict[Call, None] = {}

    @property
    def waiting_bytes(self) -> int:
        """Bytes in this process that wait for the peer to read or to widen a window."""
        transport = self.transport
        return self.unsent_bytes + (0 if transport is None else transport.get_write_buffer_size())

    # Control frames.

    def put(self, frame: bytes) -> None:
        """Send a frame that isn't subject to flow control."""
        if self.transport is None:
            return
        self._out.append(frame)
        self._out_bytes += len(frame)
        self._schedule()

    def flush(self) -> None:
        """Write the collected frames to the transport, with the DATA that windows allow."""
        if self._ready:
            # Frames sent meanwhile are written below.
            self._is_flush_due = True
            self._pump()
        self._is_flush_due = False
        if self._out:
            self._write()

    def _schedule(self) -> None:
        if self._out_bytes >= FLUSH_BYTES:
            self._write()
        elif not self.is_collecting and not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def _write(self) -> None:
        out, transport = self._out, self.transport
        if transport is None or transport.is_closing():
            pass
        elif len(out) == 1:
            transport.write(out[0])
        elif self._out_bytes <= JOIN_BYTES:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)
        out.clear()
        self._out_bytes = 0

    # Answers.

    def answer(self, call: Call, message: bytes) -> None:
        """Send an answer of one message and end the call."""
        size = PREFIX_BYTES + len(message)
        window = self._window
        if (
            size > window
            or size > self._frame_bytes_max
            or size > self._initial_window + call.send_window
            or call.has_begun
        ):
            self.send(call, message)
            self.end(call, OK_BLOCK)
            return
        self._window = window - size
        self.sent_bytes += size
        stream_id = call.stream_id.to_bytes(4, "big")
        self._out += (
            _HEAD_START,
            stream_id,
            HEAD_BLOCK,
            size.to_bytes(3, "big"),
            _DATA_FLAGS,
            stream_id,
            _NOT_COMPRESSED,
            len(message).to_bytes(4, "big"),
            message,
            _OK_START,
            stream_id,
            OK_BLOCK,
        )
        self._out_bytes += size + _ANSWER_EXTRA
        self._connection.requests.ended(call)
        self._schedule()

    def send(self, call: Call, message: bytes) -> None:
        """Send one message of an answer, or queue it until the windows allow it."""
        if not call.has_begun:
            call.has_begun = True
            self.put(frames.headers(call.stream_id, HEAD_BLOCK, ends=False))
        if call.queue is None:
            call.queue = deque()
        call.queue.append(memoryview(add_prefix(message)))
        self._count(call, PREFIX_BYTES + len(message))
        if call not in self._waiting:
            self._ready[call] = None
        self._schedule()

    def end(self, call: Call, block: bytes) -> None:
        """End a call with its last fields, after all its queued data."""
        call.ending = block
        if call.queue:
            return
        self._end(call)

    def forget(self, call: Call) -> None:
        """Drop the queued data of a call that has ended."""
        self._ready.pop(call, None)
        self._waiting.pop(call, None)
        if call.queue:
            call.queue.clear()
            self._count(call, -call.unsent_bytes)

    # Windows.

    def widen(self, increment: int) -> None:
        """Apply a WINDOW_UPDATE of the connection.

        Raises:
            Http2ConnectionError: the increment is 0, or the window becomes too large.
        """
        if not increment:
            raise Http2ConnectionError(
                ErrorCode.PROTOCOL_ERROR, "the connection's window is widened by 0"
            )
        if self._window + increment > WINDOW_MAX:
            raise Http2ConnectionError(
                ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is above 2^31-1"
            )
        self._window += increment

    def widen_stream(self, call: Call, increment: int) -> None:
        """Apply a WINDOW_UPDATE of a stream.

        Raises:
            Http2StreamError: the increment is 0, or the window becomes too large.
        """
        if not increment:
            raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, "a window is widened by 0")
        if self._initial_window + call.send_window + increment > WINDOW_MAX:
            raise Http2StreamError(ErrorCode.FLOW_CONTROL_ERROR, "a window is above 2^31-1")
        call.send_window += increment
        if self._waiting.pop(call, False) is None:
            self._ready[call] = None

    def set_initial_window(self, size: int, largest: int) -> None:
        """Apply SETTINGS_INITIAL_WINDOW_SIZE to all streams; `largest` is the widest of them.

        Raises:
            Http2ConnectionError: a window becomes too large.
        """
        if size + largest > WINDOW_MAX:
            raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "a window is above 2^31-1")
        self._initial_window = size
        self._ready.update(self._waiting)
        self._waiting.clear()

    def set_frame_bytes_max(self, size: int) -> None:
        """Apply SETTINGS_MAX_FRAME_SIZE."""
        self._frame_bytes_max = size

    def _pump(self) -> None:
        """Send DATA of the waiting calls, one frame each in turn, as far as windows allow."""
        ready = self._ready
        while ready and self._window > 0 and self.is_writable:
            call = next(iter(ready))
            del ready[call]
            room = min(self._window, self._initial_window + call.send_window, self._frame_bytes_max)
            if room <= 0:
                self._waiting[call] = None
                continue
            self._send_frame(call, room)
            if call.queue:
                ready[call] = None
            elif call.ending is not None:
                self._end(call)
            call.wake()

    def _send_frame(self, call: Call, room: int) -> None:
        """Send one DATA frame of a call."""
        queue = call.queue
        assert queue
        size = 0
        pieces: list[memoryview] = []
        while queue and size < room:
            piece = queue[0]
            if len(piece) <= room - size:
                queue.popleft()
            else:
                queue[0] = piece[room - size :]
                piece = piece[: room - size]
            pieces.append(piece)
            size += len(piece)
        self._window -= size
        call.send_window -= size
        self.sent_bytes += size
        self._count(call, -size)
        self._out.append(HEAD.pack(size << 8 | codes.DATA, 0, call.stream_id))
        self._out += pieces
        self._out_bytes += HEAD.size + size
        self._schedule()

    def _end(self, call: Call) -> None:
        assert call.ending is not None
        call.has_begun = True
        self.put(frames.headers(call.stream_id, call.ending, ends=True))
        self._connection.requests.ended(call)

    def _count(self, call: Call, size: int) -> None:
        call.unsent_bytes += size
        self.unsent_bytes += size
        self._connection.unsent_changed(size)
