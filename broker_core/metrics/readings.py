"""Readings: the counters and gauges of the whole broker, for samples and metrics."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clients.consumers import Consumers
    from broker_core.clients.producers import Producers
    from broker_core.clock import Clock, SteadyClock
    from broker_core.config.configuration import Configuration
    from broker_core.metadata.progress import Progress
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.stats.counters import BrokerStats
    from broker_core.storage import Storage
    from broker_core.store.message_store import MessageStore
    from broker_core.timers.service import TimerService
    from broker_core.transaction.resolve import Transactions

MS_PER_HOUR = 3_600_000
STATM = Path("/proc/self/statm")
"""The second number is resident memory in pages. Source: proc(5)."""


@dataclass(frozen=True, slots=True)
class ReadParts:
    """The parts of the broker that are read."""

    topics: Topics
    groups: SubscriptionGroups
    progress: Progress
    consumers: Consumers
    producers: Producers
    transactions: Transactions
    timers: TimerService
    store: MessageStore
    stats: BrokerStats


class Readings:
    """Event loop only.

    `late_ms` returns the event loop's latest delay, `connections` the number of open connections,
    `refused` the number of requests refused by access control.

    Attributes:
        boot_ms: when this broker was created and its counters started at 0.
    """

    def __init__(
        self,
        configuration: Configuration,
        parts: ReadParts,
        files: Storage,
        clock: Clock,
        steady: SteadyClock,
        late_ms: Callable[[], float],
        connections: Callable[[], int],
        refused: Callable[[], int],
    ) -> None:
        self.parts = parts
        self.boot_ms = clock.now_ms()
        self._configuration = configuration
        self._files = files
        self._clock = clock
        self._steady = steady
        self._late_ms = late_ms
        self._connections = connections
        self._refused = refused

    def counters(self) -> dict[str, int]:
        """Return the counters since boot_ms."""
        state, stats = self.parts.store.files.put_state, self.parts.stats
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "put": state.put_times,
            "putBytes": state.put_bytes,
            "putFailed": state.put_failed_times,
            "got": stats.got_total,
            "refused": self._refused(),
            "cpuMs": int((used.ru_utime + used.ru_stime) * 1000),
        }

    def gauges(self) -> dict[str, int | None]:
        """Return the current values; None if unknown."""
        store, steady = self.parts.store, self._steady
        used, free = self._files.disk_usage(store.files.paths.commit_log)
        halves = self.parts.transactions.pending
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
            "timersPending": self.parts.timers.count,
            "timerNextDueMs": self.parts.timers.next_due_ms,
            "oldestAgeMs": max(0, self._clock.now_ms() - earliest) if earliest >= 0 else None,
            "maxMessageSize": self._configuration.store.max_message_size,
            "retentionMs": hours * MS_PER_HOUR,
            "rss": int(statm.split()[1]) * resource.getpagesize() if statm else None,
            "lateMs": int(self._late_ms()),
            "connections": self._connections(),
        }
