"""The bytes that connections hold are limited; see also tests/integration/test_unread.py."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.listening.budgets import Budgets
from broker_core.listening.memory import MemoryBudget
from broker_core.listening.peer_log import PeerLog
from broker_core.protocol.codes import ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.dispatch import Dispatcher
from broker_core.remoting.intake import ANSWER_BYTES, TIGHT_BYTES
from broker_core.remoting.limits import RemotingLimits
from broker_core.remoting.wire import Wire
from broker_core.service import Service
from tests.support.clock import ManualClock
from tests.support.raw_remoting import request
from tests.support.twins import SeenTransport, settled

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand

BUDGET = 1_000_000
MUCH, WAITS = 1, 2


class Holder:
    def __init__(self, budget: MemoryBudget) -> None:
        self.held_bytes = 0
        self.stuck_bytes = 0
        self.reasons: list[str] = []
        self._budget = budget
        budget.open(self)

    def drop(self, reason: str) -> None:
        self.reasons.append(reason)

    def hold(self, count: int, *, is_stuck: bool = True) -> None:
        self.held_bytes += count
        self.stuck_bytes += count if is_stuck else 0
        self._budget.add(count)


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget(100)


def test_the_client_with_the_most_waiting_bytes_is_dropped(budget: MemoryBudget) -> None:
    small, large, new = Holder(budget), Holder(budget), Holder(budget)
    small.hold(20)
    large.hold(70)

    new.hold(30)

    assert [len(each.reasons) for each in (small, large, new)] == [0, 1, 0]
    assert "more than 100" in large.reasons[0]
    assert (budget.bytes, budget.dropped) == (50, 1)


def test_the_oldest_of_equal_holders_is_dropped(budget: MemoryBudget) -> None:
    old, new = Holder(budget), Holder(budget)
    old.hold(60)

    new.hold(60)

    assert [len(old.reasons), len(new.reasons)] == [1, 0]


def test_a_client_that_is_being_served_is_not_dropped(budget: MemoryBudget) -> None:
    served, stuck = Holder(budget), Holder(budget)
    served.hold(90, is_stuck=False)
    assert budget.is_tight

    stuck.hold(20)
    served.hold(20, is_stuck=False)

    assert served.reasons == []
    assert len(stuck.reasons) == 1
    assert budget.bytes == 110


def test_a_disconnected_client_holds_nothing(budget: MemoryBudget) -> None:
    holder = Holder(budget)
    holder.hold(60)

    budget.close(holder)
    budget.close(holder)

    assert budget.bytes == 0
    assert not budget.is_tight


class FullTransport(SeenTransport):
    """A peer that doesn't read until the test allows it."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.waiting = 0
        self.is_read_from = True
        self._connection = connection
        self._high = 1 << 30

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high = high

    def write(self, data: Any) -> None:
        was_full = self.waiting > self._high
        self.waiting += len(data)
        if self.waiting > self._high and not was_full:
            self._connection.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def read_all(self) -> None:
        self.waiting = 0
        self._connection.resume_writing()

    def pause_reading(self) -> None:
        self.is_read_from = False

    def resume_reading(self) -> None:
        self.is_read_from = True


class World:
    """Connections that share one wire with a small budget."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.release = asyncio.Event()
        self.budgets = Budgets(self.clock, BUDGET)
        self.memory = self.budgets.memory
        self.wire = Wire(
            dispatcher=Dispatcher({MUCH: self.much, WAITS: self.waits}),
            clock=self.clock,
            limits=RemotingLimits(write_buffer_high=10_000, write_buffer_max=300_000),
            owner=Service(),
            peer_log=PeerLog(self.clock),
            on_made=lambda _: None,
            on_lost=lambda _: None,
        )
        self.wire.share(self.budgets)

    def much(self, command: RemotingCommand, _: Connection) -> RemotingCommand:
        return command.answer(ResponseCode.SUCCESS, body=bytes(int(command.body)))

    async def waits(self, command: RemotingCommand, _: Connection) -> RemotingCommand:
        await self.release.wait()
        return command.answer(ResponseCode.SUCCESS, body=bytes(200_000))

    def connect(self) -> tuple[Connection, FullTransport]:
        connection = Connection(self.wire)
        transport = FullTransport(connection)
        connection.connection_made(transport)
        return connection, transport


@pytest.fixture
async def world() -> World:
    return World()


def receive(connection: Connection, data: bytes) -> None:
    buffer = connection.get_buffer(-1)
    buffer[: len(data)] = data
    connection.buffer_updated(len(data))


async def test_unread_answers_count_until_they_are_read(world: World) -> None:
    connection, transport = world.connect()

    receive(connection, request(MUCH, body=b"90000"))

    assert 90_000 < world.memory.bytes == connection.held_bytes == connection.stuck_bytes
    assert not transport.is_read_from
    transport.read_all()
    assert world.memory.bytes == 0
    await settled()
    assert transport.is_read_from


async def test_a_few_unread_bytes_are_counted_by_the_sweep(world: World) -> None:
    connection, _ = world.connect()
    receive(connection, request(MUCH, body=b"9000"))
    assert world.memory.bytes == 0

    connection.sweep(world.clock.monotonic())

    assert 9_000 < world.memory.bytes == connection.held_bytes


async def test_unfinished_frames_of_all_connections_are_limited(world: World) -> None:
    frame = request(MUCH, body=b"1".rjust(240_000, b" "))
    connections = [world.connect() for _ in range(5)]

    for connection, _ in connections:
        receive(connection, frame[:210_000])

    assert [transport.is_closing() for _, transport in connections] == [True, *[False] * 4]
    assert world.memory.bytes == 4 * 210_000
    for connection, _ in connections[1:]:
        receive(connection, frame[210_000:])
    assert world.memory.bytes == 0


async def test_requests_in_progress_count_with_space_for_their_answers(world: World) -> None:
    connection, _ = world.connect()

    receive(connection, request(WAITS))

    assert ANSWER_BYTES < world.memory.bytes < ANSWER_BYTES + 1_000
    assert connection.stuck_bytes == 0
    world.release.set()
    await settled()
    assert connection.requests_in_flight == 0
    assert world.memory.bytes == connection.unsent_bytes > 200_000


async def test_a_lost_connection_holds_only_the_memory_of_requests_in_progress(
    world: World,
) -> None:
    connection, transport = world.connect()
    receive(connection, request(WAITS) + request(MUCH, body=b"90000") + request(MUCH)[:9])

    transport.abort()
    connection.connection_lost(None)

    assert ANSWER_BYTES < world.memory.bytes < ANSWER_BYTES + 1_000
    world.release.set()
    await settled()
    assert world.memory.bytes == 0


async def test_a_peer_that_does_not_read_is_closed_on_the_next_send(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    connection, transport = world.connect()
    receive(connection, request(MUCH, body=b"400000"))
    assert not transport.is_closing()

    connection.send(b"pushed")
    await settled()

    assert transport.is_closing()
    assert "the peer does not read: 400" in caplog.text
    assert world.memory.dropped == 1


async def test_fewer_requests_are_in_progress_while_memory_is_tight(world: World) -> None:
    others = [world.connect() for _ in range(3)]
    for other, _ in others:
        receive(other, request(MUCH, body=b"180000"))
    assert world.memory.is_tight
    connection, transport = world.connect()

    receive(connection, request(WAITS) + request(WAITS))

    assert connection.requests_in_flight == 1
    assert connection.held_bytes >= TIGHT_BYTES
    assert not transport.is_read_from
    world.release.set()
    await settled()
    assert connection.requests_in_flight == 0
