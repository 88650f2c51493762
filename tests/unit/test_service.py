"""A service owns its tasks."""

from __future__ import annotations

import asyncio
import logging

import pytest

from broker_core.service import NO_THREAD, Service
from tests.support.clock import ManualClock


async def test_shutdown_ends_all_tasks() -> None:
    service = Service()
    task = service.spawn(_for_ever(), name="for-ever")
    await asyncio.sleep(0)

    await service.shutdown()
    await service.shutdown()

    assert task.cancelled()


async def test_a_task_that_dies_is_logged(caplog) -> None:
    service = Service()

    with caplog.at_level(logging.ERROR):
        service.spawn(_die(), name="doomed")
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)

    assert "task died: name=doomed" in caplog.text
    await service.shutdown()


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _die() -> None:
    raise RuntimeError("of a bug")


async def test_shutdown_ends_tasks_in_the_order_of_their_start() -> None:
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
async def test_what_goes_on_for_ever_begins_anew_after_a_lack_of_memory(
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
    assert "beginning anew: name=kept" in caplog.text
    await service.shutdown()


async def test_what_goes_on_for_ever_ends_with_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    service = Service()

    task = service.spawn_forever(ManualClock(), _die, name="doomed")
    await asyncio.wait([task])
    await asyncio.sleep(0)

    assert "task died: name=doomed" in caplog.text
    await service.shutdown()
