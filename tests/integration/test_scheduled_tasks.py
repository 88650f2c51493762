"""What the broker does by the clock, each at the original's interval."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.service import Service
from tests.support.broker import running_broker
from tests.support.clock import ManualClock
from tests.support.passing_time import pass_time, settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from broker_core.broker import Broker

    Owner = Callable[[Broker], Any]

MINUTE = 60
TASKS: dict[str, tuple[Owner, str, int, int]] = {
    # Seconds until the first time after the start, and between the next ones.
    "consumer offsets are written": (lambda b: b.offsets, "persist_in_thread", 5, 5),
    "SQL filters are written": (lambda b: b.filters, "persist", 10, 10),
    "delay offsets are written": (lambda b: b.schedule, "persist", 10, 10),
    "slow consumers are stopped": (lambda b: b.slow_consumers, "scan", 180, 180),
    "the water mark is printed": (lambda b: b.water_mark, "print_water_mark", 1, 1),
    "dispatch behind is printed": (lambda b: b.water_mark, "print_dispatch_behind", 60, 60),
    "slaves behind are printed": (lambda b: b.water_mark, "print_master_and_slave_diff", 60, 60),
    "the broker is registered": (lambda b: b.registration, "register_now", 30, 30),
    "silent clients are looked for": (lambda b: b.housekeeping, "scan", 10, 10),
    "files are cleaned": (lambda b: b.store._retention, "clean", 60, 10),
    "the disk is looked at": (lambda b: b.store._retention, "check_disk", 10, 10),
    "the store is checked": (lambda b: b.self_check, "check", 60, 10 * MINUTE),
    "transactions are checked": (lambda b: b.transaction_check, "check", 60, 60),
    "a second is sampled": (lambda b: b.stats, "sample_second", 1, 1),
    "statistics are sampled": (lambda b: b.stats, "sample_items", 10, 10),
}


@pytest.mark.parametrize("task", TASKS)
async def test_it_is_done_at_its_interval(
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


async def test_totals_turn_when_the_local_day_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as broker:
        times = counted(broker.stats, "roll_day", monkeypatch)
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

    def __len__(self) -> int:
        return self._begun

    def begin(self, outcome: object) -> object:
        self._begun += 1
        return self.spawn(outcome, name="call") if inspect.iscoroutine(outcome) else outcome

    async def end(self) -> None:
        """Let those that work in a thread end: the clock does not wait for them."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await settle()


def counted(owner: object, method: str, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Have calls of a method counted, and done."""
    calls = Calls()
    done = getattr(owner, method)
    monkeypatch.setattr(owner, method, lambda *arguments: calls.begin(done(*arguments)))
    return calls
