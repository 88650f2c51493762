"""Connections share the loop by turns; see also tests/integration/test_fairness.py."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.listening.budgets import Budgets
from broker_core.listening.peer_log import PeerLog
from broker_core.listening.turns import ROUND_S, TURN_S
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.frame import FrameDecoder
from broker_core.remoting.connection import Connection
from broker_core.remoting.dispatch import Dispatcher
from broker_core.remoting.limits import RemotingLimits
from broker_core.remoting.wire import RECEIVE_BYTES, Wire
from broker_core.service import Service
from broker_core.steps import STEPS_AT_ONCE
from tests.support.clock import ManualClock
from tests.support.raw_remoting import request
from tests.support.twins import SeenTransport, settled

if TYPE_CHECKING:
    from collections.abc import Generator

    from broker_core.protocol.command import RemotingCommand

TURN_MS = round(TURN_S * 1000) + 1
"""A request of this length ends a turn, despite rounding."""
ROUND_MS = round(ROUND_S * 1000)
WHOLE_ROUND_MS = ROUND_MS + 1
COSTS, WAITS = 1, 2


class PausedTransport(SeenTransport):
    """Records whether it can read."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read_from = True

    def pause_reading(self) -> None:
        assert self.is_read_from
        self.is_read_from = False

    def resume_reading(self) -> None:
        assert not self.is_read_from
        self.is_read_from = True


class Peer:
    """One connection of the world; a request's body says how many milliseconds it takes."""

    def __init__(self, world: World, name: str) -> None:
        self.transport = PausedTransport()
        self.connection = Connection(world.wire)
        self.connection.connection_made(self.transport)
        self.connection.attributes["name"] = name

    def send(self, *milliseconds: int, code: int = COSTS) -> None:
        self.receive(
            b"".join(
                request(code, body=b"%d" % each, opaque=number)
                for number, each in enumerate(milliseconds)
            )
        )

    def receive(self, data: bytes) -> None:
        assert self.transport.is_read_from
        buffer = self.connection.get_buffer(-1)
        buffer[: len(data)] = data
        self.connection.buffer_updated(len(data))

    @property
    def answered(self) -> list[int]:
        decoder = FrameDecoder()
        decoder.feed(bytes(self.transport.written))
        return [command.opaque for command in decoder.commands()]


class World:
    """Connections that share one wire, and the handled requests in order."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.served: list[str] = []
        self.release = asyncio.Event()
        self.budgets = Budgets(self.clock)
        self.wire = Wire(
            dispatcher=Dispatcher({COSTS: self.costs, WAITS: self.waits}),
            clock=self.clock,
            limits=RemotingLimits(),
            owner=Service(),
            peer_log=PeerLog(self.clock),
            on_made=lambda _: None,
            on_lost=lambda _: None,
        )
        self.wire.share(self.budgets)

    def costs(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        self.clock.hold_ms(int(command.body))
        self.served.append(f"{connection.attributes['name']}{command.opaque}")
        return command.answer(ResponseCode.SUCCESS)

    async def waits(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        await self.release.wait()
        return self.costs(command, connection)

    def peer(self, name: str) -> Peer:
        return Peer(self, name)


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_turn_ends_when_its_time_is_used_up_and_the_rest_waits(world: World) -> None:
    a = world.peer("a")

    a.send(*[TURN_MS] * 4)

    assert world.served == ["a0"]
    assert not a.transport.is_read_from
    assert len(world.budgets.turns) == 1
    await settled()
    assert a.answered == list(range(4))
    assert a.transport.is_read_from
    assert not len(world.budgets.turns)


async def test_connections_take_turns(world: World) -> None:
    a, b = world.peer("a"), world.peer("b")

    a.send(*[TURN_MS] * 3)
    b.send(*[TURN_MS] * 3)
    await settled()

    assert world.served == ["a0", "b0", "a1", "b1", "a2", "b2"]


async def test_a_round_ends_when_its_time_is_used(world: World) -> None:
    a = world.peer("a")
    a.send(*[TURN_MS] * 30)
    before = len(world.served)

    while len(world.served) < 30:
        await asyncio.sleep(0)
        assert len(world.served) - before <= ROUND_MS // TURN_MS + 1
        before = len(world.served)


async def test_a_newcomer_to_a_spent_round_waits_for_the_next_one(world: World) -> None:
    a, b = world.peer("a"), world.peer("b")
    a.send(WHOLE_ROUND_MS)

    b.send(0)

    assert world.served == ["a0"]
    assert not b.transport.is_read_from
    await settled()
    assert world.served == ["a0", "b0"]
    b.send(0)
    assert world.served[-1] == "b0"
    assert len(world.served) == 3


async def test_the_connection_with_the_shortest_last_turn_goes_first(world: World) -> None:
    quick, slow, other = world.peer("quick"), world.peer("slow"), world.peer("other")
    quick.send(0)
    slow.send(TURN_MS)
    await settled()
    other.send(WHOLE_ROUND_MS)
    world.served.clear()

    slow.send(TURN_MS)
    quick.send(0)
    await settled()

    assert world.served == ["quick0", "slow0"]


async def test_a_full_buffer_leaves_the_rest_of_the_round_to_others(world: World) -> None:
    """The transport keeps reading in the same round while more bytes are available."""
    a = world.peer("a")
    world.peer("b").send(ROUND_MS - 1)
    frame = request(COSTS, body=b"2" + bytes(RECEIVE_BYTES))
    frame = request(COSTS, body=b"2".ljust(2 * RECEIVE_BYTES - len(frame) + 1, b" "))
    assert len(frame) == RECEIVE_BYTES

    a.receive(frame)

    assert world.served[-1] == "a1"
    assert not a.transport.is_read_from
    await settled()
    assert a.transport.is_read_from


async def test_a_fragmented_frame_needs_no_turn(world: World) -> None:
    a = world.peer("a")
    frame = request(COSTS, body=b"0")

    a.receive(frame[:9])
    assert a.transport.is_read_from
    a.receive(frame[9:])

    assert a.answered == [1]


async def test_a_closing_connection_takes_no_more_turns(world: World) -> None:
    a = world.peer("a")
    a.send(*[TURN_MS] * 3)

    a.connection.close()
    a.connection.connection_lost(None)
    await settled()

    assert world.served == ["a0"]
    assert not len(world.budgets.turns)
    assert world.budgets.memory.bytes == 0


async def test_a_request_that_is_served_alone_is_not_overtaken(world: World) -> None:
    async def slowly(command: RemotingCommand) -> RemotingCommand:
        await world.release.wait()
        world.served.append("alone")
        return command.answer(ResponseCode.SUCCESS)

    def alone(command: RemotingCommand, connection: Connection) -> object:
        connection.serve_alone()
        return slowly(command)

    world.wire.dispatcher.override({WAITS: alone})  # type: ignore[dict-item]
    a = world.peer("a")

    a.receive(request(WAITS, opaque=7) + request(COSTS, body=b"0", opaque=8))
    await settled()
    assert world.served == []
    assert not a.transport.is_read_from
    world.release.set()
    await settled()

    assert world.served == ["alone", "a8"]
    assert a.answered == [7, 8]
    assert a.transport.is_read_from


async def test_a_coroutines_work_before_it_waits_counts_for_the_turn(world: World) -> None:
    async def costly(command: RemotingCommand, connection: Connection) -> RemotingCommand:
        answer = world.costs(command, connection)
        if command.opaque % 2:
            await world.release.wait()
        return answer

    world.wire.dispatcher.override({WAITS: costly})
    a = world.peer("a")

    a.send(*[TURN_MS] * 10, code=WAITS)

    assert world.served == ["a0"]
    assert a.answered == [0]
    world.release.set()
    while world.budgets.turns or len(a.answered) < 10:  # noqa: ASYNC110  there is no event to wait for
        await asyncio.sleep(0)
    assert sorted(a.answered) == list(range(10))


async def test_steps_run_in_turns_and_return_their_results(world: World) -> None:
    done = 0

    def steps() -> Generator[None, None, str]:
        nonlocal done
        for _ in range(3 * STEPS_AT_ONCE):
            done += 1
            yield
        return "content"

    running = world.budgets.turns.run(steps())
    assert len(world.budgets.turns) == 1
    before = done
    while not running.done():
        await asyncio.sleep(0)
        assert done - before <= 4 * STEPS_AT_ONCE
        before = done

    assert await running == "content"


async def test_steps_end_their_turn_when_its_time_is_used_up(world: World) -> None:
    done = 0

    def steps() -> Generator[None, None, None]:
        nonlocal done
        while True:
            world.clock.hold_ms(1)
            done += 1
            yield

    running = world.budgets.turns.run(steps())
    await asyncio.sleep(0)
    assert 0 < done < ROUND_MS + 2 * 16
    running.cancel()
    await settled()
    ended = done
    await settled()
    assert done == ended


async def test_an_error_in_the_steps_is_raised_to_the_awaiting_caller(world: World) -> None:
    def steps() -> Generator[None, None, None]:
        yield
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "no")

    with pytest.raises(RequestRefusedError):
        await world.budgets.turns.run(steps())
