"""Pending timers: their due times, order and memory."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from broker_core.timers.pending import PendingTimers, TimerClock

WALL, STEADY = TimerClock.WALL, TimerClock.STEADY


def due_at(timers: PendingTimers, wall_ms: int, steady_ms: int = -1) -> list[int]:
    """Remove all timers that are due and return them in order of delivery."""
    found = []
    while (queue_offset := timers.due(wall_ms, steady_ms)) is not None:
        found.append(queue_offset)
        assert timers.remove(queue_offset)
    return found


def test_timers_are_due_in_order_of_their_times() -> None:
    timers = PendingTimers()
    for queue_offset, due_ms in enumerate((30, 10, 20, 10)):
        timers.add(queue_offset, due_ms, WALL)

    assert due_at(timers, 9) == []
    assert due_at(timers, 20) == [1, 3, 2]
    assert timers.wait_ms(21, 0) == 9


def test_each_clock_has_its_own_timers_and_the_most_overdue_comes_first() -> None:
    timers = PendingTimers()
    timers.add(0, 1_000, WALL)
    timers.add(1, 500, STEADY)

    assert timers.wait_ms(0, 0) == 500
    assert due_at(timers, 1_000, 499) == [0]
    assert due_at(timers, 5_000, 500) == [1]
    assert timers.wait_ms(0, 0) is None


def test_a_removed_timer_is_never_due() -> None:
    timers = PendingTimers()
    timers.add(0, 10, WALL)
    timers.add(1, 10, WALL)

    assert timers.remove(0)

    assert not timers.remove(0)
    assert due_at(timers, 10) == [1]


def test_the_first_offset_is_the_lowest_pending_one() -> None:
    timers = PendingTimers(5)
    assert (timers.first_offset, timers.span) == (5, 0)
    for queue_offset in (5, 6, 9):
        timers.add(queue_offset, queue_offset, WALL)

    firsts = []
    for queue_offset in (6, 5, 9):
        timers.remove(queue_offset)
        firsts.append(timers.first_offset)

    assert firsts == [5, 9, 10]
    assert timers.span == 0


def test_skipped_offsets_are_not_pending() -> None:
    timers = PendingTimers(3)
    timers.skip(4)
    assert timers.first_offset == 7
    timers.add(7, 1, WALL)
    timers.skip(2)
    timers.add(12, 1, WALL)

    assert [each for each in range(14) if timers.is_pending(each)] == [7, 12]
    timers.remove(7)
    assert timers.first_offset == 12


@pytest.mark.parametrize("seed", range(20))
def test_random_puts_deliveries_and_recalls_match_a_model(seed: int) -> None:
    choose = random.Random(seed)
    timers, model = PendingTimers(), {}
    now = end = 0
    for _ in range(2_000):
        action = choose.random()
        if action < 0.5:
            end += choose.choice((0, 0, 0, 7))
            clock = choose.choice((WALL, STEADY))
            due_ms = now + choose.randrange(200)
            timers.add(end, due_ms, clock)
            model[end] = due_ms
            end += 1
        elif action < 0.6 and model:
            recalled = choose.choice(list(model))
            assert timers.remove(recalled)
            del model[recalled]
        else:
            now += choose.randrange(30)
            expected = sorted(each for each, due_ms in model.items() if due_ms <= now)
            assert sorted(due_at(timers, now, now)) == expected
            for each in expected:
                del model[each]
        assert timers.count == len(model)
        assert timers.first_offset == min(model, default=timers.next_offset)


def test_finished_timers_before_the_first_pending_one_use_no_memory() -> None:
    timers = PendingTimers()
    tracemalloc.start()
    try:
        timers.add(0, 10**9, WALL)
        for queue_offset in range(1, 300_000):
            timers.add(queue_offset, queue_offset, WALL)
            due_at(timers, queue_offset - 10)
            if queue_offset == 200_000:
                assert timers.span == 200_001
                timers.remove(0)
            assert timers.first_offset >= 0
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert timers.span <= 20
    assert used < 200_000


def test_upcoming_timers_are_listed_soonest_first_and_stay() -> None:
    choose = random.Random(7)
    timers, model = PendingTimers(), []
    for queue_offset in range(500):
        due_ms = 1_000 + choose.randrange(10_000)
        clock, now = choose.choice(((WALL, 900), (STEADY, 600)))
        timers.add(queue_offset, due_ms, clock)
        model.append((due_ms - now, queue_offset))
    for wait_ms, queue_offset in sorted(model)[:40:2]:
        timers.remove(queue_offset)
        model.remove((wait_ms, queue_offset))

    assert timers.upcoming(32, 900, 600) == sorted(model)[:32]
    assert timers.upcoming(1_000, 900, 600) == sorted(model)
    assert timers.count == 480


def test_a_hundred_thousand_timers_take_less_than_ten_megabytes() -> None:
    tracemalloc.start()
    try:
        timers = PendingTimers()
        for queue_offset in range(100_000):
            timers.add(queue_offset, 1_795_810_000_000 + queue_offset * 7, WALL)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert used < 10_000_000
