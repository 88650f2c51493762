"""Our gRPC client against our server, and against a peer that misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from broker_core.errors import (
    CallRefusedError,
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeoutError,
)
from broker_core.http2 import codes, frames, hpack
from broker_core.http2.client import ClientConnection, open_connection
from broker_core.http2.codes import ErrorCode, GrpcStatus
from broker_core.http2.grpc_framing import HEAD_BLOCK, OK_BLOCK, add_prefix, status_block
from broker_core.http2.server import Http2Server
from tests.support.http2_peer import CHAT, ECHO, LATER, REPEAT, Handlers, frames_of
from tests.support.long_timeouts import PATIENCE_S
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.http2_peer import Frame


pytestmark = pytest.mark.timeout(PATIENCE_S)


@pytest.fixture
async def handlers() -> Handlers:
    return Handlers([], [])


@pytest.fixture
async def connection(handlers: Handlers) -> AsyncIterator[ClientConnection]:
    """A connection to a server with the calls of `Handlers`."""
    server = Http2Server("test server", handlers.methods())
    port = await server.start("127.0.0.1", 0)
    opened = await open_connection("127.0.0.1", port)
    yield opened
    await opened.close()
    await server.shutdown()


@contextlib.asynccontextmanager
async def answered(answer: Callable[[Frame], bytes]) -> AsyncIterator[ClientConnection]:
    """Connect to a peer that answers each HEADERS frame with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frames.settings({}))
        await reader.readexactly(len(frames.PREFACE))
        with contextlib.suppress(OSError):
            # Small requests arrive whole.
            while data := await reader.read(1 << 16):
                for frame in frames_of(data):
                    if frame.kind == codes.HEADERS:
                        writer.write(answer(frame))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    opened = await open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield opened
    finally:
        await opened.close()
        server.close()


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 65_530, 3_000_000])
async def test_a_message_of_any_length_arrives(connection: ClientConnection, size: int) -> None:
    assert await connection.unary(ECHO, bytes(size), {}, PATIENCE_S) == bytes(size)


async def test_calls_share_a_connection(connection: ClientConnection) -> None:
    bodies = [bytes((number,)) * 20_000 for number in range(50)]

    answers = await asyncio.gather(
        *(connection.unary(ECHO, body, {"x-a": "b"}, PATIENCE_S) for body in bodies)
    )

    assert answers == bodies


async def test_a_stream_of_answers_ends_with_none(connection: ClientConnection) -> None:
    call = connection.call(REPEAT, {}, PATIENCE_S)
    call.send(b"x", ends=True)

    assert [await call.receive() for _ in range(4)] == [b"x", b"x", b"x", None]


async def test_answers_larger_than_the_window_arrive(connection: ClientConnection) -> None:
    call = connection.call(CHAT, {})
    for _ in range(8):
        call.send(bytes(3_000_000))
        assert await call.receive() == bytes(3_000_000)


async def test_both_sides_talk_and_the_client_can_leave(
    connection: ClientConnection,
) -> None:
    call = connection.call(CHAT, {})
    for body in (b"1", b"2"):
        call.send(body)
        assert await call.receive() == body

    call.cancel()

    with pytest.raises(RemotingSendError, match="cancelled"):
        await call.receive()
    assert await connection.unary(ECHO, b"still open", {}, PATIENCE_S) == b"still open"


async def test_a_refusal_has_its_status_and_text(connection: ClientConnection) -> None:
    with pytest.raises(CallRefusedError, match="Method not found") as found:
        await connection.unary("/no.Such/Method", b"", {}, PATIENCE_S)

    assert found.value.status == GrpcStatus.UNIMPLEMENTED


async def test_a_call_without_an_answer_ends_in_time_on_both_sides(
    connection: ClientConnection, handlers: Handlers
) -> None:
    with pytest.raises(RemotingTimeoutError, match="no answer from 127"):
        await connection.unary(LATER, b"", {}, 0.05)

    while not handlers.cancelled:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert len(handlers.waiting) == 1


async def test_a_closed_connection_ends_its_calls_and_takes_no_more(
    connection: ClientConnection,
) -> None:
    call = connection.call(CHAT, {})

    await connection.close()

    with pytest.raises(RemotingSendError, match="ended"):
        await call.receive()
    with pytest.raises(RemotingSendError, match="has ended"):
        connection.call(ECHO, {})


async def test_no_server_is_one_sentence() -> None:
    port = free_port()

    with pytest.raises(
        RemotingConnectError, match=f"no connection to 127.0.0.1:{port}: connection refused"
    ):
        await open_connection("127.0.0.1", port)


async def test_padding_continuations_and_priorities_are_understood() -> None:
    def answer(asked: Frame) -> bytes:
        stream = asked.stream_id
        head = bytes((2,)) + bytes(5) + HEAD_BLOCK[:1] + bytes(2)
        return b"".join(
            (
                frames.frame(codes.HEADERS, codes.PADDED | codes.HAS_PRIORITY, stream, head),
                frames.frame(codes.CONTINUATION, codes.END_HEADERS, stream, HEAD_BLOCK[1:]),
                frames.frame(
                    codes.DATA, codes.PADDED, stream, b"\x03" + add_prefix(b"hi") + bytes(3)
                ),
                frames.ping(bytes(8), is_ack=False),
                frames.headers(stream, OK_BLOCK, ends=True),
            )
        )

    async with answered(answer) as connection:
        assert await connection.unary(ECHO, b"", {}, PATIENCE_S) == b"hi"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda asked: frames.rst_stream(asked.stream_id, ErrorCode.REFUSED_STREAM), "reset"),
        (
            lambda asked: frames.frame(codes.CONTINUATION, 0, asked.stream_id, b""),
            "CONTINUATION without HEADERS",
        ),
        (lambda _: frames.HEAD.pack(1 << 24 | codes.DATA, 0, 1), "a frame has 65536 bytes"),
        (
            lambda asked: frames.frame(codes.DATA, 0, asked.stream_id, b"\x01\0\0\0\0"),
            "a message is compressed",
        ),
        (
            lambda asked: frames.frame(codes.DATA, 0, asked.stream_id, b"\0\xff\0\0\0"),
            "a message has",
        ),
        (
            lambda asked: frames.frame(codes.DATA, codes.PADDED, asked.stream_id, b"\x09"),
            "all padding",
        ),
        (lambda _: frames.frame(codes.SETTINGS, 0, 0, bytes(7)), "too short or too long"),
        (lambda _: frames.frame(codes.WINDOW_UPDATE, 0, 0, bytes(3)), "too short or too long"),
        (
            lambda asked: (
                frames.frame(codes.HEADERS, 0, asked.stream_id, HEAD_BLOCK)
                + frames.ping(bytes(8), is_ack=False)
            ),
            "interrupted",
        ),
    ],
)
async def test_a_peer_that_breaks_the_protocol_ends_the_call(
    answer: Callable[[Frame], bytes], words: str
) -> None:
    async with answered(answer) as connection:
        with pytest.raises(RemotingSendError, match=words):
            await connection.unary(ECHO, b"", {}, PATIENCE_S)


@pytest.mark.parametrize(
    ("block", "status", "text"),
    [
        (status_block(13, "Fehler: ä"), 13, "Fehler: ä"),
        (status_block(14), 14, "grpc-status 14"),
        (hpack.literal(":status", "502"), GrpcStatus.UNKNOWN, "HTTP answer 502"),
        (OK_BLOCK, GrpcStatus.INTERNAL, "the server sent no answer"),
    ],
)
async def test_an_answer_without_a_message_is_a_refusal(
    block: bytes, status: int, text: str
) -> None:
    async with answered(lambda asked: frames.headers(asked.stream_id, block, ends=True)) as opened:
        with pytest.raises(CallRefusedError, match=text) as found:
            await opened.unary(ECHO, b"", {}, PATIENCE_S)

    assert found.value.status == status


async def test_after_a_goaway_calls_end_and_new_ones_need_another_connection() -> None:
    def answer(asked: Frame) -> bytes:
        return frames.goaway(asked.stream_id, ErrorCode.NO_ERROR) + b"".join(
            (
                frames.headers(asked.stream_id, HEAD_BLOCK, ends=False),
                frames.frame(codes.DATA, 0, asked.stream_id, add_prefix(b"last")),
                frames.headers(asked.stream_id, OK_BLOCK, ends=True),
            )
        )

    async with answered(answer) as opened:
        assert await opened.unary(ECHO, b"", {}, PATIENCE_S) == b"last"
        assert not opened.is_open
