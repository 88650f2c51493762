"""A batch of acknowledgements leaves other connections their turns."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.listening.turns import Turns
from broker_core.processors.pop_acks import BATCH_MAX, PopAcksProcessor
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tests.support.lease_store import GROUP, TOPIC, Leased

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker_core.processors.consumer_trace import ConsumerTrace
    from broker_core.remoting.connection import Connection

LEASES_PER_TURN = 2 * 16 + 1
"""With a clock reading every 16 steps, each a millisecond later."""


class BusyClock(ManualClock):
    """Each reading is a millisecond later than the previous one."""

    def monotonic(self) -> float:
        self.hold_ms(1)
        return super().monotonic()


class Peer:
    def __init__(self, clock: BusyClock) -> None:
        self._turns = Turns(clock)

    def run(self, steps: Any) -> asyncio.Future[Any]:
        return self._turns.run(steps)


class Unwatched:
    class tracer:  # noqa: N801
        watching = False


class Acks:
    def __init__(self, leased: Leased, clock: BusyClock) -> None:
        self._peer = cast("Connection", Peer(clock))
        self._processor = PopAcksProcessor(
            "broker-a",
            leased.topics,
            leased.store,
            leased.engine,
            cast("ConsumerTrace", Unwatched()),
            clock,
        )

    def batch(self, entries: list[dict[str, Any]]) -> RemotingCommand | Awaitable[RemotingCommand]:
        body = json.dumps({"brokerName": "broker-a", "acks": entries}).encode()
        request = RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, {}, body)
        return self._processor.batch_ack_message(request, self._peer)


@pytest.fixture
async def leased() -> AsyncIterator[Leased]:
    one = Leased(ManualClock(), FaultyStorage())
    await one.start()
    yield one
    await one.stop()


def entry(start: int, pop_time_ms: int, bits: bytes = b"\x01", *, queue: int = 0) -> dict[str, Any]:
    return {
        "c": GROUP,
        "t": TOPIC,
        "r": "0",
        "so": start,
        "q": 0,
        "rq": queue,
        "pt": pop_time_ms,
        "it": 60_000,
        "b": base64.b64encode(bits).decode(),
    }


async def test_a_full_batch_takes_several_turns_and_acknowledges_everything(
    leased: Leased,
) -> None:
    for _ in range(BATCH_MAX):
        leased.send(b"x")
    leases = [lease for _ in range(BATCH_MAX) for lease in leased.pop(1)]
    acks = Acks(leased, BusyClock())

    later = acks.batch(
        [entry(each.handle.start_offset, each.handle.pop_time_ms) for each in leases]
    )

    assert isinstance(later, asyncio.Future)
    left = [BATCH_MAX, leased.engine.leases.count]
    while left[-1]:
        await asyncio.sleep(0)
        left.append(leased.engine.leases.count)
    assert max(before - after for before, after in itertools.pairwise(left)) <= 5 * LEASES_PER_TURN
    assert len(left) > 5
    assert (await later).code == ResponseCode.SUCCESS


async def test_a_short_batch_is_answered_at_once(leased: Leased) -> None:
    leased.send(b"x")
    (lease,) = leased.pop()

    answer = Acks(leased, BusyClock()).batch([entry(0, lease.handle.pop_time_ms)])

    assert isinstance(answer, RemotingCommand)
    assert answer.code == ResponseCode.SUCCESS
    assert leased.engine.leases.count == 0


async def test_an_entry_of_an_ordered_group_acknowledges_its_messages_one_by_one(
    leased: Leased, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(32):
        leased.send(b"x")
    leases = leased.pop(is_ordered=True)
    one = entry(0, leases[0].handle.pop_time_ms, b"\xff\xff\xff\xfe", queue=999)
    steps = 0
    acknowledge = leased.engine.acknowledge_ordered

    def counted(*given: Any) -> Any:
        nonlocal steps
        steps += 1
        return acknowledge(*given)

    monkeypatch.setattr(leased.engine, "acknowledge_ordered", counted)
    answer = Acks(leased, BusyClock()).batch([one])

    assert (await answer if isinstance(answer, Awaitable) else answer).code == ResponseCode.SUCCESS
    assert steps == 31
    assert leased.committed() == 24


async def test_a_refused_record_refuses_the_batch_in_a_later_turn(
    leased: Leased, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(100):
        leased.send(b"x")
    leases = [lease for _ in range(100) for lease in leased.pop(1)]
    monkeypatch.setattr(leased.log, "write_acks", lambda _checkpoint, _offsets: False)

    later = Acks(leased, BusyClock()).batch(
        [entry(each.handle.start_offset, each.handle.pop_time_ms) for each in leases]
    )

    assert isinstance(later, Awaitable)
    with pytest.raises(RequestRefusedError, match="couldn't store some acknowledgements"):
        await later
    assert leased.engine.leases.count == 100
