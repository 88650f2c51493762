"""Counters of the broker: messages and bytes put and got, by topic, by group, in all.

Names of the sets and forms of their keys are RocketMQ's.

Source: store/stats/BrokerStatsManager.java, store/StoreStatsService.java (4.9.7).
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from broker_core.service import Service
from broker_core.stats.latency import Latency
from broker_core.stats.windows import SAMPLE_SECONDS, StatsItem

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from broker_core.clock import Clock

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"
ITEMS_MAX = 200_000
"""Keys beyond this are not counted by themselves: memory is bounded, totals stay right."""

TPS_SECONDS = (10, 60, 600)
TOTALS_KEPT = max(TPS_SECONDS) + 1


class StatsSet(dict[str, StatsItem]):
    """The counters of one kind, by key; a missing one is made on first use."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._spare = StatsItem(clock.monotonic())

    def __missing__(self, key: str) -> StatsItem:
        if len(self) >= ITEMS_MAX:
            return self._spare
        item = self[key] = StatsItem(self._clock.monotonic())
        return item


class Totals:
    """What the broker did since it started."""

    __slots__ = ("get_found_times", "get_miss_times", "got", "put", "put_failed_times", "put_size")

    def __init__(self) -> None:
        self.put = 0
        self.put_size = 0
        self.put_failed_times = 0
        self.got = 0
        self.get_found_times = 0
        self.get_miss_times = 0

    def snapshot(self) -> tuple[int, int, int, int]:
        return self.put, self.get_found_times, self.get_miss_times, self.got


class BrokerStats(Service):
    """Everything counted. Event loop only."""

    def __init__(self, cluster_name: str, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.boot_timestamp = clock.now_ms()
        self._boot_monotonic = clock.monotonic()
        self.totals = Totals()
        self.put_latency = Latency(clock.monotonic)
        self.get_latency = Latency(clock.monotonic)
        self._seconds: deque[tuple[float, tuple[int, int, int, int]]] = deque(maxlen=TOTALS_KEPT)
        self._seconds.append((self._boot_monotonic, self.totals.snapshot()))
        self.topic_put_nums = StatsSet(clock)
        self.topic_put_size = StatsSet(clock)
        self.group_get_nums = StatsSet(clock)
        self.group_get_size = StatsSet(clock)
        self.sndbck_put_nums = StatsSet(clock)
        self.broker_put_nums = StatsSet(clock)
        self.broker_get_nums = StatsSet(clock)
        self._broker_put = self.broker_put_nums[cluster_name]
        self._broker_get = self.broker_get_nums[cluster_name]
        self.sets = {
            TOPIC_PUT_NUMS: self.topic_put_nums,
            TOPIC_PUT_SIZE: self.topic_put_size,
            GROUP_GET_NUMS: self.group_get_nums,
            GROUP_GET_SIZE: self.group_get_size,
            SNDBCK_PUT_NUMS: self.sndbck_put_nums,
            BROKER_PUT_NUMS: self.broker_put_nums,
            BROKER_GET_NUMS: self.broker_get_nums,
        }
        # What the totals were at the last two local midnights, RocketMQ's "morning".
        self.put_until_today = 0
        self.put_until_yesterday = 0
        self.got_until_today = 0
        self.got_until_yesterday = 0

    def start(self) -> None:
        self.spawn(self._sample_forever(), name="stats")

    @property
    def running_seconds(self) -> float:
        return self._clock.monotonic() - self._boot_monotonic

    def put(self, topic: str, message_count: int, byte_count: int) -> None:
        """Count what was stored; called for every send."""
        totals = self.totals
        totals.put += message_count
        totals.put_size += byte_count
        item = self.topic_put_nums[topic]
        item.value += message_count
        item.times += 1
        item = self.topic_put_size[topic]
        item.value += byte_count
        item.times += 1
        self._broker_put.value += message_count
        self._broker_put.times += 1

    def got(self, topic: str, group: str, message_count: int, byte_count: int) -> None:
        """Count what a pull was answered with; nothing is a miss."""
        totals = self.totals
        if message_count == 0:
            totals.get_miss_times += 1
            return
        totals.get_found_times += 1
        totals.got += message_count
        key = f"{topic}@{group}"
        item = self.group_get_nums[key]
        item.value += message_count
        item.times += 1
        item = self.group_get_size[key]
        item.value += byte_count
        item.times += 1
        self._broker_get.value += message_count
        self._broker_get.times += 1

    def sent_back(self, group: str, topic: str) -> None:
        """Count what a consumer could not consume and gave back."""
        item = self.sndbck_put_nums[f"{topic}@{group}"]
        item.value += 1
        item.times += 1

    def delivered(self, group: str, held_in: str, topic: str, byte_count: int) -> None:
        """Count what a service of this broker, by a group's name, moved from one topic to another.

        Totals are left alone: they count what clients send and get.
        """
        key = f"{held_in}@{group}"
        for item, count in (
            (self.group_get_nums[key], 1),
            (self.group_get_size[key], byte_count),
            (self.topic_put_nums[topic], 1),
            (self.topic_put_size[topic], byte_count),
            (self._broker_put, 1),
        ):
            item.value += count
            item.times += 1

    def forget_topic(self, topic: str) -> None:
        """Drop a deleted topic's counters."""
        self.topic_put_nums.pop(topic, None)
        self.topic_put_size.pop(topic, None)
        for table in (self.group_get_nums, self.group_get_size, self.sndbck_put_nums):
            for key in [key for key in table if key.startswith(f"{topic}@")]:
                del table[key]

    def sample_second(self) -> None:
        self.put_latency.sample()
        self.get_latency.sample()
        self._seconds.append((self._clock.monotonic(), self.totals.snapshot()))

    def sample_items(self) -> None:
        now = self._clock.monotonic()
        for table in self.sets.values():
            for item in table.values():
                item.sample(now)

    def roll_day(self) -> None:
        """Make today's totals yesterday's; called at local midnight."""
        self.put_until_yesterday = self.put_until_today
        self.put_until_today = self.totals.put
        self.got_until_yesterday = self.got_until_today
        self.got_until_today = self.totals.got

    def rates(self) -> dict[str, str]:
        """Return the averages over 10, 60 and 600 seconds under RocketMQ's keys."""
        spans = []
        now = self._clock.monotonic()
        current = self.totals.snapshot()
        for span in TPS_SECONDS:
            then, before = self._seconds[max(0, len(self._seconds) - span - 1)]
            seconds = now - then
            spans.append(
                [
                    (after - earlier) / seconds if seconds > 0 else 0.0
                    for after, earlier in zip(current, before, strict=True)
                ]
            )
        transferred = _triple(got for _, _, _, got in spans)
        return {
            "putTps": _triple(put for put, _, _, _ in spans),
            "getFoundTps": _triple(found for _, found, _, _ in spans),
            "getMissTps": _triple(miss for _, _, miss, _ in spans),
            "getTotalTps": _triple(found + miss for _, found, miss, _ in spans),
            # 4.9 spells it with one r, 5.x with two; each tool reads its own.
            "getTransferedTps": transferred,
            "getTransferredTps": transferred,
        }

    async def _sample_forever(self) -> None:
        day = _local_day(self._clock.now_ms())
        ticks = 0
        while True:
            await self._clock.sleep(1)
            ticks += 1
            self.sample_second()
            if ticks % SAMPLE_SECONDS == 0:
                self.sample_items()
            today = _local_day(self._clock.now_ms())
            if today != day:
                day = today
                self.roll_day()


def _triple(rates: Iterable[float]) -> str:
    return " ".join(f"{rate:.2f}" for rate in rates)


def _local_day(now_ms: int) -> date:
    """Return the machine's day: RocketMQ's daily totals turn at local midnight."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().date()
