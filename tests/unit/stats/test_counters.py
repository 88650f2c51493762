from __future__ import annotations

from broker_core.stats.counters import GROUP_GET_NUMS, TOPIC_PUT_NUMS, BrokerStats
from tests.support.clock import ManualClock


def test_puts_and_gets_are_counted_by_topic_and_group() -> None:
    stats = BrokerStats("c", ManualClock())

    stats.put("T", 3, 300)
    stats.got("T", "g", 2, 200)

    assert stats.sets[TOPIC_PUT_NUMS]["T"].value == 3
    assert stats.sets[GROUP_GET_NUMS]["T@g"].value == 2
    assert (stats.totals.put, stats.totals.put_size, stats.totals.got) == (3, 300, 2)


def test_an_empty_pull_is_a_miss_and_nothing_else() -> None:
    stats = BrokerStats("c", ManualClock())

    stats.got("T", "g", 0, 0)

    assert stats.totals.get_miss_times == 1
    assert "T@g" not in stats.sets[GROUP_GET_NUMS]


def test_rates_are_averages_over_ten_sixty_and_six_hundred_seconds() -> None:
    clock = ManualClock()
    stats = BrokerStats("c", clock)
    for second in range(1, 121):
        stats.put("T", 10 if second > 110 else 0, 0)
        clock.advance_ms(1000)
        stats.sample_second()

    ten, sixty, all_of_it = map(float, stats.rates()["putTps"].split(" "))

    assert (ten, sixty) == (10.0, 1.67)
    assert all_of_it == 0.83


def test_at_midnight_today_becomes_yesterday() -> None:
    stats = BrokerStats("c", ManualClock())
    stats.put("T", 5, 5)
    stats.roll_day()
    stats.put("T", 2, 2)
    stats.roll_day()

    assert stats.put_until_yesterday == 5
    assert stats.put_until_today == 7


def test_a_deleted_topic_is_not_counted_on() -> None:
    stats = BrokerStats("c", ManualClock())
    stats.put("T", 1, 1)
    stats.got("T", "g", 1, 1)

    stats.forget_topic("T")

    assert "T" not in stats.sets[TOPIC_PUT_NUMS]
    assert "T@g" not in stats.sets[GROUP_GET_NUMS]
