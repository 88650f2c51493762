"""The number of series with leases is limited like that of other metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from broker_core.metrics import pop
from broker_core.metrics.exposition import TRUNCATED, Family, lines_of
from broker_core.metrics.pop import flights_of, pop_metrics
from broker_core.pop.checkpoint import QueueKey
from broker_core.pop.leases import InFlight
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from broker_core.pop.engine import PopEngine

SERIES_MAX = 3
LIMITED = (
    "rocketmq_consumer_inflight_messages",
    "trebuchet_leased_messages",
    "trebuchet_oldest_lease_seconds",
)


class Engine:
    """An engine in which each of some groups leases two messages in each of two queues."""

    class leases:  # noqa: N801
        byte_count = 0

    def __init__(self, groups: int) -> None:
        self._groups = groups
        self.is_read_to_the_end = False

    def in_flight(self) -> Iterator[tuple[QueueKey, InFlight]]:
        for group in range(self._groups):
            for queue_id in range(2):
                yield QueueKey(f"g{group}", "T", queue_id), InFlight(2, 0)
        self.is_read_to_the_end = True


class Counters:
    revived_times = dead_times = 0

    def __len__(self) -> int:
        return 0


async def page(groups: int) -> list[Family]:
    engine = cast("PopEngine", Engine(groups))
    flights = await flights_of(engine, SERIES_MAX, ManualClock())
    other: Any = Counters()
    return list(pop_metrics(engine, other, other, flights, 1_000))


async def test_series_above_the_limit_are_left_out_and_reported() -> None:
    text = "".join(lines_of(await page(4), {}, SERIES_MAX))

    for name in LIMITED:
        assert text.count(f"\n{name}{{") == SERIES_MAX
        assert f'{TRUNCATED}{{metric="{name}"}} 1' in text


async def test_no_more_series_are_built_than_the_page_shows_and_one() -> None:
    families = {each.name: list(each.series) for each in await page(1_000)}

    assert all(len(families[name]) == SERIES_MAX + 1 for name in LIMITED)


async def test_a_shown_number_counts_all_queues() -> None:
    families = {each.name: list(each.series) for each in await page(SERIES_MAX)}

    assert [value for _, value in families[LIMITED[0]]] == [4] * SERIES_MAX


async def test_many_queues_leave_the_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pauses = ManualClock(), 0

    async def sleep(_seconds: float) -> None:
        nonlocal pauses
        pauses += 1

    monkeypatch.setattr(clock, "sleep", sleep)
    engine = Engine(3 * pop.QUEUES_AT_ONCE)
    await flights_of(cast("PopEngine", engine), SERIES_MAX, clock)

    assert pauses == 6
    assert engine.is_read_to_the_end
