from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from broker_core.errors import RemotingError, RemotingSendError, RemotingTimeoutError
from broker_core.protocol.codes import ONEWAY_FLAG
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.frame import FrameDecoder, FrameLimits
from broker_core.remoting.connection import Connection
from broker_core.remoting.intake import ANSWER_BYTES
from broker_core.remoting.limits import RemotingLimits
from broker_core.remoting.server import RemotingServer, ServerEvents
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from broker_core.clock import SystemClock
    from broker_core.remoting.dispatch import Handler

ECHO = 1
HOLD = 2
ASK_BACK = 3
BIG = 4
BIG_BYTES = 200_000


def echo(request: RemotingCommand, _: Connection) -> RemotingCommand:
    return request.answer(0, None, request.ext_fields, request.body)


def big(request: RemotingCommand, _: Connection) -> RemotingCommand:
    return request.answer(0, body=bytes(BIG_BYTES))


class Peer:
    """A raw client: bytes out, commands in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()

    @property
    def address(self) -> str:
        host, port = self.writer.get_extra_info("sockname")
        return f"{host}:{port}"

    def send(self, *requests: RemotingCommand | bytes) -> None:
        self.writer.write(b"".join(r if isinstance(r, bytes) else r.encode() for r in requests))

    async def receive(self) -> RemotingCommand:
        while True:
            self._decoder.resume()
            command = next(self._decoder.commands(), None)
            self._decoder.settle()
            if command is not None:
                return command
            piece = await self.reader.read(65536)
            assert piece, "the server closed the connection"
            self._decoder.feed(piece)
            self._decoder.settle()

    async def ended(self) -> bool:
        """Read until the connection ends; True if it ends in any way."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        return True


class Setup:
    """A server with peers, all closed at the end of the test."""

    def __init__(self) -> None:
        self.servers: list[RemotingServer] = []
        self.peers: list[Peer] = []
        self.port = 0

    async def serve(
        self,
        handlers: dict[int, Handler],
        clock: ManualClock | SystemClock | None = None,
        limits: RemotingLimits | None = None,
        on_connection_lost: Callable[[Connection], None] | None = None,
    ) -> RemotingServer:
        events = ServerEvents(on_connection_lost=on_connection_lost)
        server = RemotingServer("test server", handlers, clock, limits, events=events)
        self.port = await server.start("127.0.0.1", 0)
        self.servers.append(server)
        return server

    async def connect(self) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port))
        self.peers.append(peer)
        return peer


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    setup = Setup()
    async with asyncio.timeout(20):
        yield setup
        for peer in setup.peers:
            peer.writer.close()
            with contextlib.suppress(ConnectionError):
                await peer.writer.wait_closed()
        for server in setup.servers:
            await server.shutdown()


def a_request(
    code: int = ECHO,
    opaque: int = 0,
    flag: int = 0,
    body: bytes = b"",
    fields: dict[str, str] | None = None,
) -> RemotingCommand:
    return RemotingCommand(code, flag, opaque, 407, "JAVA", None, fields or {}, body)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition holds; otherwise the fixture's deadline ends it."""
    while not condition():  # noqa: ASYNC110  most conditions have no event
        await asyncio.sleep(0)


async def test_pipelined_requests_are_all_answered_in_order(setup: Setup) -> None:
    await setup.serve({ECHO: echo})
    peer = await setup.connect()

    peer.send(*(a_request(opaque=n, body=b"%d" % n) for n in range(500)))

    answers = [await peer.receive() for _ in range(500)]
    assert [answer.opaque for answer in answers] == list(range(500))
    assert answers[499].body == b"499"


async def test_the_handler_owns_the_body(setup: Setup) -> None:
    bodies = []
    await setup.serve({ECHO: lambda request, _: bodies.append(request.body)})
    peer = await setup.connect()

    for n in range(3):
        peer.send(a_request(body=b"%d" % n * 100))
    await until(lambda: len(bodies) == 3)

    assert bodies == [b"0" * 100, b"1" * 100, b"2" * 100]


async def test_a_fragmented_frame_is_answered(setup: Setup) -> None:
    await setup.serve({ECHO: echo})
    peer = await setup.connect()
    frame = a_request(body=bytes(1_000_000)).encode()

    for at in range(0, len(frame), 99_991):
        peer.send(frame[at : at + 99_991])
        await asyncio.sleep(0)

    assert len((await peer.receive()).body) == 1_000_000


async def test_later_answers_neither_overtake_nor_delay_others(setup: Setup) -> None:
    release = asyncio.Event()

    async def hold(request: RemotingCommand, _: Connection) -> RemotingCommand:
        await release.wait()
        return request.answer(0, "held")

    server = await setup.serve({ECHO: echo, HOLD: hold})
    peer = await setup.connect()

    peer.send(a_request(HOLD, 1), a_request(ECHO, 2))
    assert (await peer.receive()).opaque == 2
    (connection,) = server.connections
    assert connection.requests_in_flight == 1
    release.set()

    assert (await peer.receive()).remark == "held"
    assert connection.requests_in_flight == 0


async def test_a_oneway_request_is_served_and_not_answered(setup: Setup) -> None:
    served = []
    await setup.serve({ECHO: echo, 9: lambda request, _: served.append(request.body)})
    peer = await setup.connect()

    peer.send(a_request(9, 1, ONEWAY_FLAG, b"x"), a_request(77, 2, ONEWAY_FLAG), a_request(ECHO, 3))

    assert (await peer.receive()).opaque == 3
    assert served == [b"x"]


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, a_request().encode()[:8] + b"not json" * 40],
)
async def test_garbage_closes_the_connection_with_one_line(
    setup: Setup, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = await setup.serve({ECHO: echo})
    peer, other = await setup.connect(), await setup.connect()

    peer.send(a_request(opaque=5), garbage)

    assert (await peer.receive()).opaque == 5
    assert await peer.ended()
    assert [line.split(" reason=")[0] for line in caplog.messages] == [
        f"connection closed peer={peer.address}"
    ]
    other.send(a_request(opaque=6))
    assert (await other.receive()).opaque == 6
    assert len(server.connections) == 1


async def test_a_handler_may_close_the_connection(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    def say_goodbye(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        connection.send(request.answer(0, "last words"))
        connection.close()
        return request.answer(0, "too late")

    server = await setup.serve({ECHO: echo, 9: say_goodbye})
    peer = await setup.connect()

    peer.send(a_request(ECHO, 1), a_request(9, 2), a_request(ECHO, 3))

    assert (await peer.receive()).opaque == 1
    assert (await peer.receive()).remark == "last words"
    assert await peer.reader.read() == b""
    await until(lambda: not server.connections)
    assert not caplog.messages


async def test_an_oversized_frame_closes_the_connection(setup: Setup) -> None:
    limits = RemotingLimits(frame=FrameLimits(frame_bytes_max=1000))
    await setup.serve({ECHO: echo}, limits=limits)
    peer = await setup.connect()

    peer.send(a_request(body=bytes(1000)).encode()[:100])

    assert await peer.ended()


async def test_a_silent_connection_is_closed_after_two_minutes(setup: Setup) -> None:
    clock = ManualClock()
    server = await setup.serve({ECHO: echo}, clock)
    silent, busy = await setup.connect(), await setup.connect()
    await until(lambda: len(server.connections) == 2)

    for _ in range(13):
        busy.send(a_request())
        await busy.receive()
        clock.advance_ms(10_000)

    assert await silent.ended()
    assert [c.remote_address for c in server.connections] == [busy.address]


async def test_half_a_frame_is_waited_for_30_seconds(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    server = await setup.serve({ECHO: echo}, clock)
    peer = await setup.connect()
    frame = a_request().encode()

    peer.send(frame, frame[:20])
    await peer.receive()
    for at in range(20, 25):  # an occasional byte doesn't help
        clock.advance_ms(5_900)
        assert len(server.connections) == 1
        peer.send(frame[at : at + 1])
        await until(lambda to=at + 1: server.kept_bytes == to)  # type: ignore[misc]
    clock.advance_ms(5_900)

    assert await peer.ended()
    assert "the rest of a frame did not arrive within 30 s" in caplog.text


async def test_a_peer_that_does_not_read_is_not_read_from(setup: Setup) -> None:
    limits = RemotingLimits(write_buffer_high=64 * 1024)
    server = await setup.serve({BIG: big}, limits=limits)
    peer = await setup.connect()
    requests = 300

    peer.send(*(a_request(BIG, n) for n in range(requests)))
    await until(lambda: any(not c.is_writable for c in server.connections))
    (connection,) = server.connections
    # The other requests wait in the socket: memory holds at most one batch above the limit.
    assert connection.unsent_bytes < 4 * BIG_BYTES

    assert [(await peer.receive()).opaque for _ in range(requests)] == list(range(requests))
    assert connection.is_writable


async def test_a_peer_that_never_reads_pushed_data_is_disconnected(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    limits = RemotingLimits(write_buffer_high=64 * 1024, write_buffer_max=1024 * 1024)
    server = await setup.serve({ECHO: echo}, limits=limits)
    peer = await setup.connect()
    peer.send(a_request())
    await peer.receive()
    (connection,) = server.connections

    async def push() -> None:
        while connection.is_open:
            connection.oneway(a_request(40, body=bytes(100_000)))
            await asyncio.sleep(0)

    await push()

    await until(lambda: not server.connections)
    assert "the peer does not read" in caplog.text


@pytest.mark.parametrize(
    ("limits", "fields", "body"),
    [
        (RemotingLimits(requests_in_flight_max=4), {}, b""),
        (RemotingLimits(in_flight_bytes_max=4 * ANSWER_BYTES + 4_000), {}, bytes(900)),
        (
            RemotingLimits(in_flight_bytes_max=4 * ANSWER_BYTES + 4_000),
            {"properties": "x" * 900},
            b"",
        ),
    ],
    ids=["requests", "bodies", "headers"],
)
async def test_a_peer_is_not_read_from_while_too_much_data_waits(
    setup: Setup, limits: RemotingLimits, fields: dict[str, str], body: bytes
) -> None:
    release = asyncio.Event()
    begun = []

    async def hold(request: RemotingCommand, _: Connection) -> RemotingCommand:
        begun.append(request.opaque)
        await release.wait()
        return request.answer(0)

    await setup.serve({HOLD: hold}, limits=limits)
    peer = await setup.connect()

    peer.send(*(a_request(HOLD, n, body=body, fields=fields) for n in range(3)))
    await until(lambda: len(begun) == 3)
    peer.send(*(a_request(HOLD, n, body=body, fields=fields) for n in range(3, 50)))
    await until(lambda: len(begun) == 4)
    for _ in range(20):
        await asyncio.sleep(0)
    assert begun == [0, 1, 2, 3]
    release.set()

    assert [(await peer.receive()).opaque for _ in range(50)] == list(range(50))


async def test_connections_are_limited_in_total_and_by_host(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    for limits, reason in (
        (RemotingLimits(connections_max=2), "more than 2 connections"),
        (
            RemotingLimits(connections_per_host_max=2, is_loopback_bounded=True),
            "connections from one host",
        ),
    ):
        server = await setup.serve({ECHO: echo}, limits=limits)
        peers = [await setup.connect() for _ in range(2)]
        await until(lambda server=server: len(server.connections) == 2)  # type: ignore[misc]

        assert await (await setup.connect()).ended()
        assert reason in caplog.text
        peers[0].writer.close()
        await until(lambda server=server: len(server.connections) == 1)  # type: ignore[misc]
        third = await setup.connect()
        third.send(a_request())
        await third.receive()


async def test_we_may_send_requests_to_a_peer_on_its_own_connection(setup: Setup) -> None:
    async def ask_back(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        answer = await connection.request(RemotingCommand.request(307, {"clientId": "c"}), 5)
        return request.answer(answer.code, answer.remark, body=answer.body)

    await setup.serve({ASK_BACK: ask_back})
    peer = await setup.connect()

    peer.send(a_request(ASK_BACK, opaque=0))
    call = await peer.receive()
    assert (call.code, call.ext_fields) == (307, {"clientId": "c"})
    # The opaque is from our own number space and may equal one of the peer's.
    assert call.opaque == 0
    peer.send(call.answer(0, None, None, b"running"))

    answer = await peer.receive()
    assert (answer.opaque, answer.body, answer.is_response) == (0, b"running", True)


async def test_an_unresponsive_peer_is_waited_for_only_for_a_limited_time(setup: Setup) -> None:
    clock = ManualClock()
    server = await setup.serve({ECHO: echo}, clock)
    peer = await setup.connect()
    peer.send(a_request())
    await peer.receive()
    (connection,) = server.connections

    waiting = asyncio.ensure_future(connection.request(RemotingCommand.request(307), 10))  # noqa: TID251
    request = await peer.receive()
    clock.advance_ms(9_999)
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.advance_ms(1)

    with pytest.raises(RemotingTimeoutError, match="did not answer request 307 within 10 s"):
        await waiting
    peer.send(request.answer(0), a_request(opaque=8))  # too late, but harmless
    assert (await peer.receive()).opaque == 8


async def test_a_lost_connection_ends_our_requests_and_is_reported(setup: Setup) -> None:
    lost: list[object] = []
    server = await setup.serve({ECHO: echo}, on_connection_lost=lost.append)
    peer = await setup.connect()
    peer.send(a_request())
    await peer.receive()
    (connection,) = server.connections
    connection.on_close.append(lost.append)

    waiting = asyncio.ensure_future(connection.request(RemotingCommand.request(307), 10))  # noqa: TID251
    await peer.receive()
    peer.writer.close()

    with pytest.raises(RemotingSendError, match="ended"):
        await waiting
    assert lost == [connection, connection]
    with pytest.raises(RemotingSendError, match="closed"):
        await connection.request(RemotingCommand.request(307), 10)
    connection.send(a_request())  # does nothing


async def test_the_peers_address_is_known_in_both_forms(setup: Setup) -> None:
    server = await setup.serve({ECHO: echo})
    peer = await setup.connect()
    await until(lambda: bool(server.connections))
    (connection,) = server.connections

    port = peer.writer.get_extra_info("sockname")[1]
    assert connection.remote_address == f"127.0.0.1:{port}"
    assert connection.remote_host == socket.inet_aton("127.0.0.1") + port.to_bytes(4, "big")


async def test_a_port_in_use_is_reported_in_one_sentence(setup: Setup) -> None:
    await setup.serve({})

    with pytest.raises(RemotingError, match=r"^second cannot listen on 127.0.0.1:\d+: address al"):
        await RemotingServer("second", {}).start("127.0.0.1", setup.port)


async def test_shutdown_lets_pending_answers_leave(setup: Setup) -> None:
    release = asyncio.Event()

    async def hold(request: RemotingCommand, _: Connection) -> RemotingCommand:
        await release.wait()
        return request.answer(0, "held")

    server = await setup.serve({ECHO: echo, HOLD: hold})
    peer = await setup.connect()
    peer.send(a_request(HOLD))
    await until(lambda: any(c.requests_in_flight for c in server.connections))

    ending = asyncio.ensure_future(server.shutdown())  # noqa: TID251
    await asyncio.sleep(0)
    peer.send(a_request(ECHO, 9))
    release.set()

    assert (await peer.receive()).remark == "held"
    assert await peer.ended()
    await ending
    assert not server.connections


async def test_shutdown_does_not_wait_forever(setup: Setup) -> None:
    clock = ManualClock()

    async def hold(*_: object) -> None:
        await asyncio.Event().wait()

    server = await setup.serve({HOLD: hold}, clock)
    peer = await setup.connect()
    peer.send(a_request(HOLD))
    await until(lambda: any(c.requests_in_flight for c in server.connections))

    ending = asyncio.ensure_future(server.shutdown())  # noqa: TID251
    await asyncio.sleep(0)
    clock.advance_ms(3_000)

    await ending
    assert await peer.ended()


async def test_running_out_of_memory_ends_only_that_connection(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    """The request may be half done, so no answer can say whether it was."""

    def lack(request: RemotingCommand, _: Connection) -> RemotingCommand:
        raise MemoryError

    await setup.serve({ECHO: echo, BIG: lack})
    peer, other = await setup.connect(), await setup.connect()

    peer.send(RemotingCommand.request(BIG, {}))

    assert await peer.ended()
    assert "there is no memory for its requests" in caplog.text
    assert "request failed" not in caplog.text
    other.send(a_request(opaque=3))
    assert (await other.receive()).opaque == 3


async def test_all_are_notified_of_a_connections_end_even_if_one_fails(
    setup: Setup,
) -> None:
    reports: list[object] = []

    def fail(_: object) -> None:
        raise KeyError("of a bug")

    server = await setup.serve({ECHO: echo}, on_connection_lost=fail)
    peer = await setup.connect()
    peer.send(RemotingCommand.request(ECHO))
    await peer.receive()
    (connection,) = server.connections
    connection.on_close += [fail, reports.append]

    connection.close()
    await peer.ended()
    await asyncio.sleep(0)

    assert reports == [connection]
    assert not server.connections


async def test_a_failing_sweep_of_a_connection_does_not_keep_other_idle_ones_open(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    server = await setup.serve({ECHO: echo}, clock, RemotingLimits(idle_s=60))
    bad, idle = await setup.connect(), await setup.connect()
    for peer in (bad, idle):
        peer.send(RemotingCommand.request(ECHO))
        await peer.receive()
    sweep = Connection.sweep

    def fail_for_one(self: Connection, now: float) -> None:
        if self.remote_address == bad.address:
            raise KeyError("of a bug")
        sweep(self, now)

    monkeypatch.setattr(Connection, "sweep", fail_for_one)
    for _ in range(20):
        clock.advance_ms(5_000)
        await asyncio.sleep(0)

    assert await idle.ended()
    assert [each.remote_address for each in server.connections] == [bad.address]
