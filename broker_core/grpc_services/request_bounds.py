"""Limit the size of a request apart from its large field.

Reading a message of a few MiB is cheap if it is a single body, but the same bytes as empty fields
become millions of objects. So a long message is scanned before it is decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from broker_core.errors import CallRefusedError
from broker_core.grpc_messages.wire_format import (
    LENGTH,
    START_GROUP,
    read_length,
    read_tag,
    skip,
)
from broker_core.http2.codes import GrpcStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

OVERHEAD_BYTES_MAX = 128 * 1024
LargeFields: TypeAlias = "Mapping[int, LargeFields | None]"
NONE: LargeFields = {}
SENT_BODIES: LargeFields = {1: {4: None}}
"""SendMessageRequest.messages, Message.body."""
THREADS: LargeFields = {3: {2: None}}
"""TelemetryCommand.thread_stack_trace, ThreadStackTrace.thread_stack_trace."""


def require_bounded(data: bytes, large: LargeFields) -> None:
    """Check a message before it is decoded; `large` names the fields that may be long.

    Raises:
        CallRefusedError: RESOURCE_EXHAUSTED.
        ProtobufError: it isn't a valid message.
    """
    if len(data) > OVERHEAD_BYTES_MAX and _overhead(data, 0, len(data), large) is None:
        raise CallRefusedError(
            GrpcStatus.RESOURCE_EXHAUSTED,
            f"the request has more than {OVERHEAD_BYTES_MAX} bytes outside its message bodies",
        )


def _overhead(data: bytes, at: int, end: int, large: LargeFields) -> int | None:
    """Return the bytes of a message without its large fields, or None if there are too many."""
    overhead = 0
    while at < end:
        begin = at
        tag, at = read_tag(data, at, end)
        if tag & 7 == START_GROUP:
            return None
        number = tag >> 3
        if tag & 7 == LENGTH and number in large:
            start, after = read_length(data, at, end)
            overhead += start - begin
            inner = large[number]
            if inner is not None:
                found = _overhead(data, start, after, inner)
                if found is None:
                    return None
                overhead += found
            at = after
        else:
            at = skip(data, at, end, tag)
            overhead += at - begin
        if overhead > OVERHEAD_BYTES_MAX:
            return None
    return overhead
