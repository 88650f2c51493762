"""Plain requests are handled straight from received bytes; the rest goes to the dispatcher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.listening.peer_log import PeerLog
from broker_core.protocol.codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.deferred_answer import DeferredAnswer
from broker_core.remoting.dispatch import Dispatcher
from broker_core.remoting.limits import RemotingLimits
from broker_core.remoting.wire import Wire
from broker_core.service import Service
from tests.support.clock import ManualClock
from tests.support.raw_remoting import request
from tests.support.twins import SeenTransport

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand

PLAIN, OTHER = RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT


class Turn:
    """Handles frames of one code; records the frames it was offered."""

    def __init__(self) -> None:
        self.served_bytes = 0
        self.fallbacks: dict[str, int] = {}
        self.requests: list[bytes] = []
        self.later: DeferredAnswer | None = None
        self.closes = False

    def protocol_of(self, connection: Connection) -> Connection:
        return connection

    def serve(
        self, connection: Connection, received: memoryview, size: int, *_: Any, **__: Any
    ) -> bytes | DeferredAnswer | None:
        data = bytes(received[:size])
        self.requests.append(data)
        self.served_bytes, answers = 0, b""
        while len(data) > self.served_bytes:
            frame = data[self.served_bytes :]
            whole = 4 + int.from_bytes(frame[:4], "big")
            if len(frame) < whole or b'"code": 310' not in frame[:whole]:
                break
            self.served_bytes += whole
            answers += b"<plain>"
        if self.closes:
            connection.close()
        if answers and self.later is not None:
            self.later.frame_bytes = self.served_bytes
            return self.later
        return answers


class World:
    """A connection, the turn that runs before its dispatcher, and its output."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.turn = Turn()
        self.turns = 0
        self.transport = SeenTransport()
        wire = Wire(
            dispatcher=Dispatcher({OTHER: self.answer}),
            clock=clock,
            limits=RemotingLimits(),
            owner=Service(),
            peer_log=PeerLog(clock),
            on_made=lambda _: None,
            on_lost=lambda _: None,
            on_turn=self.count,
        )
        wire.plain_requests = self.turn
        self.connection = Connection(wire)
        self.connection.connection_made(self.transport)

    def answer(self, command: RemotingCommand, connection: object) -> bytes:
        return b"<other>"

    def count(self, seconds: float) -> None:
        self.turns += 1

    def receive(self, data: bytes) -> bytes:
        """Receive bytes; return the answer."""
        before = len(self.transport.written)
        buffer = self.connection.get_buffer(-1)
        buffer[: len(data)] = data
        self.connection.buffer_updated(len(data))
        return bytes(self.transport.written[before:])


@pytest.fixture
def world() -> World:
    return World()


async def test_a_turn_of_plain_requests_is_looked_up_once(world) -> None:
    data = 2 * request(PLAIN)

    assert world.receive(data) == b"<plain><plain>"
    assert world.turn.requests == [data]
    assert world.turns == 1


async def test_requests_after_plain_ones_are_answered_after_them(world) -> None:
    half = request(PLAIN)[:9]
    data = request(PLAIN) + request(OTHER) + request(PLAIN) + half

    assert world.receive(data) == b"<plain><other><plain>"
    assert world.receive(request(PLAIN)[9:]) == b"<plain>"
    # The beginning of a frame was kept.
    assert (world.turn.requests[0], world.turn.requests[-1]) == (data, request(PLAIN))


async def test_a_complex_frame_is_looked_up_once(world) -> None:
    assert world.receive(request(OTHER)) == b"<other>"
    assert world.turn.requests == [request(OTHER)]


async def test_waiting_answers_are_sent_when_they_are_available(world) -> None:
    later = world.turn.later = DeferredAnswer()

    assert world.receive(request(PLAIN)) == b""
    assert world.connection.requests_in_flight == 1
    later.finish(b"<late>")

    assert bytes(world.transport.written) == b"<late>"
    assert world.connection.requests_in_flight == 0


async def test_a_connection_closed_meanwhile_is_neither_written_nor_read(
    world,
) -> None:
    world.turn.closes = True

    assert world.receive(request(PLAIN) + request(OTHER)) == b""
    assert world.transport.closed
