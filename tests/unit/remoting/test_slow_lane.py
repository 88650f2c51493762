from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.slow_lane import (
    QUICK_CODES,
    WAITING_BYTES_MAX,
    WAITING_PER_CONNECTION_MAX,
    SlowLane,
)
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Handler

CODE = RequestCode.GET_ALL_TOPIC_CONFIG


class Peer:
    is_open = True


class Costly:
    """A handler whose requests take some milliseconds."""

    def __init__(self, clock: ManualClock, milliseconds: int = 15) -> None:
        self.served: list[int] = []
        self._clock = clock
        self._milliseconds = milliseconds

    def __call__(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        self._clock.hold_ms(self._milliseconds)
        self.served.append(request.opaque)
        return request.answer(ResponseCode.SUCCESS)


class Asking:
    """Hands requests to a handler in the lane, and keeps what is answered later."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.later: list[asyncio.Future[tuple[object]]] = []

    def __call__(self, opaque: int, peer: Peer, body: bytes = b"") -> None:
        request = RemotingCommand.request(CODE, body=body)
        request.opaque = opaque
        answer = self._handler(request, cast("Connection", peer))
        if isinstance(answer, Awaitable):
            self.later.append(asyncio.gather(answer))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_a_turn_serves_what_it_has_time_for_and_the_next_ones_the_rest(
    clock: ManualClock,
) -> None:
    handler = Costly(clock)
    ask = Asking(SlowLane(clock).around({CODE: handler})[CODE])
    peer = Peer()

    for opaque in range(6):
        ask(opaque, peer)

    assert handler.served == [0, 1]
    before = 2
    while len(handler.served) < 6:
        await asyncio.sleep(0)
        assert len(handler.served) - before <= 2
        before = len(handler.served)
    assert handler.served == [0, 1, 2, 3, 4, 5]
    await asyncio.gather(*ask.later)


async def test_what_comes_later_does_not_overtake_and_may_pass_again_then(
    clock: ManualClock,
) -> None:
    handler = Costly(clock, 25)
    lane = SlowLane(clock)
    ask = Asking(lane.around({CODE: handler})[CODE])
    peer = Peer()
    ask(0, peer)
    ask(1, peer)
    await asyncio.sleep(0)
    ask(2, peer)

    await asyncio.gather(*ask.later)

    assert handler.served == [0, 1, 2]
    assert len(lane) == 0
    await asyncio.sleep(0)
    ask(3, peer)
    assert handler.served[-1] == 3
    assert len(ask.later) == 2


async def test_a_handler_may_wait_or_refuse(clock: ManualClock) -> None:
    async def waits(request: RemotingCommand, _: Connection) -> RemotingCommand:
        await asyncio.sleep(0)
        return request.answer(ResponseCode.SUCCESS, "waited")

    def refuses(_: RemotingCommand, __: Connection) -> RemotingCommand:
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "no")

    lane = SlowLane(clock)
    costly = Asking(lane.around({CODE: Costly(clock, 30)})[CODE])
    peer = Peer()
    costly(0, peer)
    waiting, refusing = (Asking(lane.around({CODE: one})[CODE]) for one in (waits, refuses))
    waiting(1, peer)
    refusing(2, peer)

    [(answer,)] = await asyncio.gather(*waiting.later)
    [refusal] = await asyncio.gather(*refusing.later, return_exceptions=True)

    assert cast("RemotingCommand", answer).remark == "waited"
    assert isinstance(refusal, RequestRefusedError)
    assert len(lane) == 0


async def test_too_many_are_refused_and_the_lost_are_not_served(clock: ManualClock) -> None:
    handler = Costly(clock, 30)
    lane = SlowLane(clock)
    ask = Asking(lane.around({CODE: handler})[CODE])
    greedy, lost = Peer(), Peer()
    ask(0, greedy)
    for opaque in range(WAITING_PER_CONNECTION_MAX):
        ask(opaque, greedy)
    with pytest.raises(RequestRefusedError) as refused:
        ask(-1, greedy)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    ask(-2, lost, bytes(WAITING_BYTES_MAX))
    with pytest.raises(RequestRefusedError):
        ask(-3, Peer(), b"x")
    lost.is_open = False

    await asyncio.gather(*ask.later)

    assert len(handler.served) == WAITING_PER_CONNECTION_MAX + 1
    assert min(handler.served) == 0
    assert len(lane) == 0


def test_sends_and_pulls_pass_beside_the_lane(clock: ManualClock) -> None:
    handlers: dict[int, Handler] = {code: Costly(clock) for code in (*QUICK_CODES, CODE)}

    table = SlowLane(clock).around(handlers)

    assert {code for code in table if table[code] is handlers[code]} == QUICK_CODES
    assert {10, 310, 320, 11, 361} <= QUICK_CODES
