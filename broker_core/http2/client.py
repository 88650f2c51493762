"""The client's side of gRPC: one connection in cleartext, and the calls on it.

A call is one stream: the client sends messages, the server answers with messages and a status. The
server's stream window limits how much of an unread answer is held in memory.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections import deque
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from broker_core.clock import SystemClock, wait_within
from broker_core.errors import (
    CallRefusedError,
    Http2ConnectionError,
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeoutError,
)
from broker_core.http2 import codes, frames, hpack
from broker_core.http2.codes import ErrorCode, GrpcStatus
from broker_core.http2.grpc_framing import CONTENT_TYPE, PREFIX, PREFIX_BYTES, add_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.clock import Clock

STREAM_WINDOW = 16 * 1024 * 1024
"""Bytes that a server may send on a stream before they are read; larger messages are refused."""
CONNECTION_WINDOW = 64 * 1024 * 1024
HEADER_BYTES_MAX = 32 * 1024
CONNECT_S = 3.0
CLOSE_S = 1.0
MS_PER_S = 1_000


class ClientConnection(asyncio.Protocol):
    """A connection to one server; `open_connection` creates it. Event loop only."""

    def __init__(self, address: str, clock: Clock | None = None) -> None:
        self.address = address
        self.clock = clock or SystemClock()
        self.is_open = False
        self.stream_window = frames.WINDOW_DEFAULT
        """The server's initial window of each stream."""
        self._transport: asyncio.Transport | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls: dict[int, ClientCall] = {}
        self._next_stream = 1
        self._window = frames.WINDOW_DEFAULT
        self._received = bytearray()
        self._decoder = hpack.HeaderDecoder(HEADER_BYTES_MAX)
        self._block: bytearray | None = None
        """The start of a field block whose CONTINUATION frames are still to come."""
        self._block_ends = False

    # Calls.

    def call(
        self, path: str, fields: Mapping[str, str], timeout_s: float | None = None
    ) -> ClientCall:
        """Start a call with these header fields.

        Raises:
            RemotingSendError: the connection has ended.
        """
        if not self.is_open or self._next_stream > frames.STREAM_ID_MAX:
            raise RemotingSendError(f"the connection to {self.address} has ended")
        stream_id = self._next_stream
        self._next_stream += 2
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": self.address,
            "content-type": CONTENT_TYPE,
            "te": "trailers",
            **({} if timeout_s is None else {"grpc-timeout": f"{round(timeout_s * MS_PER_S)}m"}),
            **fields,
        }
        block = b"".join(hpack.literal(*field) for field in headers.items())
        call = self._calls[stream_id] = ClientCall(self, stream_id, timeout_s)
        self.write(frames.headers(stream_id, block, ends=False))
        return call

    async def unary(
        self, path: str, message: bytes, fields: Mapping[str, str], timeout_s: float
    ) -> bytes:
        """Return the only answer to a message.

        Raises:
            CallRefusedError: the server refused the call.
            RemotingTimeoutError: no answer in time.
            RemotingSendError: the connection ended first.
        """
        call = self.call(path, fields, timeout_s)
        try:
            call.send(message, ends=True)
            answer = await call.receive()
            if answer is None:
                raise CallRefusedError(GrpcStatus.INTERNAL, "the server sent no answer")
            await call.receive()
        finally:
            call.cancel()
        return answer

    async def close(self) -> None:
        """Close the connection; calls in progress raise RemotingSendError."""
        if self._transport is None or self._lost.done():
            return
        self.is_open = False
        self.write(frames.goaway(0, ErrorCode.NO_ERROR))
        self._transport.close()
        if not await wait_within(self.clock, self._lost, CLOSE_S):
            self._transport.abort()

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True
        settings = {codes.ENABLE_PUSH: 0, codes.INITIAL_WINDOW_SIZE: STREAM_WINDOW}
        self.write(
            frames.PREFACE
            + frames.settings(settings)
            + frames.window_update(0, CONNECTION_WINDOW - frames.WINDOW_DEFAULT)
        )

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            self._take_frames()
        except struct.error:
            text = "a frame is too short or too long for its type"
            self._abandon(ErrorCode.FRAME_SIZE_ERROR, text)
        except Http2ConnectionError as error:
            self._abandon(error.code, str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if not self._lost.done():
            self._lost.set_result(None)
        self._end_calls("it was closed" if exc is None else str(exc).lower())

    # For calls.

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def take_window(self, wanted: int) -> int:
        """Take as much as possible of the connection's window for sending."""
        taken = max(0, min(wanted, self._window, frames.FRAME_BYTES_DEFAULT))
        self._window -= taken
        return taken

    def forget(self, stream_id: int) -> None:
        self._calls.pop(stream_id, None)

    # Internal.

    def _abandon(self, code: int, reason: str) -> None:
        """Close the connection, because the server broke the protocol."""
        self.is_open = False
        self.write(frames.goaway(0, code, reason))
        self._end_calls(reason)
        assert self._transport is not None
        self._transport.close()

    def _take_frames(self) -> None:
        data, at = bytes(self._received), 0
        while len(data) - at >= frames.HEAD_BYTES:
            kind, flags, stream_id = frames.HEAD.unpack_from(data, at)
            length = kind >> 8
            if length > frames.FRAME_BYTES_DEFAULT:
                raise Http2ConnectionError(
                    ErrorCode.FRAME_SIZE_ERROR, f"a frame has {length} bytes"
                )
            end = at + frames.HEAD_BYTES + length
            if end > len(data):
                break
            payload = data[end - length : end]
            self._take_frame(kind & 0xFF, flags, stream_id & frames.STREAM_ID_MAX, payload)
            at = end
        del self._received[:at]

    def _take_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is not None and kind != codes.CONTINUATION:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a field block is interrupted")
        call = self._calls.get(stream_id)
        if kind == codes.DATA:
            # The stream's own window limits what a slow reader has to hold.
            if payload:
                self.write(frames.window_update(0, len(payload)))
            if call is not None:
                call.data_received(_unpadded(payload, flags), len(payload))
                if flags & codes.END_STREAM:
                    call.ended({})
        elif kind == codes.HEADERS:
            block = _unpadded(payload, flags)
            self._block = bytearray(block[5:] if flags & codes.HAS_PRIORITY else block)
            self._block_ends = bool(flags & codes.END_STREAM)
            self._block_received(flags, call)
        elif kind == codes.CONTINUATION:
            if self._block is None:
                raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
            self._block += payload
            self._block_received(flags, call)
        elif kind == codes.RST_STREAM:
            if call is not None:
                call.fail(RemotingSendError(f"{self.address} reset the call"))
        elif kind == codes.SETTINGS and not flags & codes.ACK:
            self._apply(frames.settings_of(payload))
        elif kind == codes.PING and not flags & codes.ACK:
            self.write(frames.ping(payload, is_ack=True))
        elif kind == codes.GOAWAY:
            # Calls in progress can still end; new ones need another connection.
            self.is_open = False
        elif kind == codes.WINDOW_UPDATE:
            self._widen(call, stream_id, frames.uint31(payload))

    def _block_received(self, flags: int, call: ClientCall | None) -> None:
        assert self._block is not None
        if len(self._block) > HEADER_BYTES_MAX:
            raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "a field block is too long")
        if not flags & codes.END_HEADERS:
            return
        block, self._block = bytes(self._block), None
        # Blocks of unknown streams count, too: they change the decoder's table. The decoder's
        # verdict is for requests, whose pseudo-header fields differ from an answer's.
        fields = self._decoder.decode(block)
        if call is not None and self._block_ends:
            call.ended(fields)

    def _apply(self, settings: list[tuple[int, int]]) -> None:
        for name, value in settings:
            if name == codes.INITIAL_WINDOW_SIZE:
                change = value - self.stream_window
                self.stream_window = value
                for call in self._calls.values():
                    call.window += change
        self.write(frames.SETTINGS_ACK)
        self._flush()

    def _widen(self, call: ClientCall | None, stream_id: int, increment: int) -> None:
        if not stream_id:
            self._window += increment
            self._flush()
        elif call is not None:
            call.window += increment
            call.flush()

    def _flush(self) -> None:
        for call in list(self._calls.values()):
            call.flush()

    def _end_calls(self, reason: str) -> None:
        error = RemotingSendError(f"the connection to {self.address} ended: {reason}")
        for call in list(self._calls.values()):
            call.fail(error)


class ClientCall:
    """One call. Event loop only; one task at a time may wait in `receive`."""

    def __init__(
        self, connection: ClientConnection, stream_id: int, timeout_s: float | None
    ) -> None:
        self.window = connection.stream_window
        """Bytes that the server's window of this stream still allows."""
        self._connection = connection
        self._stream_id = stream_id
        clock = connection.clock
        self._deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        self._unsent = bytearray()
        self._is_last = False
        self._data = bytearray()
        self._messages: deque[bytes] = deque()
        self._outcome: Exception | None = None
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None

    def send(self, message: bytes, *, ends: bool = False) -> None:
        """Send a message when the server's windows allow it; `ends` says that it is the last.

        Raises:
            RemotingSendError, CallRefusedError: the call has ended.
        """
        if self._is_over:
            raise self._outcome or RemotingSendError("the call has ended")
        self._unsent += add_prefix(message)
        self._is_last = ends
        self.flush()

    async def receive(self) -> bytes | None:
        """Return the server's next message, or None once the call has ended with success.

        Raises:
            CallRefusedError: the call ended with another status.
            RemotingTimeoutError: the call's time is over.
            RemotingSendError: the connection ended first.
        """
        while not self._messages:
            if self._is_over:
                if self._outcome is not None:
                    raise self._outcome
                return None
            await self._wait()
        message = self._messages.popleft()
        if not self._is_over:
            size = PREFIX_BYTES + len(message)
            self._connection.write(frames.window_update(self._stream_id, size))
        return message

    def cancel(self) -> None:
        """End the call if it is still in progress."""
        if not self._is_over:
            self._connection.write(frames.rst_stream(self._stream_id, ErrorCode.CANCEL))
            self.fail(RemotingSendError("the call was cancelled"))

    # For the connection.

    def flush(self) -> None:
        """Send as much as the windows allow."""
        while self._unsent and self.window > 0:
            size = self._connection.take_window(min(len(self._unsent), self.window))
            if not size:
                return
            self.window -= size
            piece = bytes(self._unsent[:size])
            del self._unsent[:size]
            is_end = self._is_last and not self._unsent
            flags = codes.END_STREAM if is_end else 0
            self._connection.write(frames.frame(codes.DATA, flags, self._stream_id, piece))

    def data_received(self, data: bytes, size: int) -> None:
        """Add a DATA payload; `size` includes its padding."""
        if size > len(data):
            self._connection.write(frames.window_update(self._stream_id, size - len(data)))
        self._data += data
        while len(self._data) >= PREFIX_BYTES:
            is_compressed, length = PREFIX.unpack_from(self._data)
            if is_compressed or length + PREFIX_BYTES > STREAM_WINDOW:
                raise Http2ConnectionError(
                    ErrorCode.ENHANCE_YOUR_CALM,
                    "a message is compressed" if is_compressed else f"a message has {length} bytes",
                )
            if len(self._data) < PREFIX_BYTES + length:
                break
            self._messages.append(bytes(self._data[PREFIX_BYTES : PREFIX_BYTES + length]))
            del self._data[: PREFIX_BYTES + length]
        self._wake()

    def ended(self, trailers: Mapping[str, str]) -> None:
        """End the call with the status in the last field block."""
        if trailers.get("grpc-status") == "0":
            self._end(None)
            return
        try:
            status = int(trailers["grpc-status"])
        except (KeyError, ValueError):
            http_status = trailers.get(":status", "no status")
            self._end(CallRefusedError(GrpcStatus.UNKNOWN, f"HTTP answer {http_status}"))
            return
        if status == GrpcStatus.DEADLINE_EXCEEDED:
            self._end(self._late())
            return
        text = unquote(trailers.get("grpc-message", "")) or f"grpc-status {status}"
        self._end(CallRefusedError(status, text))

    def fail(self, error: Exception) -> None:
        """End the call with an error, unless it has already ended."""
        self._end(error)

    # Internal.

    def _end(self, outcome: Exception | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._outcome = outcome
            self._unsent.clear()
            self._connection.forget(self._stream_id)
        self._wake()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        if self._deadline is None:
            await self._waiter
            return
        clock = self._connection.clock
        left_s = max(0.0, self._deadline - clock.monotonic())
        if not await wait_within(clock, self._waiter, left_s):
            self.cancel()
            raise self._late()

    def _late(self) -> RemotingTimeoutError:
        return RemotingTimeoutError(f"no answer from {self._connection.address} in time")

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def open_connection(
    host: str, port: int, *, clock: Clock | None = None, timeout_s: float = CONNECT_S
) -> ClientConnection:
    """Connect to a server.

    Raises:
        RemotingConnectError: the text says why in one sentence.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    connection = ClientConnection(address, clock)
    loop = asyncio.get_running_loop()
    making = loop.create_task(loop.create_connection(lambda: connection, host, port))
    try:
        if not await wait_within(connection.clock, making, timeout_s):
            raise RemotingConnectError(f"no connection to {address} within {timeout_s:g} s")
        await making
    except (OSError, UnicodeError) as error:
        errno = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(errno).lower() if errno and errno > 0 else str(error).lower()
        raise RemotingConnectError(f"no connection to {address}: {reason}") from error
    finally:
        making.cancel()
    return connection


def _unpadded(payload: bytes, flags: int) -> bytes:
    """Return a payload without its padding."""
    if not flags & codes.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a frame is all padding")
    return payload[1 : len(payload) - payload[0]]
