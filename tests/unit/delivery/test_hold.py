from __future__ import annotations

import asyncio

import pytest

from broker_core.delivery.hold import HELD_PER_CONNECTION_MAX, PullHold
from tests.support.clock import ManualClock


class FakePull:
    def __init__(self, queue_offset: int = 0, *, answers: bool = True) -> None:
        self.connection: object = "connection"
        self.queue_offset = queue_offset
        self.answers = answers
        self.attempts: list[bool] = []

    def attempt(self, *, is_last: bool) -> bool:
        self.attempts.append(is_last)
        return self.answers or is_last


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hold(clock: ManualClock) -> PullHold:
    return PullHold(clock)


async def turn() -> None:
    await asyncio.sleep(0)


async def test_a_held_pull_is_tried_when_its_queue_grows(hold: PullHold) -> None:
    pull = FakePull()
    hold.hold("T", 0, pull, 15_000)

    hold.on_arrival("T", 0, 1)
    await turn()

    assert pull.attempts == [False]
    assert len(hold) == 0


async def test_a_burst_of_arrivals_is_one_attempt(hold: PullHold) -> None:
    pull = FakePull()
    hold.hold("T", 0, pull, 15_000)

    for max_offset in range(1, 100):
        hold.on_arrival("T", 0, max_offset)
    await turn()

    assert pull.attempts == [False]


async def test_another_queue_does_not_wake_it(hold: PullHold) -> None:
    pull = FakePull()
    hold.hold("T", 0, pull, 15_000)

    hold.on_arrival("T", 1, 1)
    await turn()

    assert pull.attempts == []


async def test_a_pull_ahead_of_the_queue_is_not_tried(hold: PullHold) -> None:
    pull = FakePull(queue_offset=5)
    hold.hold("T", 0, pull, 15_000)

    hold.on_arrival("T", 0, 5)
    await turn()

    assert pull.attempts == []


async def test_at_its_deadline_a_pull_is_answered_in_any_case(
    hold: PullHold, clock: ManualClock
) -> None:
    pull = FakePull(answers=False)
    hold.hold("T", 0, pull, 15_000)

    clock.advance_ms(14_999)
    assert pull.attempts == []
    clock.advance_ms(1)

    assert pull.attempts == [True]
    assert len(hold) == 0


async def test_a_pull_that_finds_nothing_stays(hold: PullHold, clock: ManualClock) -> None:
    pull = FakePull(answers=False)
    hold.hold("T", 0, pull, 15_000)
    hold.on_arrival("T", 0, 1)
    await turn()

    assert len(hold) == 1
    clock.advance_ms(15_000)
    assert pull.attempts == [False, True]


async def test_a_lost_connection_leaves_nothing_behind(hold: PullHold, clock: ManualClock) -> None:
    pull = FakePull()
    hold.hold("T", 0, pull, 15_000)

    hold.close("connection")

    clock.advance_ms(15_000)
    assert pull.attempts == []
    assert len(hold) == 0


async def test_a_shutdown_answers_everything(hold: PullHold) -> None:
    pulls = [FakePull(), FakePull(answers=False)]
    for pull in pulls:
        hold.hold("T", 0, pull, 15_000)

    hold.shutdown()

    assert [pull.attempts for pull in pulls] == [[True], [True]]


async def test_one_connection_may_hold_so_many_and_no_more(hold: PullHold) -> None:
    for _ in range(HELD_PER_CONNECTION_MAX - 1):
        hold.hold("T", 0, FakePull(), 15_000)
    assert not hold.is_full("connection")

    hold.hold("T", 0, FakePull(), 15_000)

    assert hold.is_full("connection")
