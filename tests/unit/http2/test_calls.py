"""gRPC over HTTP/2: requests, answers, statuses, timeouts, cancellation."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from broker_core.errors import CallRefusedError, ProtobufError
from broker_core.http2 import codes, frames
from broker_core.http2.codes import ErrorCode, GrpcStatus
from broker_core.http2.frames import frame, headers
from broker_core.http2.limits import Http2Limits
from broker_core.http2.methods import Bidi, ServerStreaming, Unary
from tests.support.http2_peer import (
    CHAT,
    ECHO,
    LATER,
    REPEAT,
    Peer,
    block_of,
    data_frame,
    request,
)

if TYPE_CHECKING:
    from broker_core.http2.call import Call
    from broker_core.http2.connection import Connection


async def test_a_call_is_answered_with_headers_a_message_and_its_status() -> None:
    peer = Peer()

    answer = peer.answer(peer.call(b"hello"))

    assert answer.headers == {":status": "200", "content-type": "application/grpc"}
    assert answer.messages == [b"hello"]
    assert answer.trailers == {"grpc-status": "0"}
    assert answer.is_over


async def test_answers_to_one_received_buffer_leave_in_one_write() -> None:
    peer = Peer()
    writes = []
    peer.transport.write = lambda data: writes.append(bytes(data))  # type: ignore[method-assign]

    block = block_of(*request())
    peer.send(
        b"".join(
            headers(stream_id, block, ends=False) + data_frame(stream_id, b"hello")
            for stream_id in range(1, 129, 2)
        )
    )

    assert len(writes) == 1
    assert writes[0].count(b"grpc-status") == 64


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 65_530, 300_000])
async def test_a_message_of_any_length_arrives(size: int) -> None:
    peer = Peer()
    peer.send(frames.window_update(0, 1 << 20) + frames.settings({4: 1 << 20}))

    assert peer.answer(peer.call(bytes(size))).messages == [bytes(size)]


async def test_a_message_may_arrive_in_any_pieces() -> None:
    peer = Peer()
    stream_id = peer.call(None, ends=False)
    for byte in b"\0\0\0\0\5hello":
        peer.send(frame(codes.DATA, 0, stream_id, bytes((byte,))))
    peer.send(frame(codes.DATA, codes.END_STREAM, stream_id, b""))

    assert peer.answer(stream_id).messages == [b"hello"]


async def test_a_stream_of_answers_ends_with_its_status() -> None:
    peer = Peer()

    answer = peer.answer(peer.call(b"x", REPEAT))

    assert (answer.messages, answer.status, answer.is_over) == ([b"x"] * 3, 0, True)


async def test_an_answer_may_come_later() -> None:
    peer = Peer()
    stream_id = peer.call(b"x", LATER)
    assert peer.drain() == []

    peer.service.waiting[0].answer(b"y")
    await asyncio.sleep(0)

    assert peer.answer(stream_id).messages == [b"y"]
    assert peer.service.cancelled == []


async def test_an_awaitable_is_awaited() -> None:
    done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    peer = Peer(methods={ECHO: Unary(lambda *_: done)})
    stream_id = peer.call()
    await asyncio.sleep(0)
    assert peer.drain() == []

    done.set_result(b"later")
    for _ in range(3):
        await asyncio.sleep(0)

    assert peer.answer(stream_id).messages == [b"later"]


async def test_the_end_of_a_call_cancels_no_awaitable() -> None:
    done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    peer = Peer(methods={ECHO: Unary(lambda *_: done)})
    stream_id = peer.call()
    await asyncio.sleep(0)

    peer.send(frames.rst_stream(stream_id, ErrorCode.CANCEL))
    await asyncio.sleep(0)
    assert not done.cancelled()
    done.set_result(b"too late")
    for _ in range(3):
        await asyncio.sleep(0)

    assert peer.drain() == []


# Statuses.


def refusing(error: Exception) -> Unary:
    def handler(_: Call, __: bytes) -> bytes:
        raise error

    return Unary(handler)


async def failing(error: Exception) -> bytes:
    await asyncio.sleep(0)
    raise error


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (CallRefusedError(GrpcStatus.INVALID_ARGUMENT, "no"), GrpcStatus.INVALID_ARGUMENT, "no"),
        (ProtobufError("cut"), GrpcStatus.INTERNAL, "invalid protobuf message: cut"),
        (KeyError("a secret"), GrpcStatus.INTERNAL, "internal error; see the broker's log"),
    ],
)
@pytest.mark.parametrize("is_later", [False, True])
async def test_a_handlers_error_becomes_a_status(
    error: Exception,
    status: int,
    text: str,
    is_later: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    method = Unary(lambda *_: failing(error)) if is_later else refusing(error)
    peer = Peer(methods={ECHO: method})
    stream_id = peer.call()
    for _ in range(4):
        await asyncio.sleep(0)

    answer = peer.answer(stream_id)

    assert (answer.status, answer.text, answer.is_over) == (status, text, True)
    # One HEADERS frame is the whole answer.
    assert answer.headers == answer.trailers
    assert ("a secret" in caplog.text) == isinstance(error, KeyError)


async def test_an_error_after_messages_is_sent_in_the_trailers() -> None:
    def stream(call: Call, _: bytes) -> None:
        call.send(b"one")
        raise CallRefusedError(GrpcStatus.ABORTED, "no more")

    peer = Peer(methods={ECHO: ServerStreaming(stream)})

    answer = peer.answer(peer.call())

    assert answer.headers == {":status": "200", "content-type": "application/grpc"}
    assert (answer.messages, answer.status, answer.text) == ([b"one"], 10, "no more")


async def test_a_long_status_text_is_cut_between_characters() -> None:
    text = "x" + "\N{GRINNING FACE}" * 5_000
    peer = Peer(methods={ECHO: refusing(CallRefusedError(GrpcStatus.UNKNOWN, text))})

    assert peer.answer(peer.call()).text == "x" + "%F0%9F%98%80" * 499


async def test_a_compressed_request_learns_what_the_server_accepts() -> None:
    peer = Peer()

    answer = peer.answer(peer.call(b"x", ECHO, ("grpc-encoding", "gzip")))

    assert answer.headers["grpc-accept-encoding"] == "identity"


async def test_a_deadline_may_be_far_away() -> None:
    peer = Peer()
    stream_id = peer.call(b"x", LATER, ("grpc-timeout", "99999999H"))

    peer.clock.advance_ms(1_000_000)

    assert peer.drain() == []
    peer.service.waiting[0].answer(b"y")
    assert peer.answer(stream_id).messages == [b"y"]


async def test_a_status_text_is_percent_encoded() -> None:
    text = "50 % of Größe\n"
    peer = Peer(methods={ECHO: refusing(CallRefusedError(GrpcStatus.UNKNOWN, text))})

    assert peer.answer(peer.call()).text == "50 %25 of Gr%C3%B6%C3%9Fe%0A"


@pytest.mark.parametrize(
    ("fields", "http_status", "status", "text"),
    [
        (request("/test.Service/None"), "200", 12, "Method not found: test.Service/None"),
        (request(method="GET"), "405", 12, "this port serves gRPC"),
        ([*request()[:4], ("content-type", "text/html")], "415", 2, "the content-type is not"),
        ([*request()[:4], ("content-type", "application/grpc+json")], "415", 2, "only protobuf"),
        ([*request()[:4]], "415", 2, "the content-type is not"),
        ([*request(), ("grpc-encoding", "gzip")], "200", 12, "grpc-encoding gzip is not supported"),
        ([*request(), ("grpc-timeout", "1 S")], "200", 13, "malformed grpc-timeout: 1 S"),
        ([*request(), ("grpc-timeout", "123456789S")], "200", 13, "malformed grpc-timeout"),
        ([*request(), ("x", "y" * 16_384)], "431", 8, "the header list is larger than 16384"),
    ],
)
async def test_a_request_without_a_call_is_rejected_immediately(
    fields: list[tuple[str, str]], http_status: str, status: int, text: str
) -> None:
    peer = Peer()
    peer.send(
        frame(codes.HEADERS, 0, 1, block_of(*fields)[:16_000])
        + frame(codes.CONTINUATION, codes.END_HEADERS, 1, block_of(*fields)[16_000:])
    )

    answer = peer.answer(1)

    assert (answer.headers[":status"], answer.status) == (http_status, status)
    assert answer.text.startswith(text)
    # The rest of the request isn't needed (RFC 9113, 8.1), and dropped.
    peer.send(data_frame(1, b"hello"))
    peer.send(headers(3, block_of(*request()), ends=False) + data_frame(3, b"hello"))
    assert peer.answer(3).messages == [b"hello"]


@pytest.mark.parametrize("content_type", ["application/grpc+proto", "application/grpc;x=y"])
async def test_protobuf_content_types_are_accepted(content_type: str) -> None:
    peer = Peer()
    block = block_of(*request()[:4], ("content-type", content_type))

    peer.send(headers(1, block, ends=False) + data_frame(1, b"hello"))

    assert peer.answer(1).messages == [b"hello"]


@pytest.mark.parametrize(
    ("payload", "status", "text"),
    [
        (b"\1\0\0\0\5hello", 12, "compressed messages are not supported"),
        (b"\0\0\0\0\6hello", 13, "the request ends within a message"),
        (b"\0\0\0", 13, "the request ends within a message"),
        (b"", 13, "Half-closed without a request"),
        (b"\0\0\0\0\1a\0\0\0\0\1b", 13, "Too many requests"),
        (b"\0\xff\xff\xff\xff", 8, "the message has 4294967295 bytes"),
    ],
)
async def test_a_request_that_is_not_one_message_is_rejected(
    payload: bytes, status: int, text: str
) -> None:
    peer = Peer()
    stream_id = peer.call(None, ends=False)

    peer.send(frame(codes.DATA, codes.END_STREAM, stream_id, payload))

    answer = peer.answer(stream_id)
    assert (answer.status, answer.is_over) == (status, True)
    assert answer.text.startswith(text)
    assert peer.wire.streams == peer.wire.buffered_bytes == 0


async def test_a_message_above_the_limit_is_rejected_when_its_length_is_known() -> None:
    peer = Peer(Http2Limits(message_bytes_max=100_000))
    stream_id = peer.call(None, ends=False)

    peer.send(data_frame(stream_id, bytes(100_001))[: 9 + 16_384])

    assert peer.answer(stream_id).status == GrpcStatus.RESOURCE_EXHAUSTED
    assert peer.answer(peer.call(b"next")).messages == [b"next"]


# Timeouts.


@pytest.mark.parametrize(
    ("grpc_timeout", "milliseconds"),
    [("1H", 3_600_000), ("2M", 120_000), ("3S", 3_000), ("1500m", 1_500), ("2000000u", 2_000)],
)
async def test_a_call_without_an_answer_ends_at_its_deadline(
    grpc_timeout: str, milliseconds: int
) -> None:
    peer = Peer()
    stream_id = peer.call(b"x", LATER, ("grpc-timeout", grpc_timeout))

    peer.clock.advance_ms(milliseconds - 1)
    assert peer.drain() == []
    peer.clock.advance_ms(102)

    answer = peer.answer(stream_id)
    assert (answer.status, answer.text) == (4, "the deadline has passed")
    assert peer.service.cancelled == peer.service.waiting
    assert peer.clock.waiting == 0


async def test_a_met_deadline_leaves_nothing_behind() -> None:
    peer = Peer()
    for _ in range(3):
        peer.call(b"x", LATER, ("grpc-timeout", "5S"))
    for call in peer.service.waiting:
        call.answer(b"y")
    peer.drain()

    peer.clock.advance_ms(6_000)

    assert peer.drain() == []
    assert peer.service.cancelled == []


async def test_deadlines_are_kept_in_order() -> None:
    peer = Peer()
    late = peer.call(b"x", LATER, ("grpc-timeout", "9S"))
    soon = peer.call(b"x", LATER, ("grpc-timeout", "1S"))

    peer.clock.advance_ms(1_200)
    assert {one.stream_id for one in peer.drain()} == {soon}
    peer.clock.advance_ms(8_000)
    assert {one.stream_id for one in peer.drain()} == {late}


async def test_a_call_whose_client_reads_nothing_is_reset_at_its_deadline() -> None:
    peer = Peer(methods={ECHO: ServerStreaming(lambda call, _: call.send(bytes(100_000)))})
    stream_id = peer.call(b"x", ECHO, ("grpc-timeout", "1S"))
    peer.drain()

    peer.clock.advance_ms(1_200)

    (reset,) = peer.drain()
    assert (reset.kind, reset.stream_id) == (codes.RST_STREAM, stream_id)
    assert peer.wire.unsent_bytes == peer.wire.streams == 0


async def test_a_conversation_also_has_a_deadline() -> None:
    peer = Peer()
    stream_id = peer.call(None, CHAT, ("grpc-timeout", "1S"), ends=False)

    peer.clock.advance_ms(1_200)

    assert peer.answer(stream_id).status == GrpcStatus.DEADLINE_EXCEEDED


# Cancellation.


async def test_a_handler_is_notified_once_that_its_call_was_cancelled() -> None:
    peer = Peer()
    stream_id = peer.call(b"x", LATER)
    (call,) = peer.service.waiting

    peer.send(frames.rst_stream(stream_id, ErrorCode.CANCEL))

    assert peer.service.cancelled == [call]
    assert not call.is_open
    call.answer(b"nobody reads this")
    call.fail(GrpcStatus.UNKNOWN, "nor this")
    peer.connection.connection_lost(None)
    assert peer.drain() == []
    assert peer.service.cancelled == [call]


async def test_a_lost_connection_cancels_its_calls() -> None:
    peer = Peer()
    closed: list[Connection] = []
    peer.connection.on_close.append(closed.append)
    for _ in range(3):
        peer.call(b"x", LATER)

    peer.connection.connection_lost(None)

    assert peer.service.cancelled == peer.service.waiting
    assert closed == [peer.connection]
    assert peer.wire.streams == 0
    assert not peer.wire.connections


async def test_a_failure_during_cancellation_is_logged_and_ends_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer = Peer()
    peer.call(b"x", LATER)
    peer.call(b"x", LATER)

    def fail() -> None:
        raise KeyError("oops")

    peer.service.waiting[0].on_cancel = fail
    with caplog.at_level(logging.ERROR):
        peer.connection.connection_lost(None)

    assert "gRPC cleanup failed" in caplog.text
    assert peer.service.cancelled == [peer.service.waiting[1]]


async def test_an_error_in_a_conversation_only_ends_that_call() -> None:
    class Broken:
        def __init__(self, call: Call) -> None:
            pass

        def message_received(self, message: bytes) -> None:
            raise CallRefusedError(GrpcStatus.INVALID_ARGUMENT, message.decode())

        def half_closed(self) -> None:
            raise CallRefusedError(GrpcStatus.ABORTED, "half")

    peer = Peer(methods={CHAT: Bidi(Broken)})

    assert peer.answer(peer.call(b"bad", CHAT, ends=False)).text == "bad"
    assert peer.answer(peer.call(None, CHAT)).text == "half"
    assert peer.wire.streams == 0


async def test_a_handler_out_of_memory_ends_the_connection_without_an_answer() -> None:
    peer = Peer(methods={ECHO: refusing(MemoryError())})

    peer.call()

    assert [one.kind for one in peer.drain()] == [codes.GOAWAY]
    assert peer.transport.is_closed
