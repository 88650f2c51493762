"""The start of a connection: the client's preface and its first frame (RFC 9113, 3.4)."""

from __future__ import annotations

from broker_core.errors import Http2ConnectionError
from broker_core.http2 import codes
from broker_core.http2.codes import ErrorCode
from broker_core.http2.frames import HEAD_BYTES, PREFACE

NEEDED_BYTES = len(PREFACE) + HEAD_BYTES
_HTTP_1 = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"OPTIONS ", b"DELETE ", b"PATCH ", b"CONNECT ")
_SENTENCE = b"This port speaks gRPC, which is HTTP/2: with prior knowledge, or over TLS.\n"
HTTP_1_ANSWER = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\ncontent-type: text/plain\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_SENTENCE), _SENTENCE)
)


def is_http_1(data: bytes) -> bool:
    """Return whether a connection starts like an HTTP/1.1 request."""
    return data.startswith(_HTTP_1)


def is_whole(data: bytes) -> bool:
    """Return whether the data contains the whole preface and the header of a frame.

    Raises:
        Http2ConnectionError: the data starts with something else.
    """
    if not PREFACE.startswith(data[: len(PREFACE)]):
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "the preface of HTTP/2 is missing")
    return len(data) >= NEEDED_BYTES


def check_first_frame(data: bytes) -> None:
    """Check that the frame after the preface is the client's SETTINGS.

    Raises:
        Http2ConnectionError: it is another frame.
    """
    kind, flags = data[len(PREFACE) + 3], data[len(PREFACE) + 4]
    if kind != codes.SETTINGS or flags & codes.ACK:
        raise Http2ConnectionError(
            ErrorCode.PROTOCOL_ERROR, "the first frame is not the client's SETTINGS"
        )
