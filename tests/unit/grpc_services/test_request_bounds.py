from __future__ import annotations

import pytest

from broker_core.errors import CallRefusedError
from broker_core.grpc_messages.clients import TelemetryCommand, ThreadStackTrace
from broker_core.grpc_messages.codec import PYTHON
from broker_core.grpc_messages.sending import SendMessageRequest
from broker_core.grpc_messages.shared import Message, Resource
from broker_core.grpc_services.request_bounds import (
    NONE,
    OVERHEAD_BYTES_MAX,
    SENT_BODIES,
    THREADS,
    require_bounded,
)
from broker_core.http2.codes import GrpcStatus


def send_request(overhead: int) -> bytes:
    """Return a request with two bodies of 1 MiB, and the given number of other bytes."""
    message = Message(Resource("", "T"), {}, body=b"x" * (1 << 20))
    data = PYTHON.encode(SendMessageRequest([message, message]))
    missing = overhead - (len(data) - (2 << 20))
    # A field unknown to the broker: number 15, its length in three bytes.
    padding = missing - 4
    assert 1 << 14 <= padding < 1 << 21
    length = bytes([padding & 127 | 128, padding >> 7 & 127 | 128, padding >> 14])
    return data + b"\x7a" + length + bytes(padding)


def test_a_request_may_have_128_kib_beside_its_bodies_but_no_more() -> None:
    require_bounded(send_request(OVERHEAD_BYTES_MAX), SENT_BODIES)

    with pytest.raises(CallRefusedError) as caught:
        require_bounded(send_request(OVERHEAD_BYTES_MAX + 1), SENT_BODIES)

    assert OVERHEAD_BYTES_MAX == 131_072
    assert caught.value.status is GrpcStatus.RESOURCE_EXHAUSTED


def test_a_body_counts_even_where_none_is_expected() -> None:
    data = send_request(OVERHEAD_BYTES_MAX)

    with pytest.raises(CallRefusedError):
        require_bounded(data, NONE)


def test_a_thread_dump_may_be_long_but_not_its_nonce() -> None:
    def dump(nonce: str, text: str) -> bytes:
        return PYTHON.encode(TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce, text)))

    require_bounded(dump("n", "t" * (1 << 20)), THREADS)
    with pytest.raises(CallRefusedError):
        require_bounded(dump("n" * (1 << 18), "t"), THREADS)


def test_a_flood_of_empty_messages_is_rejected_before_it_is_decoded() -> None:
    with pytest.raises(CallRefusedError):
        require_bounded(b"\x0a\x00" * (1 << 20), SENT_BODIES)
