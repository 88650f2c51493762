from __future__ import annotations

import asyncio

import pytest

from broker_core.delivery.parked_pulls import (
    ATTEMPTS_AT_ONCE,
    BYTES_PER_CHAR,
    LARGE_BYTES_MAX,
    LARGE_BYTES_PER_CONNECTION_MAX,
    PARKED_PER_CONNECTION_MAX,
    SMALL_CHARS,
    ParkedPulls,
)
from tests.support.clock import ManualClock


class FakePull:
    group = "g"
    is_answerable = True

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
def parked_pulls(clock: ManualClock) -> ParkedPulls:
    return ParkedPulls(clock)


async def turn() -> None:
    await asyncio.sleep(0)


async def test_a_parked_pull_is_tried_when_its_queue_grows(parked_pulls: ParkedPulls) -> None:
    pull = FakePull()
    parked_pulls.park("T", 0, pull, 15_000)

    parked_pulls.on_arrival("T", 0, 1)
    await turn()

    assert pull.attempts == [False]
    assert len(parked_pulls) == 0


async def test_a_burst_of_arrivals_is_one_attempt(parked_pulls: ParkedPulls) -> None:
    pull = FakePull()
    parked_pulls.park("T", 0, pull, 15_000)

    for max_offset in range(1, 100):
        parked_pulls.on_arrival("T", 0, max_offset)
    await turn()

    assert pull.attempts == [False]


async def test_another_queue_does_not_wake_it(parked_pulls: ParkedPulls) -> None:
    pull = FakePull()
    parked_pulls.park("T", 0, pull, 15_000)

    parked_pulls.on_arrival("T", 1, 1)
    await turn()

    assert pull.attempts == []


async def test_a_pull_beyond_the_queue_is_not_tried(parked_pulls: ParkedPulls) -> None:
    pull = FakePull(queue_offset=5)
    parked_pulls.park("T", 0, pull, 15_000)

    parked_pulls.on_arrival("T", 0, 5)
    await turn()

    assert pull.attempts == []


async def test_a_pull_is_answered_at_its_deadline_in_any_case(
    parked_pulls: ParkedPulls, clock: ManualClock
) -> None:
    pull = FakePull(answers=False)
    parked_pulls.park("T", 0, pull, 15_000)

    clock.advance_ms(14_999)
    assert pull.attempts == []
    clock.advance_ms(1)
    await turn()

    assert pull.attempts == [True]
    assert len(parked_pulls) == 0


async def test_a_pull_without_a_result_stays(parked_pulls: ParkedPulls, clock: ManualClock) -> None:
    pull = FakePull(answers=False)
    parked_pulls.park("T", 0, pull, 15_000)
    parked_pulls.on_arrival("T", 0, 1)
    await turn()

    assert len(parked_pulls) == 1
    clock.advance_ms(15_000)
    await turn()
    assert pull.attempts == [False, True]


async def test_a_lost_connection_leaves_nothing_behind(
    parked_pulls: ParkedPulls, clock: ManualClock
) -> None:
    pull = FakePull()
    parked_pulls.park("T", 0, pull, 15_000)

    parked_pulls.close("connection")

    clock.advance_ms(15_000)
    await turn()
    assert pull.attempts == []
    assert len(parked_pulls) == 0


async def test_a_shutdown_answers_everything(parked_pulls: ParkedPulls) -> None:
    pulls = [FakePull(), FakePull(answers=False)]
    for pull in pulls:
        parked_pulls.park("T", 0, pull, 15_000)

    parked_pulls.shutdown()

    assert [pull.attempts for pull in pulls] == [[True], [True]]


async def test_one_connection_may_only_park_a_limited_number(parked_pulls: ParkedPulls) -> None:
    for _ in range(PARKED_PER_CONNECTION_MAX - 1):
        parked_pulls.park("T", 0, FakePull(), 15_000)
    assert not parked_pulls.is_full("connection")

    parked_pulls.park("T", 0, FakePull(), 15_000)

    assert parked_pulls.is_full("connection")


@pytest.mark.parametrize("is_arrival", [True, False], ids=["arrival", "deadline"])
async def test_a_crowd_is_served_over_several_turns(
    parked_pulls: ParkedPulls, clock: ManualClock, *, is_arrival: bool
) -> None:
    pulls = [FakePull() for _ in range(2 * ATTEMPTS_AT_ONCE + 1)]
    for pull in pulls:
        parked_pulls.park("T", 0, pull, 15_000)

    if is_arrival:
        parked_pulls.on_arrival("T", 0, 1)
    else:
        clock.advance_ms(15_000)
    answered = []
    while len(parked_pulls):
        await turn()
        answered.append(sum(len(pull.attempts) for pull in pulls))

    assert answered == [ATTEMPTS_AT_ONCE, 2 * ATTEMPTS_AT_ONCE, len(pulls)]
    assert all(len(pull.attempts) == 1 for pull in pulls)


async def test_a_pull_that_ends_before_its_turn_is_not_tried(
    parked_pulls: ParkedPulls, clock: ManualClock
) -> None:
    pulls = [FakePull() for _ in range(ATTEMPTS_AT_ONCE + 1)]
    for pull in pulls:
        parked_pulls.park("T", 0, pull, 15_000)
    parked_pulls.on_arrival("T", 0, 1)
    await turn()

    parked_pulls.close("connection")
    await turn()

    assert pulls[-1].attempts == []
    assert len(parked_pulls) == 0


async def test_pulls_waiting_for_a_topic_are_answered_when_their_filters_change(
    parked_pulls: ParkedPulls,
) -> None:
    first, second, other = FakePull(), FakePull(answers=False), FakePull()
    parked_pulls.park("T", 0, first, 15_000)
    parked_pulls.park("T", 1, second, 15_000)
    parked_pulls.park("U", 0, other, 15_000)

    parked_pulls.end("T")
    parked_pulls.end("nothing waits for it")
    await turn()

    assert (first.attempts, second.attempts, other.attempts) == ([True], [True], [])
    assert len(parked_pulls) == 1


class UnreadPull(FakePull):
    """A pull whose client reads answers only when the test allows it."""

    is_answerable = False

    def attempt(self, *, is_last: bool) -> bool:
        super().attempt(is_last=is_last)
        return self.is_answerable


async def test_a_pull_waits_until_its_client_reads(parked_pulls: ParkedPulls) -> None:
    pull = UnreadPull()
    parked_pulls.park("T", 0, pull, 15_000)
    parked_pulls.on_arrival("T", 0, 1)
    await turn()
    assert len(parked_pulls) == 1

    pull.is_answerable = True
    parked_pulls.resume("another connection")
    await turn()
    assert len(parked_pulls) == 1
    parked_pulls.resume("connection")
    await turn()

    assert len(parked_pulls) == 0
    assert len(pull.attempts) == 2


async def test_a_pull_whose_client_does_not_read_outlives_its_timeout(
    clock: ManualClock, parked_pulls: ParkedPulls
) -> None:
    pull = UnreadPull()
    parked_pulls.park("T", 0, pull, 15_000)

    clock.advance_ms(15_000)
    await turn()
    assert pull.attempts == [True]
    pull.is_answerable = True
    parked_pulls.resume("connection")
    await turn()

    assert pull.attempts == [True, True]
    assert len(parked_pulls) == 0


async def test_a_lost_connections_pulls_are_not_held(parked_pulls: ParkedPulls) -> None:
    pull = UnreadPull()
    parked_pulls.park("T", 0, pull, 15_000)
    parked_pulls.on_arrival("T", 0, 1)
    await turn()

    parked_pulls.close("connection")
    parked_pulls.resume("connection")
    await turn()

    assert len(pull.attempts) == 1
    assert len(parked_pulls) == 0


def large_pulls_that_wait(parked_pulls: ParkedPulls, connection: object, chars: int) -> int:
    waiting = 0
    while not parked_pulls.is_full(connection, chars):
        pull = FakePull()
        pull.connection = connection
        parked_pulls.park("T", 0, pull, 15_000, chars)
        waiting += 1
    return waiting


def test_pulls_with_long_expressions_are_limited_by_their_memory(
    parked_pulls: ParkedPulls,
) -> None:
    chars = 8_192

    of_one = large_pulls_that_wait(parked_pulls, "first", chars)

    assert of_one == LARGE_BYTES_PER_CONNECTION_MAX // (chars * BYTES_PER_CHAR)
    assert not parked_pulls.is_full("first", SMALL_CHARS)
    of_others = sum(
        large_pulls_that_wait(parked_pulls, number, chars) for number in range(of_one * 2)
    )
    assert of_one + of_others == LARGE_BYTES_MAX // (chars * BYTES_PER_CHAR)
    parked_pulls.close("first")
    assert large_pulls_that_wait(parked_pulls, "last", chars) == of_one


async def test_a_failing_pull_does_not_keep_others_from_their_answer(
    parked_pulls: ParkedPulls,
) -> None:
    class FailingPull(FakePull):
        def attempt(self, *, is_last: bool) -> bool:
            raise KeyError("of a bug")

    last = FakePull(answers=False)
    for pull in (FailingPull(), FakePull(), FailingPull(), last):
        parked_pulls.park("T", 0, pull, 15_000)

    parked_pulls.on_arrival("T", 0, 1)
    await turn()
    assert last.attempts == [False]
    assert len(parked_pulls) == 1

    parked_pulls.park("U", 0, FailingPull(), 15_000)
    parked_pulls.shutdown()

    assert last.attempts == [False, True]
    assert len(parked_pulls) == 0
