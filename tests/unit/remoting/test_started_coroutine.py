from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.remoting.started_coroutine import resumed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine


async def begun(coroutine: Coroutine[Any, Any, str]) -> str:
    """Run a coroutine's first step here, and the rest in a task."""
    return await asyncio.create_task(_awaited(resumed(coroutine, coroutine.send(None))))


async def _awaited(awaitable: Awaitable[str]) -> str:
    return await awaitable


async def test_a_coroutine_that_waits_continues_in_a_task() -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()

    async def work() -> str:
        found = await first
        await asyncio.sleep(0)
        return f"{found}, {await second}"

    loop.call_soon(first.set_result, "one")
    loop.call_later(0.001, second.set_result, "two")

    assert await begun(work()) == "one, two"


async def test_awaited_work_may_be_finished_or_fail() -> None:
    done, failed = (asyncio.get_running_loop().create_future() for _ in range(2))

    async def work() -> str:
        try:
            await failed
        except ValueError as error:
            return f"{error}, {await done}"
        return "never"

    coroutine = work()
    waits_for = coroutine.send(None)
    failed.set_exception(ValueError("no"))
    done.set_result("yes")

    assert await _awaited(resumed(coroutine, waits_for)) == "no, yes"


async def test_cancelling_the_task_cancels_it() -> None:
    never = asyncio.get_running_loop().create_future()
    ended = []

    async def work() -> str:
        try:
            await never
        finally:
            ended.append(True)
        return "never"

    task = asyncio.create_task(begun(work()))
    await asyncio.sleep(0.001)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
    assert never.cancelled()
