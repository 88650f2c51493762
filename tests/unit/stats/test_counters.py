from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.stats.counters import (
    BROKER_PUT_NUMS,
    GROUP_GET_NUMS,
    TOPIC_PUT_NUMS,
    BrokerStats,
)
from tests.support.clock import ManualClock
from tests.support.time_steps import pass_time

if TYPE_CHECKING:
    from broker_core.stats.windows import StatsItem


def counted(item: StatsItem) -> tuple[int, int]:
    return item.value, item.times


def test_puts_and_gets_are_counted_by_topic_and_group() -> None:
    stats = BrokerStats("c", ManualClock(), int)

    stats.put("T", 3, 300)
    stats.got("T", "g", 0, 2, 200)

    assert stats.sets[TOPIC_PUT_NUMS]["T"].value == 3
    assert stats.sets[GROUP_GET_NUMS]["T@g"].value == 2
    assert stats.sets[BROKER_PUT_NUMS]["c"].value == 3
    assert stats.got_total == 2


def test_an_empty_pull_is_not_counted() -> None:
    stats = BrokerStats("c", ManualClock(), int)

    stats.got("T", "g", 0, 0, 0)

    assert stats.got_total == 0
    assert "T@g" not in stats.sets[GROUP_GET_NUMS]


def test_at_midnight_today_becomes_yesterday() -> None:
    put = 5
    stats = BrokerStats("c", ManualClock(), lambda: put)
    stats.roll_day()
    put += 2
    stats.roll_day()

    assert stats.put_until_yesterday == 5
    assert stats.put_until_today == 7


def test_a_deleted_topic_is_no_longer_counted() -> None:
    stats = BrokerStats("c", ManualClock(), int)
    stats.put("T", 1, 1)
    stats.got("T", "g", 0, 1, 1)

    stats.forget_topic("T")

    assert "T" not in stats.sets[TOPIC_PUT_NUMS]
    assert "T@g" not in stats.sets[GROUP_GET_NUMS]
    stats.put("T", 1, 1)
    stats.got("T", "g", 0, 1, 1)
    assert stats.sets[TOPIC_PUT_NUMS]["T"].value == 1
    assert stats.sets[GROUP_GET_NUMS]["T@g"].value == 1


def test_a_deleted_group_is_no_longer_counted() -> None:
    stats = BrokerStats("c", ManualClock(), int)
    for group in ("g", "other"):
        stats.got("T", group, 3, 1, 1)
        stats.sent_back(group, "T")

    stats.forget_group("g")

    for table, keys in (
        (stats.group_get_nums, {"T@other"}),
        (stats.group_get_latency, {"3@T@other"}),
        (stats.sndbck_put_nums, {"T@other"}),
    ):
        assert set(table) == keys
    stats.got("T", "g", 3, 1, 1)
    assert stats.group_get_nums["T@g"].value == 1


def test_the_queues_of_deferred_messages_are_counted_one_by_one() -> None:
    stats = BrokerStats("c", ManualClock(), int)

    stats.deferred("SCHEDULE_TOPIC_XXXX", 2, 300)
    stats.delivered("SCHEDULE_CONSUMER", "SCHEDULE_TOPIC_XXXX", 2, "T", 310)

    sets = stats.sets
    assert counted(sets["QUEUE_PUT_NUMS"]["SCHEDULE_TOPIC_XXXX@2"]) == (1, 1)
    assert counted(sets["QUEUE_PUT_SIZE"]["SCHEDULE_TOPIC_XXXX@2"]) == (300, 1)
    key = "SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER"
    assert counted(sets["QUEUE_GET_NUMS"][key]) == (1, 1)
    assert counted(sets["QUEUE_GET_SIZE"][key]) == (310, 1)
    assert counted(sets["TOPIC_PUT_SIZE"]["T"]) == (310, 1)


def test_pulls_are_counted_by_queue_and_their_disk_waits_in_milliseconds() -> None:
    stats = BrokerStats("c", ManualClock(), int)

    stats.got("T", "g", 1, 32, 3_200)
    stats.got("T", "g", 1, 1, 100)
    stats.count_late_delivery("T", "g", 1, 3, 0.25)

    assert counted(stats.sets["GROUP_GET_LATENCY"]["1@T@g"]) == (250, 2)
    assert counted(stats.sets["GROUP_GET_SIZE"]["T@g"]) == (3_300, 2)


def test_without_detail_there_are_no_queues() -> None:
    stats = BrokerStats("c", ManualClock(), int, is_detailed=False)

    stats.deferred("SCHEDULE_TOPIC_XXXX", 2, 300)
    stats.delivered("SCHEDULE_CONSUMER", "SCHEDULE_TOPIC_XXXX", 2, "T", 310)
    stats.got("T", "g", 1, 1, 100)

    assert not any(name.startswith("QUEUE_") for name in stats.sets)
    assert set(stats.sets["GROUP_GET_LATENCY"]) == {"T@g"}


@pytest.mark.parametrize(
    ("minutes", "sums"),
    [(0, (6, 6, 6)), (5, (0, 6, 6)), (75, (0, 0, 6)), (25 * 60, (0, 0, 0))],
)
async def test_statistics_of_a_minute_an_hour_and_a_day_drop_older_values(
    minutes: int, sums: tuple[int, int, int]
) -> None:
    clock = ManualClock()
    stats = BrokerStats("c", clock, int)
    stats.put("T", 6, 60)
    clock.advance_ms(1_000)
    for _ in range(minutes * 6):
        clock.advance_ms(10_000)
        await stats.sample_items()

    item, now = stats.topic_put_nums["T"], clock.monotonic()

    assert (item.minute(now).sum, item.hour(now).sum, item.day(now).sum) == sums


async def test_items_are_sampled_every_ten_seconds() -> None:
    clock = ManualClock()
    stats = BrokerStats("c", clock, int)
    stats.start()
    await asyncio.sleep(0)
    stats.put("T", 6, 60)

    await pass_time(clock, 30_000)
    assert stats.topic_put_nums["T"].minute(clock.monotonic()) == (6, 0.2, 6.0)

    await pass_time(clock, 60_000)
    assert stats.topic_put_nums["T"].minute(clock.monotonic()).sum == 0
    await stats.shutdown()
