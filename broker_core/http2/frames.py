"""HTTP/2 frames (RFC 9113, section 4): the nine-byte header, and the frames we send.

 0               1               2               3
+-----------------------------------------------+---------------+
|                 length (24 bits)              |  type (8)     |
+---------------+-----------------------------------------------+
|  flags (8)    |R| stream identifier (31 bits)
+---------------+-------------------------------------------------
"""

from __future__ import annotations

import struct

from broker_core.http2 import codes

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = struct.Struct(">IBI")
"""Length and type as one number, flags, then the stream identifier with its reserved bit."""
HEAD_BYTES = HEAD.size
assert HEAD_BYTES == 9
STREAM_ID_MAX = (1 << 31) - 1
WINDOW_MAX = (1 << 31) - 1
WINDOW_DEFAULT = 65_535
FRAME_BYTES_DEFAULT = 16_384
"""The payload size that every peer accepts, and the maximum that we accept."""
FRAME_BYTES_MAX = (1 << 24) - 1

_UINT32 = struct.Struct(">I")
_SETTING = struct.Struct(">HI")
SETTING_BYTES = _SETTING.size
DEBUG_BYTES_MAX = 512
"""Length limit of the text in a GOAWAY."""

SETTINGS_ACK = HEAD.pack(codes.SETTINGS, codes.ACK, 0)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return a frame of any type."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def settings(values: dict[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    payload = b"".join(_SETTING.pack(*item) for item in values.items())
    return frame(codes.SETTINGS, 0, 0, payload)


def settings_of(payload: bytes) -> list[tuple[int, int]]:
    """Return the settings in a SETTINGS frame, in order."""
    return list(_SETTING.iter_unpack(payload))


def window_update(stream_id: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE; stream 0 means the connection."""
    return frame(codes.WINDOW_UPDATE, 0, stream_id, _UINT32.pack(increment))


def rst_stream(stream_id: int, code: int) -> bytes:
    """Return a RST_STREAM."""
    return frame(codes.RST_STREAM, 0, stream_id, _UINT32.pack(code))


def ping(data: bytes, *, is_ack: bool) -> bytes:
    """Return a PING with 8 bytes."""
    return frame(codes.PING, codes.ACK if is_ack else 0, 0, data)


def goaway(last_stream_id: int, code: int, reason: str = "") -> bytes:
    """Return a GOAWAY; `reason` is for people who read the peer's log."""
    debug = reason.encode("utf-8", "replace")[:DEBUG_BYTES_MAX]
    payload = _UINT32.pack(last_stream_id) + _UINT32.pack(code) + debug
    return frame(codes.GOAWAY, 0, 0, payload)


def headers(stream_id: int, block: bytes, *, ends: bool) -> bytes:
    """Return a HEADERS frame with a complete field block of at most FRAME_BYTES_DEFAULT."""
    assert len(block) <= FRAME_BYTES_DEFAULT
    flags = codes.END_HEADERS | (codes.END_STREAM if ends else 0)
    return frame(codes.HEADERS, flags, stream_id, block)


def uint31(payload: bytes) -> int:
    """Return a number without its reserved bit: an increment or a stream identifier."""
    return int(_UINT32.unpack(payload)[0]) & WINDOW_MAX
