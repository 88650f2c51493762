from __future__ import annotations

from broker_core.stats.windows import SAMPLE_SECONDS, StatsItem


def run(item: StatsItem, now: float, samples: int, each: int) -> float:
    for _ in range(samples):
        item.value += each
        item.times += 1
        now += SAMPLE_SECONDS
        item.sample(now)
    return now


def test_a_young_counter_counts_from_its_beginning() -> None:
    item = StatsItem(0.0)
    item.value, item.times = 10, 5

    minute = item.minute(5.0)

    assert (minute.sum, minute.tps, minute.avgpt) == (10, 2.0, 2.0)


def test_the_minute_drops_older_values() -> None:
    item = StatsItem(0.0)
    now = run(item, 0.0, 10, 100)

    assert item.minute(now).sum == 600
    assert item.minute(now).tps == 10.0


def test_hour_and_day_keep_older_values() -> None:
    item = StatsItem(0.0)
    now = run(item, 0.0, 6 * 60 * 2, 1)

    assert item.minute(now).sum == 6
    assert item.hour(now).sum == 360
    assert item.day(now).sum == 720


def test_no_time_means_no_count() -> None:
    assert StatsItem(1.0).minute(1.0) == (0, 0.0, 0.0)
