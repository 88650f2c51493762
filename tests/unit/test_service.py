"""A service owns its tasks."""

from __future__ import annotations

import asyncio
import logging

from broker_core.service import Service


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
