"""A service owns its tasks."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from broker_core.service import AGAIN_S_MAX, NO_THREAD, Service
from tests.support.clock import ManualClock


async def test_shutdown_ends_all_tasks() -> None:
    service = Service()
    task = service.spawn(_for_ever(), name="for-ever")
    await asyncio.sleep(0)

    await service.shutdown()
    await service.shutdown()

    assert task.cancelled()


async def test_a_dying_task_is_logged(caplog) -> None:
    service = Service()

    with caplog.at_level(logging.ERROR):
        service.spawn(_die(), name="doomed")
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)

    assert "task stopped name=doomed" in caplog.text
    await service.shutdown()


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _die() -> None:
    raise RuntimeError("of a bug")


async def test_shutdown_ends_tasks_in_start_order() -> None:
    service = Service()
    ended = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    for number in range(50):
        service.spawn(wait(number), name=str(number))
    await asyncio.sleep(0)
    await service.shutdown()

    assert ended == list(range(50))


@pytest.mark.parametrize("lack", [MemoryError(), RuntimeError(NO_THREAD)])
async def test_an_endless_task_restarts_after_running_out_of_memory(
    lack: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    service, clock = Service(), ManualClock()
    lives: list[int] = []

    async def work() -> None:
        lives.append(len(lives))
        if len(lives) < 3:
            raise lack
        await asyncio.Event().wait()

    task = service.spawn_forever(clock, work, name="kept")
    for _ in range(3):
        await asyncio.sleep(0)
        clock.advance_ms(1_000)
    await asyncio.sleep(0)

    assert lives == [0, 1, 2]
    assert not task.done()
    assert "restarting name=kept" in caplog.text
    await service.shutdown()


async def test_an_endless_task_restarts_after_a_bug_and_waits_longer_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service, clock = Service(), ManualClock()
    begun: list[float] = []

    async def work() -> None:
        begun.append(clock.monotonic())
        raise KeyError("of a bug")

    task = service.spawn_forever(clock, work, name="kept")
    for _ in range(200):
        await asyncio.sleep(0)
        clock.advance_ms(1_000)

    pauses = [after - before for before, after in itertools.pairwise(begun)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert caplog.text.count("task failed, restarting name=kept") == len(begun)
    assert not task.done()
    await service.shutdown()


async def test_a_pause_is_short_again_after_a_long_run(caplog: pytest.LogCaptureFixture) -> None:
    service, clock = Service(), ManualClock()
    begun: list[float] = []

    async def work() -> None:
        begun.append(clock.monotonic())
        if len(begun) == 4:
            await clock.sleep(AGAIN_S_MAX)
        raise KeyError("of a bug")

    service.spawn_forever(clock, work, name="kept")
    for _ in range(80):
        await asyncio.sleep(0)
        clock.advance_ms(1_000)
    await service.shutdown()

    assert [after - before for before, after in itertools.pairwise(begun)][:5] == [1, 2, 4, 61, 2]
