from __future__ import annotations

import asyncio

import pytest

from broker_core.delivery.slow_consumers import SlowConsumers
from tests.support.clock import ManualClock


class FakeStore:
    """A log of 1000-byte messages, one queue."""

    max_commit_log_offset = 1_000_000

    def units(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        return [(queue_offset * 1_000, 1_000, 0)] if 0 <= queue_offset < 1_000 else []


class FakeGroups:
    """Groups that are disabled, and can be reconfigured."""

    def __init__(self) -> None:
        self.stopped: list[str] = []

    def disable_consume(self, group: str) -> None:
        self.stopped.append(group)

    def is_stopped(self, group: str) -> bool:
        return group in self.stopped


@pytest.fixture
def groups() -> FakeGroups:
    return FakeGroups()


@pytest.fixture
def stopped(groups: FakeGroups) -> list[str]:
    return groups.stopped


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def slow(groups: FakeGroups, clock: ManualClock) -> SlowConsumers:
    return SlowConsumers(500_000, FakeStore(), groups, clock)


def test_a_group_that_reads_too_far_behind_is_stopped(slow, stopped) -> None:
    slow.on_pulled("behind", "T", 0, 100)
    slow.on_pulled("near", "T", 0, 900)

    slow.scan()

    assert stopped == ["behind"]
    assert slow.runtime_info() == {"slowConsumerGroups": "behind"}


def test_a_reconfigured_group_is_no_longer_shown(slow, stopped) -> None:
    slow.on_pulled("behind", "T", 0, 100)
    slow.scan()

    stopped.clear()

    assert slow.runtime_info() == {"slowConsumerGroups": ""}


def test_a_group_that_catches_up_in_time_continues(slow, stopped) -> None:
    slow.on_pulled("g", "T", 0, 100)
    slow.on_pulled("g", "T", 0, 999)

    slow.scan()

    assert stopped == []
    assert slow.runtime_info() == {"slowConsumerGroups": ""}


def test_one_slow_queue_is_enough(slow, stopped) -> None:
    slow.on_pulled("g", "T", 0, 100)
    slow.on_pulled("g", "T", 1, 999)

    slow.scan()

    assert stopped == ["g"]


async def test_it_is_checked_every_three_minutes(slow, stopped, clock) -> None:
    slow.watch(watching=True)
    slow.on_pulled("g", "T", 0, 100)
    await asyncio.sleep(0)
    clock.advance_ms(179_000)
    await asyncio.sleep(0)
    assert stopped == []

    clock.advance_ms(1_000)
    for _ in range(3):
        await asyncio.sleep(0)

    assert stopped == ["g"]
    await slow.shutdown()


async def test_it_stops_looking_when_it_is_disabled(slow, stopped, clock) -> None:
    slow.watch(watching=True)
    slow.on_pulled("g", "T", 0, 100)
    await asyncio.sleep(0)

    slow.watch(watching=False)
    await asyncio.sleep(0)
    clock.advance_ms(360_000)
    await asyncio.sleep(0)

    assert stopped == []
    assert not slow.is_watching
