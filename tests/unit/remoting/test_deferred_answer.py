"""DeferredAnswer: set at once, passed to one listener, or awaited like a future."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.remoting.deferred_answer import DeferredAnswer


def test_a_listener_is_notified_of_completion() -> None:
    later, reports = DeferredAnswer(), list[object]()
    later.when_done(lambda done: reports.append(done.outcome))
    assert not reports

    later.finish(b"answer")

    assert reports == [b"answer"]


def test_a_too_late_listener_is_notified_immediately() -> None:
    later, reports = DeferredAnswer(), list[object]()
    later.finish(b"answer")

    later.when_done(lambda done: reports.append(done.outcome))

    assert reports == [b"answer"]


async def test_it_can_be_awaited_before_and_after_it_is_done() -> None:
    later = DeferredAnswer()
    asyncio.get_running_loop().call_soon(later.finish, b"answer")

    assert await later == b"answer"
    assert await later == b"answer"


async def test_an_awaited_failure_is_raised() -> None:
    later = DeferredAnswer()
    later.finish(KeyError("why"))

    with pytest.raises(KeyError, match="why"):
        await later


async def test_a_caller_that_stops_awaiting_it_affects_no_other() -> None:
    later = DeferredAnswer()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await later

    later.finish(b"answer")

    assert later.outcome == b"answer"
