"""GET_BROKER_SAMPLE: everything a collector stores about a broker, in one answer. The request code
is Trebuchet's own.

The body is a JSON object. Numbers of queues are in flat lists, one queue after the other::

    counters   name -> count since bootTimestamp
    gauges     name -> current value; null if unknown
    latencies  name -> calls in each bucket of latencyBoundsMs and above, since bootTimestamp
    topics     [name, bytes put since bootTimestamp, [queue_id, min_offset, max_offset, ...],
               writeQueueNums, 0 without a configuration]
    groups     [name, members connected]
    progress   [group, topic, [queue_id, consumer_offset, max_offset, unread_since_ms, ...]]

    clients    [group, version -> members, subscriptions -> members, some client IDs of the rarer
               values]; only groups whose members differ in either
    consumers  [group, "LANGUAGE version" -> members] of each group with members
    producers  the same for producer groups
    coldReads  [group, topic, messages read from disk since bootTimestamp]
    large      [topic, body size in bytes, queue_id, queue_offset], see RecentRecords, as for the
               following
    keys       [topic, messages per thousand with this key, key]
    clocks     [host, ms its clock is ahead, topic it sends to]
    redelivered [group, times, topic, queue_id, queue_offset, origin message ID]
    heads      [group, topic, queue_id, queue_offset, UNIQ_KEY, body size in bytes, sender,
               reconsume count] of first unread messages that have waited for minutes

unread_since_ms is when the group's first unread message was stored: -1 if nothing is unread or the
time is unknown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.message.versions import version_text
from broker_core.metadata.progress import ROWS_AT_ONCE
from broker_core.protocol.codes import ResponseCode
from broker_core.stats.latency import FINE_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from broker_core.clients.consumers import ConsumerMember
    from broker_core.clients.producers import ProducerMember
    from broker_core.clock import Clock
    from broker_core.config.configuration import Configuration
    from broker_core.ha.role import Role
    from broker_core.metrics.readings import Readings
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.stats.recent_records import RecentRecords

VERSION = 1
KINDS_NAMED_MAX, CLIENTS_NAMED_MAX, GROUPS_NAMED_MAX = 8, 3, 500
MEMBERS_AT_ONCE = 1_000
SHARED_S = 1.0
"""Requests within this time share an answer, so that frequent polling costs the broker nothing."""


class SampleAdmin:
    """GET_BROKER_SAMPLE. Event loop only. `replication` returns the replication gauges."""

    def __init__(
        self,
        configuration: Configuration,
        role: Role,
        readings: Readings,
        replication: Callable[[], dict[str, int | None]],
        recent: RecentRecords,
        clock: Clock,
    ) -> None:
        self._configuration = configuration
        self._recent = recent
        self._role = role
        self._replication = replication
        self._readings = readings
        self._clock = clock
        self._lock = asyncio.Lock()
        self._body = b""
        self._made_at = -SHARED_S

    async def sample(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_BROKER_SAMPLE. Answers SUCCESS."""
        async with self._lock:
            if not self._body or self._clock.monotonic() - self._made_at >= SHARED_S:
                self._body = msgspec.json.encode(await self._build())
                self._made_at = self._clock.monotonic()
        return request.answer(ResponseCode.SUCCESS, body=self._body)

    async def _build(self) -> dict[str, Any]:
        config = self._configuration.broker
        stats = self._readings.parts.stats
        body = {
            "version": VERSION,
            "brokerName": config.broker_name,
            "brokerId": self._role.broker_id,
            "bootTimestamp": self._readings.boot_ms,
            "sampledAt": self._clock.now_ms(),
            "counters": self._readings.counters(),
            "gauges": self._gauges(),
            "latencyBoundsMs": FINE_MS,
            "latencies": {
                "put": stats.put_latency.counts,
                "get": stats.get_latency.counts,
                "flush": stats.flush_latency.counts,
            },
        }
        # Read group offsets first: if a queue grows meanwhile, no group appears ahead of it.
        progress = await self._readings.parts.progress.rows()
        body["progress"] = progress
        body["topics"] = await self._topics()
        body["groups"] = self._groups()
        body["clients"] = await self._inconsistent_groups()
        parts = self._readings.parts
        body["consumers"] = await self._versions(
            {name: group.members.values() for name, group in parts.consumers.groups.items()}
        )
        body["producers"] = await self._versions(
            {name: members.values() for name, members in parts.producers.groups.items()}
        )
        # A slave's log is its master's; the master reports it.
        if not self._role.is_slave:
            await self._recent.look()
            body |= {
                "coldReads": [(*reader, count) for reader, count in stats.got_cold.items()],
                "large": self._recent.large,
                "keys": self._recent.keys,
                "clocks": self._recent.clocks,
                "redelivered": self._recent.redelivered,
                "heads": self._recent.heads(progress, self._clock.now_ms()),
            }
        return body

    def _gauges(self) -> dict[str, int | None]:
        found = self._readings.gauges() | self._replication()
        if not self._role.is_slave:
            found["replicasInSyncMin"] = self._configuration.ha.min_in_sync_replicas
        return found

    async def _topics(self) -> list[tuple[str, int, list[int], int]]:
        configs = self._readings.parts.topics.table
        queues = self._readings.parts.store.files.queues.table
        sizes = self._readings.parts.stats.topic_put_size
        rows = []
        # A topic may have a configuration, messages from before it was deleted, or both.
        names = sorted({*configs, *queues})
        for index, name in enumerate(names):
            numbers: list[int] = []
            for queue_id, queue in queues.get(name, {}).items():
                numbers += (queue_id, queue.min_offset, queue.max_offset)
            size = sizes.get(name)
            config = configs.get(name)
            rows.append(
                (
                    name,
                    0 if size is None else size.value,
                    numbers,
                    0 if config is None else config.write_queue_nums,
                )
            )
            if index % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
                await self._clock.sleep(0)
        return rows

    def _groups(self) -> list[tuple[str, int]]:
        connected = self._readings.parts.consumers.groups
        names = sorted({*self._readings.parts.groups.table, *connected})
        return [(name, len(connected[name].members) if name in connected else 0) for name in names]

    async def _inconsistent_groups(
        self,
    ) -> list[tuple[str, dict[str, int], dict[str, int], list[str]]]:
        """Return the groups whose members differ in version or subscriptions."""
        rows = []
        looked_at = 0
        for name, group in list(self._readings.parts.consumers.groups.items()):
            members = list(group.members.values())
            kinds = {(each.language, each.version) for each in members}
            wants = Counter(each.wants for each in members)
            if len(kinds) > 1 or len(wants) > 1:
                versions = Counter(
                    f"{each.language} {version_text(each.version)}" for each in members
                )
                usual = wants.most_common(1)[0][0]
                odd = [each.client_id for each in members if each.wants != usual]
                rows.append(
                    (
                        name,
                        dict(versions.most_common(KINDS_NAMED_MAX)),
                        dict(wants.most_common(KINDS_NAMED_MAX)),
                        odd[:CLIENTS_NAMED_MAX],
                    )
                )
            looked_at += len(members)
            if looked_at >= MEMBERS_AT_ONCE:
                looked_at = 0
                await self._clock.sleep(0)
        return rows[:GROUPS_NAMED_MAX]

    async def _versions(
        self, groups: Mapping[str, Collection[ConsumerMember | ProducerMember]]
    ) -> list[tuple[str, dict[str, int]]]:
        """Return each group's number of members by language and version."""
        rows = []
        looked_at = 0
        for name, members in groups.items():
            kinds = Counter((each.language, each.version) for each in list(members))
            named: Counter[str] = Counter()
            for (language, version), count in kinds.items():
                named[f"{language} {version_text(version)}"] += count
            if named:
                rows.append((name, dict(named.most_common(KINDS_NAMED_MAX))))
            looked_at += len(members)
            if looked_at >= MEMBERS_AT_ONCE:
                looked_at = 0
                await self._clock.sleep(0)
        return rows
