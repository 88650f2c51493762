"""DeferredAnswer: set at once, passed to one listener, or awaited like a future."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.remoting.deferred_answer import DeferredAnswer


def test_a_listener_is_told_when_it_is_done() -> None:
    later, told = DeferredAnswer(), list[object]()
    later.when_done(lambda done: told.append(done.outcome))
    assert not told

    later.finish(b"answer")

    assert told == [b"answer"]


def test_who_listens_too_late_is_told_at_once() -> None:
    later, told = DeferredAnswer(), list[object]()
    later.finish(b"answer")

    later.when_done(lambda done: told.append(done.outcome))

    assert told == [b"answer"]


async def test_it_can_be_awaited_before_and_after_it_is_done() -> None:
    later = DeferredAnswer()
    asyncio.get_running_loop().call_soon(later.finish, b"answer")

    assert await later == b"answer"
    assert await later == b"answer"


async def test_a_failure_is_raised_where_it_is_awaited() -> None:
    later = DeferredAnswer()
    later.finish(KeyError("why"))

    with pytest.raises(KeyError, match="why"):
        await later


async def test_who_stops_to_await_it_harms_nobody() -> None:
    later = DeferredAnswer()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await later

    later.finish(b"answer")

    assert later.outcome == b"answer"
