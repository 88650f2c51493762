from __future__ import annotations

import asyncio

import pytest

from broker_core.stats.latency import WINDOW_SAMPLES, Latency
from tests.support.clock import ManualClock


def test_the_distribution_counts_in_rocketmqs_bounds() -> None:
    latency = Latency(ManualClock().monotonic)
    for took_ms in (0.0, 0.3, 9.0, 30.0, 30.0, 20_000.0):
        latency.record(took_ms / 1000)

    counts = dict(part.rsplit(":", 1) for part in latency.distribution().split())

    assert counts["[<=0ms]"] == "1"
    assert counts["[0~10ms]"] == "2"
    assert counts["[10~50ms]"] == "2"
    assert counts["[10s~]"] == "1"
    assert latency.max_ms == 20_000


def test_a_quantile_is_within_its_bounds() -> None:
    latency = Latency(ManualClock().monotonic)
    for _ in range(99):
        latency.record(0.0004)
    latency.record(0.030)

    assert 0.2 <= latency.quantile_ms(0.5) <= 0.5
    assert latency.quantile_ms(0.999) == pytest.approx(30.0, abs=20.0)
    assert latency.quantile_ms(1.0) <= latency.max_ms


def test_latencies_older_than_the_window_are_dropped() -> None:
    latency = Latency(ManualClock().monotonic)
    latency.record(0.5)
    for _ in range(WINDOW_SAMPLES):
        latency.sample()

    assert latency.quantile_ms(0.99) == 0.0
    assert latency.max_ms == 500.0


async def test_a_waiting_answer_counts_its_wait() -> None:
    clock = ManualClock()
    latency = Latency(clock.monotonic)
    release = asyncio.get_running_loop().create_future()

    async def wait() -> str:
        await release
        return "answer"

    serve = latency.timed(lambda request, connection: wait(), (str,))
    answer = serve(None, None)
    task = asyncio.get_running_loop().create_task(answer)
    await asyncio.sleep(0)
    clock.advance_ms(40)
    release.set_result(None)

    assert await task == "answer"
    assert latency.max_ms == pytest.approx(40)


def test_a_held_pull_is_not_counted() -> None:
    clock = ManualClock()
    latency = Latency(clock.monotonic)

    assert latency.timed(lambda request, connection: None, (str,))(None, None) is None
    assert latency.quantile_ms(0.99) == 0.0
