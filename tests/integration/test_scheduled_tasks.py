"""The broker's periodic work, each at RocketMQ's interval."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.metadata.consumer_offsets import ConsumerOffsets
from broker_core.service import Service
from broker_core.store.retention import Retention
from tests.support.broker import running_broker
from tests.support.clock import ManualClock
from tests.support.time_steps import pass_time, settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from broker_core.broker import Broker
    from broker_core.stats.water_mark import WaterMark

    Owner = Callable[[Broker], Any]

MINUTE = 60


def water_mark(broker: Broker) -> WaterMark:
    return broker.requests.water_mark


TASKS: dict[str, tuple[Owner, str, int, int]] = {
    # Seconds until the first call after the start, and between the next ones.
    "consumer offsets are written": (lambda _: ConsumerOffsets, "persist_in_thread", 5, 5),
    "SQL filters are written": (lambda b: b.storage.filters, "persist_in_thread", 10, 10),
    "delay offsets are written": (lambda b: b.storage.schedule, "persist", 10, 10),
    "slow consumers are stopped": (lambda b: b.clients.slow_consumers, "scan", 180, 180),
    "the water mark is printed": (water_mark, "print_water_mark", 1, 1),
    "dispatch behind is printed": (water_mark, "print_dispatch_behind", 60, 60),
    "slaves behind are printed": (water_mark, "print_master_and_slave_diff", 60, 60),
    "fallbacks to Python are printed": (water_mark, "print_fallbacks", 60, 60),
    "the broker is registered": (lambda b: b.naming.registration, "register_now", 30, 30),
    "silent clients are looked for": (lambda b: b.clients.housekeeping, "scan", 10, 10),
    "files are cleaned": (lambda _: Retention, "clean", 60, 10),
    "the disk is looked at": (lambda _: Retention, "check_disk", 10, 10),
    "the store is checked": (lambda b: b.storage.self_check, "check", 60, 10 * MINUTE),
    "transactions are checked": (lambda b: b.clients.transaction_check, "check", 60, 60),
    "a second is sampled": (lambda b: b.storage.stats, "sample_second", 1, 1),
    "statistics are sampled": (lambda b: b.storage.stats, "sample_items", 10, 10),
}


@pytest.mark.parametrize("task", TASKS)
async def test_it_runs_at_its_interval(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, method, first_s, period_s = TASKS[task]
    clock = ManualClock()
    keys: dict[str, Any] = {"disableConsumeIfConsumerReadSlowly": "true"}
    async with running_broker(tmp_path, clock=clock, **keys) as broker:
        times = counted(owner(broker), method, monkeypatch)
        await settle()

        await pass_time(clock, first_s * 1000 - 1)
        assert len(times) == 0
        await pass_time(clock, 1)
        assert len(times) == 1
        await times.end()
        await pass_time(clock, period_s * 1000 - 1)
        assert len(times) == 1
        await pass_time(clock, 1)
        assert len(times) == 2


async def test_totals_change_with_the_local_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as broker:
        times = counted(broker.storage.stats, "roll_day", monkeypatch)
        await settle()

        await pass_time(clock, 1_000)
        assert len(times) == 0
        clock.step_wall_clock_ms(24 * 3_600_000)
        await pass_time(clock, 2_000)

        assert len(times) == 1


class Calls(Service):
    """Calls of a method; `len` is how many began."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = 0
        self._tasks_begun: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        return self._begun

    def begin(self, outcome: object) -> object:
        self._begun += 1
        if not inspect.iscoroutine(outcome):
            return outcome
        task = self.spawn(outcome, name="call")
        self._tasks_begun.append(task)
        return task

    async def end(self) -> None:
        """Wait for calls in a thread, which the clock doesn't wait for."""
        await asyncio.gather(*self._tasks_begun)
        await settle()


def counted(owner: object, method: str, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Count the calls of a method, which still happen."""
    calls = Calls()
    done = getattr(owner, method)

    def called(*arguments: Any, **keywords: Any) -> object:
        return calls.begin(done(*arguments, **keywords))

    monkeypatch.setattr(owner, method, called)
    return calls
