"""Data that the compiled turn sends directly to a socket, and data it leaves to the transport."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import pull_frames, send_frames
from tests.support.native_turn import TOPIC
from tests.support.twins import SeenTransport, Twin, configuration, is_compiled, settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    Connect = Callable[..., "SocketTransport"]

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)
BUFFER_BYTES = 4096
"""Of the sockets; the kernel doubles it."""
BODY = bytes(range(256)) * 4
MESSAGES = 32
FLAGS = pull_frames.SUBSCRIPTION
"""Of a pull that neither waits nor commits."""


class SocketTransport(SeenTransport):
    """Has a socket without a reader; keeps written data instead."""

    def __init__(self, **more: Any) -> None:
        super().__init__()
        self.socket, self.peer = socket.socketpair()
        self._more = more
        for one in (self.socket, self.peer):
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        its = self._more | {"socket": self.socket}
        return its[name] if name in its else super().get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def received(self) -> bytes:
        """Return the data that the socket accepted since the previous call."""
        parts = []
        with contextlib.suppress(BlockingIOError):
            while part := self.peer.recv(1 << 20):
                parts.append(part)
        return b"".join(parts)


@pytest.fixture
async def twin() -> AsyncIterator[Twin]:
    """A broker with some messages and a connection without a socket."""
    twin = Twin(configuration(), is_native=True)
    await twin.load(TOPIC)
    await twin.feed(a_send() * MESSAGES)
    await twin.feed(a_pull())
    yield twin
    await twin.shutdown()


@pytest.fixture
def connect(twin: Twin) -> Iterator[Connect]:
    """Return a function that gives a broker a connection with a socket."""
    transports = []

    def connected(**more: Any) -> SocketTransport:
        transports.append(SocketTransport(**more))
        twin.connect_by(transports[-1])
        return transports[-1]

    yield connected
    for one in transports:
        one.socket.close()
        one.peer.close()


def a_send(opaque: int = 1) -> bytes:
    return send_frames.send(send_frames.fields_of(TOPIC, 0, ""), BODY, opaque)


def a_pull(offset: int = 0, *, flags: int = FLAGS, most: int = MESSAGES) -> bytes:
    return pull_frames.pull(pull_frames.fields_of(TOPIC, 0, offset, flags=flags, most=most), 1)


def answer_without_socket(twin: Twin, frame: bytes) -> bytes:
    twin.connect()
    twin.receive(frame)
    return bytes(twin.transport.written)


async def test_answers_go_to_the_socket_if_the_transport_holds_no_data(
    twin: Twin, connect: Connect
) -> None:
    pulled = answer_without_socket(twin, a_pull(most=1))
    transport = connect()

    twin.receive(a_pull(most=1))
    assert (transport.received(), bytes(transport.written)) == (pulled, b"")

    transport.written += b"held back"
    twin.receive(a_pull(most=1))
    assert (transport.received(), bytes(transport.written)) == (b"", b"held back" + pulled)

    transport.written.clear()
    twin.receive(a_send(7) + a_send(8))
    first, second = send_frames.frames_in(transport.received())
    assert b'"opaque":7,' in first
    assert b'"opaque":8,' in second


@pytest.mark.parametrize("filled", [0, 1, 100, 5000])
async def test_the_transport_gets_the_rest_of_a_pull_that_a_socket_rejects(
    twin: Twin, connect: Connect, filled: int
) -> None:
    pulled = answer_without_socket(twin, a_pull())
    transport = connect()
    transport.socket.send(bytes(filled))

    twin.receive(a_pull())

    received = transport.received()[filled:]
    assert 0 < len(received) < len(pulled)
    assert received + transport.written == pulled


async def test_the_transport_gets_the_data_that_a_full_socket_rejects(
    twin: Twin, connect: Connect
) -> None:
    pulled = answer_without_socket(twin, a_pull(most=1))
    transport = connect()
    with contextlib.suppress(BlockingIOError):
        while True:
            transport.socket.send(bytes(BUFFER_BYTES))

    twin.receive(a_pull(most=1))
    twin.receive(a_send(5))

    assert transport.written.startswith(pulled)
    assert b'"opaque":5' in transport.written[len(pulled) :]


async def test_the_transport_gets_the_rest_of_many_answers_that_a_socket_rejects(
    twin: Twin,
    connect: Connect,
) -> None:
    transport = connect()
    count = 200

    twin.receive(b"".join(a_send(number) for number in range(count)))

    received = transport.received()
    assert received
    assert transport.written
    answers = send_frames.frames_in(received + bytes(transport.written))
    assert [b'"opaque":%d,' % number in each for number, each in enumerate(answers)] == (
        [True] * count
    )


async def test_the_transport_learns_about_an_error_when_it_writes(
    twin: Twin, connect: Connect
) -> None:
    pulled = answer_without_socket(twin, a_pull())
    transport = connect()
    transport.peer.close()

    twin.receive(a_pull())

    assert transport.written == pulled


async def test_no_data_bypasses_an_encrypting_transport(twin: Twin, connect: Connect) -> None:
    pulled = answer_without_socket(twin, a_pull())
    transport = connect(sslcontext=object())

    twin.receive(a_pull())

    assert (transport.received(), bytes(transport.written)) == (b"", pulled)


async def test_an_answer_follows_the_connections_pending_data(twin: Twin, connect: Connect) -> None:
    transport = connect()
    twin.connection.send(b"first")

    twin.receive(a_send(9))

    assert transport.received() == b""
    assert transport.written.startswith(b"first\0")
    assert b'"opaque":9,' in transport.written


def waiting_pull() -> bytes:
    return a_pull(MESSAGES, flags=pull_frames.SUSPEND | FLAGS)


@pytest.mark.parametrize("filled", [0, 1, 100, 5000])
async def test_the_transport_gets_the_rest_of_a_waiting_pull_that_a_socket_rejects(
    twin: Twin, connect: Connect, filled: int
) -> None:
    transport = connect()
    await twin.feed(waiting_pull())
    assert transport.received() == b""
    # The answer is for the producer's own connection.
    producer = connect()
    twin.receive(a_send(9) * 20)
    transport.socket.send(bytes(filled))

    await settled()

    received = transport.received()[filled:]
    (answer,) = send_frames.frames_in(received + bytes(transport.written))
    assert answer.count(BODY) == 20
    assert 0 < len(received) < len(answer)
    assert b'"opaque":9,' in producer.received()


@pytest.mark.parametrize("held_back", [b"", b"held back"])
async def test_a_waiting_pull_is_answered_after_the_data_held_by_the_transport(
    twin: Twin, connect: Connect, held_back: bytes
) -> None:
    transport = connect()
    await twin.feed(waiting_pull())
    transport.written += held_back

    await twin.feed(a_send(9))

    received = transport.received()
    assert transport.written.startswith(held_back)
    assert (BODY in received, BODY in transport.written) == (not held_back, bool(held_back))


async def test_a_waiting_pull_of_an_ended_connection_is_not_answered(
    twin: Twin, connect: Connect
) -> None:
    transport = connect()
    await twin.feed(waiting_pull())
    transport.close()
    connect()

    await twin.feed(a_send(9))

    assert (transport.received(), bytes(transport.written)) == (b"", b"")


async def test_an_ended_connection_sends_nothing(twin: Twin, connect: Connect) -> None:
    transport = connect()
    twin.protocol.connection_lost(None)

    twin.receive(a_pull())

    assert (transport.received(), bytes(transport.written)) == (b"", b"")


async def test_the_wires_on_turn_hook_times_turns(twin: Twin) -> None:
    before = sum(twin.parts.stats.put_latency.counts)
    twin.receive(a_send() * 3)
    assert sum(twin.parts.stats.put_latency.counts) == before + 3

    turns: list[float] = []
    twin.wire.on_turn = turns.append
    twin.receive(a_send())
    assert turns == [0.0]

    twin.wire.on_turn = None
    twin.receive(a_send())
    assert turns == [0.0]
    assert twin.connection.turn_began == 0.0
