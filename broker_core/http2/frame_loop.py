"""The frame loop: process the complete frames that a connection has received.

Most frames are a call's HEADERS and the DATA with its whole request. The loop handles these itself
and leaves the rest to the connection. The compiled version is `native/frame_loop.pxi`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import Http2ConnectionError, Http2StreamError
from broker_core.http2 import codes, dispatch
from broker_core.http2.codes import ErrorCode
from broker_core.http2.frames import FRAME_BYTES_DEFAULT, HEAD, HEAD_BYTES, STREAM_ID_MAX
from broker_core.http2.grpc_framing import PREFIX, PREFIX_BYTES

if TYPE_CHECKING:
    from broker_core.http2.connection import Connection

RECEIVE_WINDOW = 4 * 1024 * 1024
"""Bytes that the peer may send before its window is widened. Stream windows limit the memory."""
WORK_PER_FRAME = 64
WORK_PER_LOOK = 2048
"""Bytes of field blocks, plus WORK_PER_FRAME for each frame, between two checks of the clock."""
NOT_PLAIN_HEADERS = codes.PADDED | codes.HAS_PRIORITY


def take_frames(connection: Connection, data: bytes) -> int:
    """Process the complete frames at the start of data; return the position after them.

    Raises:
        Http2ConnectionError: the connection must end.
    """
    head, prefix = HEAD.unpack_from, PREFIX.unpack_from
    requests = connection.requests
    streams = requests.streams
    at = work = 0
    end = len(data)
    while end - at >= HEAD_BYTES:
        kind, flags, stream_id = head(data, at)
        length = kind >> 8
        start = at + HEAD_BYTES
        after = start + length
        if length > FRAME_BYTES_DEFAULT:
            raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, f"a frame has {length} bytes")
        if after > end:
            break
        at = after
        kind &= 0xFF
        stream_id &= STREAM_ID_MAX
        work += WORK_PER_FRAME
        if kind == codes.DATA and connection.block is None:
            connection.receive_window -= length
            call = streams.get(stream_id)
            if (
                flags == codes.END_STREAM
                and call is not None
                and call.is_plain
                and length >= PREFIX_BYTES
                and prefix(data, start) == (0, length - PREFIX_BYTES)
            ):
                call.is_plain = False
                call.is_request_over = True
                dispatch.dispatch(call, data[start + PREFIX_BYTES : after])
            else:
                connection.other_frame(kind, flags, stream_id, data[start:after])
            if connection.receive_window < RECEIVE_WINDOW // 2:
                connection.widen()
        elif (
            kind == codes.HEADERS
            and flags & codes.END_HEADERS
            and not flags & NOT_PLAIN_HEADERS
            and connection.block is None
        ):
            work += length
            try:
                requests.headers(stream_id, flags, data[start:after])
            except Http2StreamError as error:
                requests.fault(stream_id, error)
        else:
            work += length
            connection.other_frame(kind, flags, stream_id, data[start:after])
        if connection.is_stopped:
            return end
        if work >= WORK_PER_LOOK:
            work = 0
            if at < end and connection.is_turn_over():
                connection.postpone()
                break
    return at
