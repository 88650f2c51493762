"""gRPC over HTTP/2: message prefixes, timeouts, statuses and the field blocks of answers.

Five bytes precede a message: a byte that says whether it is compressed, and its length.

Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from broker_core.errors import CallRefusedError
from broker_core.http2 import hpack
from broker_core.http2.codes import GrpcStatus
from broker_core.http2.header_fields import STATIC

PREFIX = struct.Struct(">BI")
PREFIX_BYTES = PREFIX.size
CONTENT_TYPE = "application/grpc"
MESSAGE_BYTES_MAX = 2_000
"""Limit of a status text in UTF-8; percent-encoding makes it at most three times as long."""

_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])").fullmatch
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_NOT_PLAIN = re.compile(rb"[^ -$&-~]")


def _index(name: str, value: str) -> int:
    return next(i for i, each in enumerate(STATIC) if each[:2] == (name, value))


_STATUS_200 = hpack.indexed_field(_index(":status", "200"))
_STATUS = _index(":status", "200")
_GRPC = hpack.literal_of(_index("content-type", ""), CONTENT_TYPE)

HEAD_BLOCK = _STATUS_200 + _GRPC
"""Fields before the first message of an answer."""
OK_BLOCK = hpack.literal("grpc-status", "0")
"""Fields after the last message."""


def timeout_s(text: str) -> float:
    """Return a grpc-timeout in seconds.

    Raises:
        CallRefusedError: the text isn't a valid grpc-timeout.
    """
    found = _TIMEOUT(text)
    if found is None:
        raise CallRefusedError(GrpcStatus.INTERNAL, f"malformed grpc-timeout: {text}")
    digits, unit = found.groups()
    return int(digits) * _SECONDS[unit]


def percent_encode(text: str) -> str:
    """Return a grpc-message: UTF-8, with everything except plain ASCII as %XX."""
    data = text.encode("utf-8", "replace")
    if len(data) > MESSAGE_BYTES_MAX:
        data = data[:MESSAGE_BYTES_MAX].decode("utf-8", "ignore").encode()
    return _NOT_PLAIN.sub(lambda found: b"%%%02X" % found[0][0], data).decode("ascii")


@lru_cache(64)
def status_block(status: int, message: str = "") -> bytes:
    """Return the fields that end a call after its answer has started."""
    text = hpack.literal("grpc-message", percent_encode(message)) if message else b""
    return hpack.literal("grpc-status", str(int(status))) + text


def only_block(status: int, message: str = "", http_status: int = 200) -> bytes:
    """Return the fields of an answer without messages."""
    head = _STATUS_200 if http_status == 200 else hpack.literal_of(_STATUS, str(http_status))
    return head + _GRPC + status_block(status, message)


IDENTITY_ONLY = hpack.literal("grpc-accept-encoding", "identity")
"""Field for answers to requests with an unsupported encoding."""


def add_prefix(message: bytes) -> bytes:
    """Return a message with its prefix."""
    return PREFIX.pack(0, len(message)) + message
