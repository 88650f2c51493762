from __future__ import annotations

import pytest

from broker_core.clock import SteadyClock
from broker_core.delay.due_times import JITTER_MS, RUN_MS, RUNS_KEPT, DueTimes
from tests.support.clock import ManualClock

HOUR = 3_600_000
DELAY = 10_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def steady(clock: ManualClock) -> SteadyClock:
    return SteadyClock(clock)


def test_steady_time_is_wall_time_until_the_clock_is_stepped(clock, steady) -> None:
    clock.advance_ms(123_457)
    assert steady.now_ms() == clock.now_ms()

    clock.step_wall_clock_ms(-HOUR)
    clock.advance_ms(1)

    assert steady.now_ms() == clock.now_ms() + HOUR


def test_a_message_is_due_when_its_delay_has_passed(clock, steady) -> None:
    due_times = DueTimes(steady, DELAY)

    due_times.note_put(0, clock.now_ms())

    due = due_times.due_ms(0, clock.now_ms() + DELAY)
    assert 0 <= due - steady.now_ms() - DELAY <= JITTER_MS


@pytest.mark.parametrize("step_ms", [HOUR, -HOUR, 50, -50])
def test_a_wall_clock_step_moves_no_due_time(clock, steady, step_ms: int) -> None:
    due_times = DueTimes(steady, DELAY)
    puts = []
    for queue_offset in range(4):
        if queue_offset == 2:
            clock.step_wall_clock_ms(step_ms)
        due_times.note_put(queue_offset, clock.now_ms())
        puts.append((clock.now_ms() + DELAY, steady.now_ms() + DELAY))
        clock.advance_ms(100)

    late = [due_times.due_ms(n, unit) - target for n, (unit, target) in enumerate(puts)]

    assert all(0 <= each <= RUN_MS + JITTER_MS for each in late)


def test_no_message_is_early_while_the_store_repeats_its_last_time(clock, steady) -> None:
    """The wall clock was set back: store timestamps stand still until it has caught up."""
    due_times = DueTimes(steady, DELAY)
    stuck = clock.now_ms()
    puts = []
    for queue_offset in range(500):
        due_times.note_put(queue_offset, stuck)
        puts.append(steady.now_ms() + DELAY)
        clock.advance_ms(7)

    late = [due_times.due_ms(n, stuck + DELAY) - target for n, target in enumerate(puts)]

    assert all(0 <= each <= RUN_MS + JITTER_MS for each in late)


def test_messages_stored_before_the_start_are_due_by_wall_time(clock, steady) -> None:
    due_times = DueTimes(steady, DELAY)
    due_times.note_put(7, clock.now_ms())

    assert due_times.due_ms(3, clock.now_ms() + 4_000) == clock.now_ms() + 4_000


def test_messages_stored_before_the_start_wait_no_longer_than_their_level(clock, steady) -> None:
    """The clock was set back before the start, or the level was longer."""
    due_times = DueTimes(steady, DELAY)

    assert due_times.due_ms(0, clock.now_ms() + HOUR) == clock.now_ms() + DELAY


def test_messages_before_the_last_request_are_due_as_before(clock, steady) -> None:
    due_times = DueTimes(steady, 10_000)
    puts = []
    for number in range(4):
        clock.step_wall_clock_ms(-3_600_000)
        due_times.note_put(number, clock.now_ms())
        puts.append((steady.now_ms(), clock.now_ms() + 10_000))
        clock.advance_ms(1_000)

    first = [due_times.due_ms(number, unit) for number, (_put, unit) in enumerate(puts)]
    again = [due_times.due_ms(number, puts[number][1]) for number in (3, 0, 2, 1)]

    assert again == [first[number] for number in (3, 0, 2, 1)]
    assert all(due >= put + 10_000 for due, (put, _unit) in zip(first, puts, strict=True))


def test_the_oldest_skipped_of_very_many_runs_become_one(clock, steady) -> None:
    due_times = DueTimes(steady, 10_000)
    units = []
    for number in range(RUNS_KEPT + 50):
        clock.step_wall_clock_ms(1_000)
        due_times.note_put(number, clock.now_ms())
        units.append(clock.now_ms() + 10_000)

    requests = [due_times.due_ms(number, unit) for number, unit in enumerate(units)]

    assert requests == [due_times.due_ms(RUNS_KEPT + 49, units[-1])] * len(requests)
    assert due_times.due_ms(100, units[100]) == requests[100]
