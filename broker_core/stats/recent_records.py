"""Statistics about senders, sampled from the newest records of each queue.

Nothing is counted on the send path. A request for a sample reads records of the queues that grew
since the previous sample: at most RECORDS_MAX records, the newest of each queue, and only records
in
memory. Each record represents as many messages as its queue received per record read, so shares are
right although most messages are never read. The largest message is found in the ConsumeQueues,
whose units contain sizes, for topics that received enough bytes for a large one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.formats.cq_unit import FILLER_SIZE, UNITS
from broker_core.formats.record import born_host_of, reconsume_times_of
from broker_core.message import names, properties
from broker_core.message.ids import host_text
from broker_core.message.sys_flag import TRANSACTION_ROLLBACK_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker_core.clock import Clock
    from broker_core.formats.record import RecordHead
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.consume_queue import ConsumeQueue
    from broker_core.store.message_store import MessageStore

RECORDS_MAX = 1_000
"""Records read per sample: some milliseconds of a core."""
RECORDS_A_QUEUE_MAX = 50
RECORDS_AT_ONCE, TOPICS_AT_ONCE = 50, 250
"""Steps between which the loop may do other work: half a millisecond."""
UNITS_MAX = 500_000
"""Per topic and sample: two milliseconds. Earlier units are skipped."""
SPAN_S = 300.0
"""Samples are kept for this long, and up to twice as long."""
LARGE_SHARE = 0.5
"""Share of maxMessageSize from which a message is listed."""
LARGE_KEPT_S = 60.0
NAMED_MAX = 50
"""Rows of each kind in an answer, most significant first."""
HEADS_MAX = 100
HEAD_AGE_MS = 180_000
"""A message that has waited for less time isn't suspicious yet."""
KEYED_MIN = 100
KEY_SHARE_MIN = 0.2
KEYS_MAX, HOSTS_MAX, GROUPS_MAX = 50_000, 5_000, 5_000
KEY_CHARS_MAX = 128
CLOCK_MIN_MS = 1_000
RECORDS_A_HOST_MIN = 3
SENT_BEFORE = (
    names.PROPERTY_REAL_TOPIC,
    names.PROPERTY_RETRY_TOPIC,
    names.PROPERTY_ORIGIN_MESSAGE_ID,
)
"""Properties of deferred or returned messages, whose born time says nothing about a clock."""


class LargeMessage(NamedTuple):
    """A message near maxMessageSize."""

    topic: str
    body_bytes: int
    queue_id: int
    queue_offset: int


class CommonKey(NamedTuple):
    """The most common key of a topic, and how many of a thousand keyed messages have it."""

    topic: str
    per_mille: int
    key: str


class ClientClock(NamedTuple):
    """How far the clock of a host's clients is ahead of the broker's; negative if behind."""

    host: str
    ahead_ms: int
    topic: str


class RedeliveredMessage(NamedTuple):
    """A group's most redelivered message; the location is the newest copy's."""

    group: str
    times: int
    topic: str
    queue_id: int
    queue_offset: int
    origin_message_id: str


class WaitingMessage(NamedTuple):
    """A group's first unread message in a queue, if it has waited long."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    body_bytes: int
    host: str
    times: int
    """Number of redeliveries."""


class _Growth(NamedTuple):
    """A queue that has grown, up to `end`."""

    topic: str
    queue_id: int
    queue: ConsumeQueue
    begin: int
    end: int


@dataclass(slots=True)
class _HostClock:
    nearest_ms: int
    topic: str
    records: int = 1


@dataclass(slots=True)
class _Keys:
    messages: dict[str, float] = field(default_factory=dict)
    """By key."""
    records: int = 0
    total: float = 0.0


@dataclass(slots=True)
class _Span:
    """Findings of one SPAN_S."""

    hosts: dict[str, _HostClock] = field(default_factory=dict)
    topics: dict[str, _Keys] = field(default_factory=dict)
    keys: int = 0
    redelivered: dict[str, RedeliveredMessage] = field(default_factory=dict)


class RecentRecords:
    """Event loop only, with one `look` at a time. `size_max` returns maxMessageSize."""

    def __init__(
        self, store: MessageStore, stats: BrokerStats, size_max: Callable[[], int], clock: Clock
    ) -> None:
        self._store = store
        self._stats = stats
        self._size_max = size_max
        self._clock = clock
        self._ends: dict[str, dict[int, int]] | None = None
        self._sizes: dict[str, int] = {}
        self._large: dict[str, tuple[float, LargeMessage]] = {}
        self._began = clock.monotonic()
        self._now, self._before = _Span(), _Span()
        self._turn = 0

    async def look(self) -> None:
        """Sample the messages since the last call; the first call only sets the starting point."""
        now = self._clock.monotonic()
        if now - self._began >= SPAN_S:
            self._before = self._now if now - self._began < 2 * SPAN_S else _Span()
            self._now, self._began = _Span(), now
        self._large = {
            topic: seen for topic, seen in self._large.items() if now - seen[0] < LARGE_KEPT_S
        }
        grown = await self._grown()
        for growths in self._with_large(grown):
            self._find_largest(growths, now)
            await self._clock.sleep(0)
        await self._read_newest(grown)

    @property
    def large(self) -> list[LargeMessage]:
        """The largest message of each topic within a minute, if it is a large one."""
        found = [each for _, each in self._large.values()]
        return sorted(found, key=lambda each: -each.body_bytes)[:NAMED_MAX]

    @property
    def keys(self) -> list[CommonKey]:
        """The most common key of each topic where many messages share it."""
        found = []
        for topic in {**self._before.topics, **self._now.topics}:
            seen = [
                span.topics[topic] for span in (self._before, self._now) if topic in span.topics
            ]
            counts: dict[str, float] = {}
            for each in seen:
                for key, count in each.messages.items():
                    counts[key] = counts.get(key, 0.0) + count
            if sum(each.records for each in seen) < KEYED_MIN or not counts:
                continue
            key = max(counts, key=counts.__getitem__)
            share = counts[key] / sum(each.total for each in seen)
            if share >= KEY_SHARE_MIN:
                found.append(CommonKey(topic, round(share * 1000), key))
        return sorted(found, key=lambda each: -each.per_mille)[:NAMED_MAX]

    @property
    def clocks(self) -> list[ClientClock]:
        """Hosts whose clocks are wrong even by their most favourable message."""
        found = []
        for host in {**self._before.hosts, **self._now.hosts}:
            seen = [span.hosts[host] for span in (self._before, self._now) if host in span.hosts]
            nearest = min(seen, key=lambda each: abs(each.nearest_ms))
            is_sure = sum(each.records for each in seen) >= RECORDS_A_HOST_MIN
            if is_sure and abs(nearest.nearest_ms) >= CLOCK_MIN_MS:
                found.append(ClientClock(host, nearest.nearest_ms, nearest.topic))
        return sorted(found, key=lambda each: -abs(each.ahead_ms))[:NAMED_MAX]

    @property
    def redelivered(self) -> list[RedeliveredMessage]:
        """The most redelivered message of each group."""
        found = dict(self._before.redelivered)
        for group, each in self._now.redelivered.items():
            if group not in found or each.times >= found[group].times:
                found[group] = each
        return sorted(found.values(), key=lambda each: -each.times)[:NAMED_MAX]

    def heads(
        self, rows: Iterable[tuple[str, str, list[int]]], now_ms: int
    ) -> list[WaitingMessage]:
        """Return the unread message of the longest waiting queue of each group and topic.

        A row has queue_id, consumer_offset, max_offset, unread_since_ms of each queue.
        """
        oldest = []
        for group, topic, numbers in rows:
            waiting = [
                (since, queue_id, offset)
                for queue_id, offset, since in zip(
                    numbers[::4], numbers[1::4], numbers[3::4], strict=True
                )
                if 0 <= since <= now_ms - HEAD_AGE_MS
            ]
            if waiting and not names.is_system_topic(topic):
                oldest.append((*min(waiting), group, topic))
        found = []
        for _, queue_id, offset, group, topic in sorted(oldest)[:HEADS_MAX]:
            queue = self._store.files.queues.find(topic, queue_id)
            place = None if queue is None else queue.unit(max(offset, queue.min_offset))
            seen = None if place is None else self._store.glance(place[0])
            if seen is not None:
                record, head = seen
                table = properties.decode(
                    str(record[head.properties_from : head.properties_to], "utf-8", "replace")
                )
                found.append(
                    WaitingMessage(
                        group,
                        topic,
                        queue_id,
                        head.queue_offset,
                        table.get(names.PROPERTY_UNIQ_KEY, "")[:KEY_CHARS_MAX],
                        head.body_to - head.body_from,
                        host_text(born_host_of(record, head)).rpartition(":")[0],
                        reconsume_times_of(record, head),
                    )
                )
        return found

    async def _grown(self) -> list[_Growth]:
        before, ends = self._ends, {}
        grown: list[_Growth] = []
        table = self._store.files.queues.table
        for index, (topic, queues) in enumerate(list(table.items())):
            if index % TOPICS_AT_ONCE == TOPICS_AT_ONCE - 1:
                await self._clock.sleep(0)
            if names.is_dlq_topic(topic) or names.is_system_topic(topic):
                continue
            was = {} if before is None else before.get(topic, {})
            ends[topic] = now = {number: queue.max_offset for number, queue in queues.items()}
            if before is None or now == was:
                continue
            for number, end in now.items():
                begin = max(was.get(number, 0), queues[number].min_offset)
                if begin < end:
                    grown.append(_Growth(topic, number, queues[number], begin, end))
        self._ends = ends
        self._sizes = {topic: size for topic, size in self._sizes.items() if topic in ends}
        return grown

    def _with_large(self, grown: list[_Growth]) -> list[list[_Growth]]:
        """Return the queues of each topic that received enough bytes for a large message."""
        least = self._size_max() * LARGE_SHARE
        by_topic: dict[str, list[_Growth]] = {}
        for each in grown:
            by_topic.setdefault(each.topic, []).append(each)
        found = []
        for topic, growths in by_topic.items():
            counted = self._stats.topic_put_size.get(topic)
            size = 0 if counted is None else counted.value
            before = self._sizes.get(topic, 0)
            # The count started over if the topic was deleted in between.
            if size - (before if size >= before else 0) >= least:
                found.append(growths)
            self._sizes[topic] = size
        return found

    def _find_largest(self, growths: list[_Growth], now: float) -> None:
        room = UNITS_MAX
        best = (0, -1, growths[0], 0)
        for growth in growths:
            offset = max(growth.begin, growth.end - room)
            while offset < growth.end:
                units = np.frombuffer(growth.queue.units(offset, growth.end - offset), UNITS)
                if not len(units):
                    break
                sizes = np.where(units["size"] == FILLER_SIZE, 0, units["size"])
                place = int(sizes.argmax())
                if sizes[place] > best[0]:
                    where = int(units["offset"][place])
                    best = (int(sizes[place]), where, growth, offset + place)
                offset += len(units)
                room -= len(units)
        _, where, growth, queue_offset = best
        seen = self._store.glance(where) if where >= 0 else None
        if seen is None:
            return
        body_bytes = seen[1].body_to - seen[1].body_from
        known = self._large.get(growth.topic)
        if body_bytes >= self._size_max() * LARGE_SHARE and (
            known is None or body_bytes >= known[1].body_bytes
        ):
            large = LargeMessage(growth.topic, body_bytes, growth.queue_id, queue_offset)
            self._large[growth.topic] = now, large

    async def _read_newest(self, grown: list[_Growth]) -> None:
        if len(grown) > RECORDS_MAX:
            # Start with other queues next time.
            self._turn = (self._turn + RECORDS_MAX) % len(grown)
            grown = (grown + grown)[self._turn : self._turn + RECORDS_MAX]
        a_queue = min(RECORDS_A_QUEUE_MAX, max(1, RECORDS_MAX // max(1, len(grown))))
        done = 0
        for growth in grown:
            first = max(growth.begin, growth.end - a_queue)
            units = np.frombuffer(growth.queue.units(first, growth.end - first), UNITS)
            weight = (growth.end - growth.begin) / max(1, len(units))
            for offset in units["offset"].tolist():
                seen = self._store.glance(offset)
                if seen is not None:
                    self._take(growth, *seen, weight)
                done += 1
                if done % RECORDS_AT_ONCE == 0:
                    await self._clock.sleep(0)

    def _take(self, growth: _Growth, record: memoryview, head: RecordHead, weight: float) -> None:
        text = str(record[head.properties_from : head.properties_to], "utf-8", "replace")
        table = properties.decode(text)
        if names.is_retry_topic(growth.topic):
            self._take_redelivered(growth, reconsume_times_of(record, head), table, head)
            return
        self._take_key(growth.topic, table, weight)
        is_transaction = head.sys_flag & TRANSACTION_ROLLBACK_TYPE
        if not is_transaction and not any(name in table for name in SENT_BEFORE):
            host = host_text(born_host_of(record, head)).rpartition(":")[0]
            self._take_clock(host, head.born_timestamp - head.store_timestamp, growth.topic)

    def _take_redelivered(
        self, growth: _Growth, times: int, table: dict[str, str], head: RecordHead
    ) -> None:
        group = growth.topic.removeprefix(names.RETRY_GROUP_TOPIC_PREFIX)
        known = self._now.redelivered.get(group)
        if known is None and len(self._now.redelivered) >= GROUPS_MAX:
            return
        if known is None or times >= known.times:
            self._now.redelivered[group] = RedeliveredMessage(
                group,
                times,
                growth.topic,
                growth.queue_id,
                head.queue_offset,
                table.get(names.PROPERTY_ORIGIN_MESSAGE_ID, ""),
            )

    def _take_key(self, topic: str, table: dict[str, str], weight: float) -> None:
        keys = {key[:KEY_CHARS_MAX] for key in table.get(names.PROPERTY_KEYS, "").split()}
        if not keys:
            return
        seen = self._now.topics.setdefault(topic, _Keys())
        seen.records += 1
        seen.total += weight
        for key in keys:
            if key not in seen.messages:
                if self._now.keys >= KEYS_MAX:
                    continue
                self._now.keys += 1
            seen.messages[key] = seen.messages.get(key, 0.0) + weight

    def _take_clock(self, host: str, ahead_ms: int, topic: str) -> None:
        known = self._now.hosts.get(host)
        if known is None:
            if len(self._now.hosts) < HOSTS_MAX:
                self._now.hosts[host] = _HostClock(ahead_ms, topic)
            return
        known.records += 1
        if abs(ahead_ms) < abs(known.nearest_ms):
            known.nearest_ms, known.topic = ahead_ms, topic
