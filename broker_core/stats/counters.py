"""The broker's counters: messages and bytes stored and delivered, by topic, group and day.

The names of the sets, the forms of their keys and their meanings are RocketMQ's. Two kinds of its
sets are always empty and left out here: reads from disk (GROUP_GET_FROM_DISK_NUMS,
BROKER_GET_FROM_DISK_NUMS, ..._SIZE) and commercial hooks (COMMERCIAL_...).

The store counts its own puts and gets.

Source: store/stats/BrokerStatsManager.java, store/stats/BrokerStats.java (4.9.7).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from broker_core.service import Service
from broker_core.stats.latency import Latency
from broker_core.stats.windows import SAMPLE_SECONDS, StatsItem

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from broker_core.clock import Clock

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
QUEUE_GET_NUMS = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"
COLD_READERS_MAX = 5_000
ITEMS_MAX = 200_000
"""Additional keys get no counters of their own: memory stays bounded and totals stay right."""
SAMPLED_AT_ONCE = 2_000
"""Windows sampled before the loop does other work: a fraction of a millisecond."""


class StatsSet(dict[str, StatsItem]):
    """The counters of one kind, by key; created on first use."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._spare = StatsItem(clock.monotonic())

    def __missing__(self, key: str) -> StatsItem:
        if len(self) >= ITEMS_MAX:
            return self._spare
        item = self[key] = StatsItem(self._clock.monotonic())
        return item

    def drop(self, is_dropped: Callable[[str], bool]) -> None:
        for key in [key for key in self if is_dropped(key)]:
            del self[key]


class Flow(NamedTuple):
    """The counters that one message increments together, found with one lookup."""

    nums: StatsItem
    size: StatsItem
    latency: StatsItem | None = None


class BrokerStats(Service):
    """All counters. Event loop only.

    Attributes:
        puts, gets: counters incremented together by a put to a topic, and by a pull of a topic,
            group and queue. `gets` is replaced by a new dict when entries are removed.
        broker_put, broker_get: the same for the whole broker. The native turn also increments them.
    """

    # The native turn reads it for each pull.
    __slots__ = ("gets",)

    def __init__(
        self,
        cluster_name: str,
        clock: Clock,
        put_total: Callable[[], int],
        *,
        is_detailed: bool = True,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._put_total = put_total
        self._is_detailed = is_detailed
        self.put_latency = Latency(clock.monotonic)
        self.get_latency = Latency(clock.monotonic)
        self.flush_latency = Latency(clock.monotonic)
        self.topic_put_nums = StatsSet(clock)
        self.topic_put_size = StatsSet(clock)
        self.group_get_nums = StatsSet(clock)
        self.group_get_size = StatsSet(clock)
        self.group_get_latency = StatsSet(clock)
        self.queue_put_nums = StatsSet(clock)
        self.queue_put_size = StatsSet(clock)
        self.queue_get_nums = StatsSet(clock)
        self.queue_get_size = StatsSet(clock)
        self.sndbck_put_nums = StatsSet(clock)
        self.broker_put_nums = StatsSet(clock)
        self.broker_get_nums = StatsSet(clock)
        self.broker_put = self.broker_put_nums[cluster_name]
        self.broker_get = self.broker_get_nums[cluster_name]
        self.got_cold: dict[tuple[str, str], int] = {}
        """Messages read from the disk, by group and topic."""
        self.puts: dict[str, Flow] = {}
        self.gets: dict[tuple[str, str, int], Flow] = {}
        self.sets = {
            TOPIC_PUT_NUMS: self.topic_put_nums,
            TOPIC_PUT_SIZE: self.topic_put_size,
            GROUP_GET_NUMS: self.group_get_nums,
            GROUP_GET_SIZE: self.group_get_size,
            GROUP_GET_LATENCY: self.group_get_latency,
            SNDBCK_PUT_NUMS: self.sndbck_put_nums,
            BROKER_PUT_NUMS: self.broker_put_nums,
            BROKER_GET_NUMS: self.broker_get_nums,
        }
        if is_detailed:
            self.sets |= {
                QUEUE_PUT_NUMS: self.queue_put_nums,
                QUEUE_PUT_SIZE: self.queue_put_size,
                QUEUE_GET_NUMS: self.queue_get_nums,
                QUEUE_GET_SIZE: self.queue_get_size,
            }
        # Totals at the last two local midnights, which RocketMQ calls "morning".
        self.put_until_today = 0
        self.put_until_yesterday = 0
        self.got_until_today = 0
        self.got_until_yesterday = 0

    def start(self) -> None:
        self.spawn_forever(self._clock, self._sample_forever, name="stats")

    @property
    def put_total(self) -> int:
        """Messages put since the start, including the broker's own copies."""
        return self._put_total()

    @property
    def got_total(self) -> int:
        """Messages delivered since the start."""
        return self.broker_get.value

    def put(self, topic: str, message_count: int, byte_count: int) -> None:
        """Count the messages stored by a send; called for every send."""
        self.put_each(topic, 1, message_count, byte_count)

    def put_each(self, topic: str, calls: int, message_count: int, byte_count: int) -> None:
        """Count the messages stored by several sends."""
        try:
            nums, size, _ = self.puts[topic]
        except KeyError:
            nums, size, _ = self._put_flow(topic)
        nums.value += message_count
        nums.times += calls
        size.value += byte_count
        size.times += calls
        # For the whole broker RocketMQ counts messages, not calls.
        self.broker_put.value += message_count

    def got(
        self, topic: str, group: str, queue_id: int, message_count: int, byte_count: int
    ) -> None:
        """Count the messages in the answer to a pull.

        A pull from memory takes less than a millisecond, so this adds a call to
        GROUP_GET_LATENCY; `count_late_delivery` adds the time.
        """
        if message_count == 0:
            return
        try:
            nums, size, latency = self.gets[topic, group, queue_id]
        except KeyError:
            nums, size, latency = self._get_flow(topic, group, queue_id)
        nums.value += message_count
        nums.times += 1
        size.value += byte_count
        size.times += 1
        if latency is not None:
            latency.times += 1
        self.broker_get.value += message_count

    def count_late_delivery(
        self, topic: str, group: str, queue_id: int, message_count: int, seconds: float
    ) -> None:
        """Count a pull that waited for the disk, in addition to `got`."""
        reader = group, topic
        if reader in self.got_cold or len(self.got_cold) < COLD_READERS_MAX:
            self.got_cold[reader] = self.got_cold.get(reader, 0) + message_count
        self.group_get_latency[self._latency_key(topic, group, queue_id)].value += int(
            seconds * 1000
        )

    def sent_back(self, group: str, topic: str) -> None:
        """Count a message that a consumer gave back, by its original topic."""
        self.sndbck_put_nums[f"{topic}@{group}"].add(1)

    def deferred(self, deferred_in: str, queue_id: int, byte_count: int) -> None:
        """Count a message put into a delay queue."""
        if self._is_detailed:
            key = f"{deferred_in}@{queue_id}"
            self.queue_put_nums[key].add(1)
            self.queue_put_size[key].add(byte_count)

    def delivered(
        self, group: str, deferred_in: str, deferred_queue_id: int, topic: str, byte_count: int
    ) -> None:
        """Count a message that the broker moved to another topic, under a group's name."""
        if self._is_detailed:
            key = f"{deferred_in}@{deferred_queue_id}@{group}"
            self.queue_get_nums[key].add(1)
            self.queue_get_size[key].add(byte_count)
        key = f"{deferred_in}@{group}"
        self.group_get_nums[key].add(1)
        self.group_get_size[key].add(byte_count)
        self.topic_put_nums[topic].add(1)
        self.topic_put_size[topic].add(byte_count)
        self.broker_put.value += 1

    def put_again(self, topic: str, byte_count: int) -> None:
        """Count a message that is put again, by topic only."""
        self.topic_put_nums[topic].add(1)
        self.topic_put_size[topic].add(byte_count)

    def forget_topic(self, topic: str) -> None:
        """Drop a deleted topic's counters."""
        self.puts.pop(topic, None)
        self.gets = {place: flow for place, flow in self.gets.items() if place[0] != topic}
        self.topic_put_nums.pop(topic, None)
        self.topic_put_size.pop(topic, None)
        for reader in [reader for reader in self.got_cold if reader[1] == topic]:
            del self.got_cold[reader]
        for table in self._by_topic_and_group():
            table.drop(lambda key: key.startswith(f"{topic}@"))
        for table in (self.queue_put_nums, self.queue_put_size):
            table.drop(lambda key: key.startswith(f"{topic}@"))
        self.group_get_latency.drop(lambda key: f"@{topic}@" in key or key.startswith(f"{topic}@"))

    def forget_group(self, group: str) -> None:
        """Drop a deleted group's counters."""
        self.gets = {place: flow for place, flow in self.gets.items() if place[1] != group}
        for reader in [reader for reader in self.got_cold if reader[0] == group]:
            del self.got_cold[reader]
        for table in (*self._by_topic_and_group(), self.group_get_latency):
            table.drop(lambda key: key.endswith(f"@{group}"))

    def _by_topic_and_group(self) -> tuple[StatsSet, ...]:
        return (
            self.group_get_nums,
            self.group_get_size,
            self.queue_get_nums,
            self.queue_get_size,
            self.sndbck_put_nums,
        )

    def _put_flow(self, topic: str) -> Flow:
        flow = Flow(self.topic_put_nums[topic], self.topic_put_size[topic])
        if len(self.puts) < ITEMS_MAX:
            self.puts[topic] = flow
        return flow

    def _get_flow(self, topic: str, group: str, queue_id: int) -> Flow:
        key = f"{topic}@{group}"
        flow = Flow(
            self.group_get_nums[key],
            self.group_get_size[key],
            self.group_get_latency[self._latency_key(topic, group, queue_id)],
        )
        if len(self.gets) < ITEMS_MAX:
            self.gets[topic, group, queue_id] = flow
        return flow

    def _latency_key(self, topic: str, group: str, queue_id: int) -> str:
        return f"{queue_id}@{topic}@{group}" if self._is_detailed else f"{topic}@{group}"

    def sample_second(self) -> None:
        self.put_latency.sample()
        self.get_latency.sample()

    async def sample_items(self) -> None:
        """Sample all windows in steps, because there may be very many."""
        now = self._clock.monotonic()
        items = [item for table in self.sets.values() for item in table.values()]
        for begin in range(0, len(items), SAMPLED_AT_ONCE):
            for item in items[begin : begin + SAMPLED_AT_ONCE]:
                item.sample(now)
            await self._clock.sleep(0)

    def roll_day(self) -> None:
        """Turn today's totals into yesterday's; called at local midnight."""
        self.put_until_yesterday = self.put_until_today
        self.put_until_today = self.put_total
        self.got_until_yesterday = self.got_until_today
        self.got_until_today = self.got_total

    async def _sample_forever(self) -> None:
        day = _local_day(self._clock.now_ms())
        ticks = 0
        while True:
            await self._clock.sleep(1)
            ticks += 1
            self.sample_second()
            if ticks % SAMPLE_SECONDS == 0:
                await self.sample_items()
            today = _local_day(self._clock.now_ms())
            if today != day:
                day = today
                self.roll_day()


def _local_day(now_ms: int) -> date:
    """Return the local day: RocketMQ's daily totals start at local midnight."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().date()
