"""The passing of time on the real clock and on the tests' clock."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from broker_core.clock import SystemClock, wait_within
from tests.support.clock import ManualClock


async def test_the_system_clock_calls_back() -> None:
    clock = SystemClock()
    called = asyncio.Event()

    clock.call_at(clock.monotonic() - 1, called.set)
    clock.call_at(clock.monotonic() + 3600, called.clear).cancel()
    await clock.sleep(0)
    await called.wait()

    assert clock.now_ms() > 1_700_000_000_000


async def test_callbacks_run_in_order_at_their_times() -> None:
    clock = ManualClock()
    start = clock.monotonic()
    ran: list[tuple[str, float]] = []

    def run(name: str) -> None:
        ran.append((name, clock.monotonic() - start))

    for name, delay in (("late", 2.0), ("soon", 1.0), ("never", 9.0)):
        clock.call_at(start + delay, partial(run, name))

    clock.advance_ms(5000)

    assert ran == [("soon", 1.0), ("late", 2.0)]
    assert clock.monotonic() == start + 5


async def test_a_cancelled_callback_does_not_run() -> None:
    clock = ManualClock()
    ran: list[int] = []
    clock.call_at(clock.monotonic() + 1, lambda: ran.append(1)).cancel()

    clock.advance_ms(2000)

    assert ran == []


async def test_a_sleeper_wakes_on_time() -> None:
    clock = ManualClock()
    sleeper = asyncio.ensure_future(clock.sleep(1.0))  # noqa: TID251  the test owns the task
    await asyncio.sleep(0)

    clock.advance_ms(999)
    await asyncio.sleep(0)
    assert not sleeper.done()
    clock.advance_ms(1)
    await sleeper


async def test_only_the_wall_clock_is_stepped() -> None:
    clock = ManualClock()
    before = clock.monotonic(), clock.now_ms()

    clock.step_wall_clock_ms(-5000)

    assert (clock.monotonic(), clock.now_ms()) == (before[0], before[1] - 5000)


async def test_a_future_completed_in_time_is_awaited() -> None:
    clock = ManualClock()
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(wait_within(clock, future, 3.0))
    await asyncio.sleep(0)

    clock.advance_ms(2_999)
    future.set_result(None)

    assert await waiting


async def test_the_future_continues_after_the_timeout() -> None:
    clock = ManualClock()
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(wait_within(clock, future, 3.0))
    await asyncio.sleep(0)

    clock.advance_ms(3_000)

    assert not await waiting
    assert not future.cancelled()


async def test_a_cancelled_waiter_leaves_the_future_alone() -> None:
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(wait_within(ManualClock(), future, 3.0))
    await asyncio.sleep(0)

    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not future.cancelled()
