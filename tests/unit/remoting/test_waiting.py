from __future__ import annotations

import asyncio

import pytest

from broker_core.remoting.waiting import wait_within
from tests.support.clock import ManualClock


async def test_a_future_that_is_done_in_time_is_waited_for() -> None:
    clock = ManualClock()
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(wait_within(clock, future, 3.0))
    await asyncio.sleep(0)

    clock.advance_ms(2_999)
    future.set_result(None)

    assert await waiting


async def test_when_the_time_is_over_the_future_goes_on() -> None:
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
