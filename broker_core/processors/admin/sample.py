"""GET_BROKER_SAMPLE: all that a collector keeps of a broker, in one answer. The code is ours.

The body is a JSON object. A queue's numbers stand in a row, one queue after the other::

    counters   name -> what was counted since bootTimestamp
    gauges     name -> a reading; null: not known
    latencies  name -> calls in each bucket of latencyBoundsMs and above, since bootTimestamp
    topics     [name, bytes put since bootTimestamp, [queue_id, min_offset, max_offset, ...]]
    groups     [name, members connected]
    progress   [group, topic, [queue_id, consumer_offset, max_offset, unread_since_ms, ...]]

unread_since_ms is when the first message that the group has not read was stored: -1 when nothing is
unread, or when that is not known.
"""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.metadata.consumer_offsets import TOPIC_GROUP_SEPARATOR
from broker_core.protocol.codes import ResponseCode
from broker_core.stats.latency import FINE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clients.consumers import Consumers
    from broker_core.clock import Clock, SteadyClock
    from broker_core.config.configuration import Configuration
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.stats.counters import BrokerStats
    from broker_core.storage import Storage
    from broker_core.store.message_store import MessageStore
    from broker_core.transaction.resolve import Transactions

VERSION = 1
SHARED_S = 1.0
"""Who asks within a second gets the same answer: asking often costs the broker nothing."""
ROWS_AT_ONCE = 250
"""Topics, or groups' progresses, read before the loop may do other work: about a millisecond."""
NEW_TIMES_MAX = 2_000
"""Messages whose time is read for one sample; a message's time is read once."""
TIMES_KEPT = 200_000
MS_PER_HOUR = 3_600_000
STATM = Path("/proc/self/statm")
"""The second of its numbers is resident memory in pages. Source: proc(5)."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The parts of the broker that a sample reads."""

    topics: Topics
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    consumers: Consumers
    transactions: Transactions
    store: MessageStore
    stats: BrokerStats


class SampleAdmin:
    """GET_BROKER_SAMPLE. Event loop only.

    `late_ms` returns how late the loop was last, `connections` how many are open.
    """

    def __init__(
        self,
        configuration: Configuration,
        parts: Sampled,
        files: Storage,
        clock: Clock,
        steady: SteadyClock,
        late_ms: Callable[[], float],
        connections: Callable[[], int],
    ) -> None:
        self._configuration = configuration
        self._parts = parts
        self._files = files
        self._clock = clock
        self._steady = steady
        self._late_ms = late_ms
        self._connections = connections
        self._boot_ms = clock.now_ms()
        self._times: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._lock = asyncio.Lock()
        self._body = b""
        self._made_at = -SHARED_S

    async def sample(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_BROKER_SAMPLE. Answers SUCCESS."""
        async with self._lock:
            if not self._body or self._clock.monotonic() - self._made_at >= SHARED_S:
                self._body = msgspec.json.encode(await self._whole())
                self._made_at = self._clock.monotonic()
        return request.answer(ResponseCode.SUCCESS, body=self._body)

    async def _whole(self) -> dict[str, Any]:
        config = self._configuration.broker
        stats = self._parts.stats
        body = {
            "version": VERSION,
            "brokerName": config.broker_name,
            "brokerId": config.broker_id,
            "bootTimestamp": self._boot_ms,
            "sampledAt": self._clock.now_ms(),
            "counters": self._counters(),
            "gauges": self._gauges(),
            "latencyBoundsMs": FINE_MS,
            "latencies": {
                "put": stats.put_latency.counts,
                "get": stats.get_latency.counts,
                "flush": stats.flush_latency.counts,
            },
        }
        # Offsets of groups first: a queue that grows meanwhile makes no group read ahead of it.
        body["progress"] = await self._progress()
        body["topics"] = await self._topics()
        body["groups"] = self._groups()
        return body

    def _counters(self) -> dict[str, int]:
        state, stats = self._parts.store.files.put_state, self._parts.stats
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "put": state.put_times,
            "putBytes": state.put_bytes,
            "putFailed": state.put_failed_times,
            "got": stats.got_total,
            "cpuMs": int((used.ru_utime + used.ru_stime) * 1000),
        }

    def _gauges(self) -> dict[str, int | None]:
        store, steady = self._parts.store, self._steady
        used, free = self._files.disk_usage(store.files.paths.commit_log)
        halves = self._parts.transactions.pending
        oldest = next(iter(halves.values()), None)
        earliest = store.earliest_message_timestamp
        statm = self._files.read(STATM)
        hours = self._configuration.store.file_reserved_time
        return {
            "diskUsed": used,
            "diskTotal": used + free,
            "logBytes": store.max_commit_log_offset - store.min_commit_log_offset,
            "flushBehind": store.max_commit_log_offset - store.flushed_where,
            "halfPending": len(halves),
            "halfAgeMs": None if oldest is None else max(0, steady.now_ms() - oldest.since_ms),
            "oldestAgeMs": max(0, self._clock.now_ms() - earliest) if earliest >= 0 else None,
            "retentionMs": hours * MS_PER_HOUR,
            "rss": int(statm.split()[1]) * resource.getpagesize() if statm else None,
            "lateMs": int(self._late_ms()),
            "connections": self._connections(),
        }

    async def _topics(self) -> list[tuple[str, int, list[int]]]:
        queues = self._parts.store.files.queues.table
        sizes = self._parts.stats.topic_put_size
        rows = []
        # A topic has its configuration, or messages from before it was deleted, or both.
        names = sorted({*self._parts.topics.table, *queues})
        for index, name in enumerate(names):
            numbers: list[int] = []
            for queue_id, queue in queues.get(name, {}).items():
                numbers += (queue_id, queue.min_offset, queue.max_offset)
            size = sizes.get(name)
            rows.append((name, 0 if size is None else size.value, numbers))
            if index % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
                await self._clock.sleep(0)
        return rows

    def _groups(self) -> list[tuple[str, int]]:
        connected = self._parts.consumers.groups
        names = sorted({*self._parts.groups.table, *connected})
        return [(name, len(connected[name].members) if name in connected else 0) for name in names]

    async def _progress(self) -> list[tuple[str, str, list[int]]]:
        table = self._parts.offsets.document()["offsetTable"]
        times: dict[tuple[str, str, int], tuple[int, int]] = {}
        room = NEW_TIMES_MAX
        rows = []
        for index, key in enumerate(sorted(table)):
            topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
            queues = self._parts.store.files.queues.table.get(topic, {})
            numbers: list[int] = []
            for queue_id, consumer_offset in list(table.get(key, {}).items()):
                queue = queues.get(queue_id)
                end = 0 if queue is None else queue.max_offset
                since = -1
                if queue is not None and consumer_offset < end:
                    first = max(consumer_offset, queue.min_offset)
                    place = (group, topic, queue_id)
                    known = self._times.get(place, (-1, -1))
                    if known[0] != first and room > 0:
                        room -= 1
                        known = (first, self._parts.store.store_timestamp(topic, queue_id, first))
                    if known[0] == first:
                        since = known[1]
                        if len(times) < TIMES_KEPT:
                            times[place] = known
                numbers += (queue_id, consumer_offset, end, since)
            rows.append((group, topic, numbers))
            if index % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
                await self._clock.sleep(0)
        self._times = times
        return rows
