"""Google's gRPC client on our server: fields, frames and windows of an independent client."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import uvloop

from broker_core.clock import SystemClock
from broker_core.config.tls import TlsConfig
from broker_core.errors import CallRefusedError
from broker_core.grpc_messages import reflection
from broker_core.grpc_messages.codec import decode, encode
from broker_core.grpc_messages.reflection import Request, Response
from broker_core.http2.codes import GrpcStatus
from broker_core.http2.engine import PYTHON
from broker_core.http2.limits import Http2Limits
from broker_core.http2.methods import Bidi, Method, ServerStreaming, Unary
from broker_core.http2.reflection import reflection_methods
from broker_core.http2.server import ALPN, Http2Server
from broker_core.listening.tls import TlsGate
from tests.support.certificates import certificate
from tests.support.http2_peer import COMPILED
from tests.support.long_timeouts import PATIENCE_S
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from broker_core.http2.call import Call

MIB = 1 << 20
REFUSAL = "50 % of Größe"


class Service:
    """Methods called by tests; `waiting` are calls of Park."""

    def __init__(self) -> None:
        self.waiting: list[Call] = []
        self.cancelled: list[Call] = []
        self.parked = asyncio.Event()
        self.ended = asyncio.Event()

    def methods(self) -> dict[str, Method]:
        return {
            "/t.S/Echo": Unary(lambda _, message: message),
            "/t.S/Headers": Unary(self.headers),
            "/t.S/Refuse": Unary(self.refuse),
            "/t.S/Park": Unary(self.park),
            "/t.S/Later": Unary(self.later),
            "/t.S/Many": ServerStreaming(self.many),
            "/t.S/Chat": Bidi(Chat),
            **reflection_methods(["/t.S/Echo"]),
        }

    @staticmethod
    def headers(call: Call, _: bytes) -> bytes:
        return repr(sorted(call.headers.items())).encode()

    @staticmethod
    def refuse(_: Call, __: bytes) -> bytes:
        raise CallRefusedError(GrpcStatus.FAILED_PRECONDITION, REFUSAL)

    def park(self, call: Call, _: bytes) -> None:
        self.waiting.append(call)
        call.on_cancel = lambda: (self.cancelled.append(call), self.ended.set())  # type: ignore[assignment,func-returns-value]
        self.parked.set()

    @staticmethod
    async def later(_: Call, message: bytes) -> bytes:
        await asyncio.sleep(0)
        return message

    @staticmethod
    async def many(call: Call, message: bytes) -> None:
        count, size = map(int, message.split())
        for number in range(count):
            call.send(number.to_bytes(4, "big") + bytes(size))
            if not await call.drained():
                return


class Chat:
    def __init__(self, call: Call) -> None:
        self._call = call

    def message_received(self, message: bytes) -> None:
        self._call.send(message.upper())

    def half_closed(self) -> None:
        self._call.send(b"bye")
        self._call.end()


@contextlib.asynccontextmanager
async def serving(
    limits: Http2Limits | None = None, gate: TlsGate | None = None
) -> AsyncIterator[tuple[Http2Server, Service, str]]:
    service = Service()
    # Each of the two loops has a different engine.
    is_on_uvloop = isinstance(asyncio.get_running_loop(), uvloop.Loop)
    engine = COMPILED if is_on_uvloop and COMPILED is not None else PYTHON
    server = Http2Server(
        "test server", service.methods(), SystemClock(), limits, gate, engine=engine
    )
    port = await server.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield server, service, f"127.0.0.1:{port}"
    finally:
        await server.shutdown()


async def using(
    address: str,
    work: Callable[[grpc.Channel], Any],
    options: tuple[tuple[str, Any], ...] = (),
    root: Path | None = None,
) -> Any:
    """Run a client in a separate thread."""

    def run() -> Any:
        options_ = (("grpc.max_receive_message_length", -1), *options)
        if root is None:
            channel = grpc.insecure_channel(address, options_)
        else:
            credentials = grpc.ssl_channel_credentials(root.read_bytes())
            channel = grpc.secure_channel(address, credentials, options_)
        with channel:
            return work(channel)

    return await asyncio.to_thread(run)


def unary(channel: grpc.Channel, name: str) -> Any:
    return channel.unary_unary(f"/t.S/{name}")


async def test_calls_work_one_after_the_other_and_many_at_once() -> None:
    def work(channel: grpc.Channel) -> None:
        echo = unary(channel, "Echo")
        for number in range(50):
            assert echo(b"%d" % number) == b"%d" % number
        futures = [echo.future(b"x" * number) for number in range(0, 20_000, 100)]
        assert [len(future.result()) for future in futures] == list(range(0, 20_000, 100))
        # A deadline too far away for a timer must not cause an error.
        assert unary(channel, "Later")(b"later", timeout=1e9) == b"later"

    async with serving() as (_, _, address):
        await using(address, work)


async def test_metadata_arrives_and_a_rejection_returns() -> None:
    def work(channel: grpc.Channel) -> None:
        metadata = (("x-mq-client-id", "a@b@1"), ("x-mq-language", "PYTHON"))
        shown = ""
        for _ in range(3):
            shown = unary(channel, "Headers")(b"", metadata=metadata, timeout=30).decode()
        assert "('x-mq-client-id', 'a@b@1')" in shown
        assert "(':path', '/t.S/Headers')" in shown
        assert "'grpc-timeout'" in shown
        with pytest.raises(grpc.RpcError) as caught:
            unary(channel, "Refuse")(b"")
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == REFUSAL
        with pytest.raises(grpc.RpcError) as caught:
            unary(channel, "None")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert caught.value.details() == "Method not found: t.S/None"

    async with serving() as (_, _, address):
        await using(address, work)


@pytest.mark.parametrize("window", [65_535, 4 * MIB])
async def test_large_messages_pass_small_and_large_windows(window: int) -> None:
    options = (("grpc.http2.lookahead_bytes", window), ("grpc.http2.bdp_probe", 0))

    def work(channel: grpc.Channel) -> None:
        message = bytes(range(256)) * 4096 * 4
        echo = unary(channel, "Echo")
        assert echo(message) == message
        assert [len(f.result()) for f in [echo.future(message) for _ in range(4)]] == [4 * MIB] * 4
        with pytest.raises(grpc.RpcError) as caught:
            echo(bytes(16 * MIB + 1))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    async with serving() as (server, _, address):
        await using(address, work, options)
        assert server.wire.buffered_bytes == server.wire.unsent_bytes == 0


async def test_a_stream_of_answers_waits_for_its_reader() -> None:
    def work(channel: grpc.Channel) -> None:
        stream = channel.unary_stream("/t.S/Many")(b"300 65536")
        numbers = [int.from_bytes(message[:4], "big") for message in stream]
        assert numbers == list(range(300))
        # A stream that is cancelled half-way.
        stream = channel.unary_stream("/t.S/Many")(b"300 65536")
        next(stream)
        stream.cancel()

    async with serving() as (server, _, address):
        await using(address, work)
        await until_async(lambda: not server.wire.streams, "streams are left")
        assert server.wire.unsent_bytes == 0


async def test_a_conversation_works() -> None:
    def work(channel: grpc.Channel) -> None:
        def requests() -> Iterator[bytes]:
            for number in range(100):
                yield b"hello %d" % number

        answers = list(channel.stream_stream("/t.S/Chat")(requests()))
        assert answers == [b"HELLO %d" % number for number in range(100)] + [b"bye"]

    async with serving() as (_, _, address):
        await using(address, work)


async def test_tools_learn_which_features_are_supported() -> None:
    def work(channel: grpc.Channel) -> None:
        for service in reflection.SERVICES:
            method = channel.stream_stream(f"/{service}/{reflection.METHOD}")
            questions = [Request(list_services=""), Request(file_containing_symbol="t.S")]
            listed, unknown = (
                decode(Response, answer) for answer in method(map(encode, questions))
            )
            assert listed.list_services_response is not None
            names = [each.name for each in listed.list_services_response.service]
            assert names == [*reflection.SERVICES, "t.S"]
            assert unknown.error_response is not None

    async with serving() as (_, _, address):
        await using(address, work)


async def test_a_deadline_ends_a_call_on_both_sides() -> None:
    def work(channel: grpc.Channel) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            unary(channel, "Park")(b"", timeout=0.2)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    async with serving() as (server, service, address):
        await using(address, work)
        await service.ended.wait()
        assert service.cancelled == service.waiting
        assert server.wire.streams == 0


async def test_a_cancelled_call_is_cancelled_on_the_server() -> None:
    async with serving() as (_, service, address):
        loop = asyncio.get_running_loop()

        def work(channel: grpc.Channel) -> None:
            future = unary(channel, "Park").future(b"")
            asyncio.run_coroutine_threadsafe(service.parked.wait(), loop).result()
            future.cancel()
            asyncio.run_coroutine_threadsafe(service.ended.wait(), loop).result()

        await using(address, work)
        assert service.cancelled == service.waiting


async def test_a_shutdown_lets_calls_end_and_clients_reconnect() -> None:
    async with serving(Http2Limits(drain_s=PATIENCE_S)) as (server, service, address):
        loop = asyncio.get_running_loop()
        port = int(address.rpartition(":")[2])

        def work(channel: grpc.Channel) -> None:
            parked = unary(channel, "Park").future(b"")
            asyncio.run_coroutine_threadsafe(service.parked.wait(), loop).result()
            ended = asyncio.run_coroutine_threadsafe(server.shutdown(), loop)
            loop.call_soon_threadsafe(loop.call_later, 0.3, service.waiting[0].answer, b"done")
            assert parked.result() == b"done"
            ended.result()
            again = asyncio.run_coroutine_threadsafe(other.start("127.0.0.1", port), loop)
            assert again.result() == port
            assert unary(channel, "Echo")(b"again", wait_for_ready=True) == b"again"

        other = Http2Server("another server", Service().methods())
        try:
            await using(address, work, (("grpc.initial_reconnect_backoff_ms", 100),))
        finally:
            await other.shutdown()


async def test_a_shutdown_ends_endless_calls() -> None:
    async with serving(Http2Limits(drain_s=0.3)) as (server, service, address):
        loop = asyncio.get_running_loop()

        def work(channel: grpc.Channel) -> None:
            parked = unary(channel, "Park").future(b"")
            asyncio.run_coroutine_threadsafe(service.parked.wait(), loop).result()
            asyncio.run_coroutine_threadsafe(server.shutdown(), loop).result()
            error = parked.exception()
            assert error.code() is grpc.StatusCode.UNAVAILABLE

        await using(address, work)


async def test_tls_and_plain_calls_share_a_port(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "server")
    gate = TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)), ALPN)

    def work(channel: grpc.Channel) -> None:
        echo = unary(channel, "Echo")
        message = bytes(MIB)
        assert [f.result() for f in [echo.future(message) for _ in range(4)]] == [message] * 4

    async with serving(gate=gate) as (_, _, address):
        await using(address, work, root=made)
        await using(address, work)


async def test_a_client_that_pings_constantly_is_welcome() -> None:
    options = (
        ("grpc.keepalive_time_ms", 50),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_time_between_pings_ms", 50),
    )
    async with serving() as (server, _, address):

        def work(channel: grpc.Channel) -> None:
            for _ in range(3):
                assert unary(channel, "Echo")(b"x") == b"x"
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0.2), loop).result()

        loop = asyncio.get_running_loop()
        await using(address, work, options)
        assert len(server.connections) <= 1
