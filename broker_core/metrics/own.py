"""Trebuchet's own metrics, in addition to RocketMQ's: replication, latencies, damage, the process.

Names follow Prometheus: base units, and `_total` for counters.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.metrics.exposition import Family, Histogram
from broker_core.stats.latency import FINE_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from broker_core.ha.connection import SlaveConnection
    from broker_core.ha.master_ends import SlaveLag
    from broker_core.ha.role import Role
    from broker_core.ha.slave import SlaveState
    from broker_core.listening.budgets import Budgets
    from broker_core.metrics.exposition import Labels, Number
    from broker_core.metrics.readings import ReadParts

S_PER_MS = 0.001
FINE_S = tuple(bound * S_PER_MS for bound in FINE_MS)


@dataclass(frozen=True, slots=True)
class Replication:
    """The state of replication, queried for each scrape."""

    role: Role
    epoch: Callable[[], int]
    slaves: Callable[[], list[SlaveConnection]]
    following: Callable[[], SlaveState]
    behind_master: Callable[[], SlaveLag | None]
    min_in_sync_replicas: Callable[[], int]


def replication_metrics(replication: Replication) -> Iterator[Family]:
    """Yield the broker's role, its slaves, and a slave's progress."""
    is_slave = replication.role.is_slave
    yield _gauge("is_master", "Whether this broker is its set's master", float(not is_slave))
    yield _gauge("epoch", "Epoch of the master that writes the log", replication.epoch())
    if is_slave:
        yield from _following(replication)
    else:
        yield from _slaves(replication)


def _slaves(replication: Replication) -> Iterator[Family]:
    slaves = replication.slaves()
    yield _gauge("slaves", "Connected slaves", len(slaves))
    yield _gauge(
        "slaves_in_sync",
        "Slaves that a synchronous master waits for",
        sum(each.is_in_sync for each in slaves),
    )
    yield _gauge(
        "replicas_in_sync_min",
        "minInSyncReplicas, this broker included",
        replication.min_in_sync_replicas(),
    )
    named = _named(slaves)
    for name, text, values in (
        (
            "lag_bytes",
            "Bytes of the log that a slave hasn't copied",
            [s.behind_bytes for s in slaves],
        ),
        (
            "lag_seconds",
            "Time since the master received the first byte that a slave hasn't copied",
            [s.behind_seconds for s in slaves],
        ),
        (
            "last_contact_seconds",
            "Time since the last contact with a slave",
            [s.last_contact_seconds for s in slaves],
        ),
        ("in_sync", "Whether a slave is in sync", [float(s.is_in_sync) for s in slaves]),
    ):
        series = list(zip(named, values, strict=True))
        yield Family(f"trebuchet_slave_{name}", "gauge", text, series)


def _named(slaves: Sequence[SlaveConnection]) -> list[Labels]:
    """Return the slaves' labels: their hosts.

    Ports change with each connection and would create a new series each time.
    """
    seen: Counter[str] = Counter()
    labels: list[Labels] = []
    for each in slaves:
        host = each.address.rpartition(":")[0]
        seen[host] += 1
        labels.append({"slave": host if seen[host] == 1 else f"{host}#{seen[host]}"})
    return labels


def _following(replication: Replication) -> Iterator[Family]:
    state, behind = replication.following(), replication.behind_master()
    contact = state.last_contact_seconds
    yield _gauge(
        "following", "Whether this slave follows its master", float(state.state == "following")
    )
    yield _gauge(
        "master_last_contact_seconds",
        "Time since the last contact with the master",
        contact if contact >= 0 else None,
    )
    yield _gauge(
        "master_lag_bytes",
        "Bytes of the master's log that this slave hadn't copied at the last check",
        None if behind is None else behind.lag_bytes,
    )
    yield _gauge(
        "master_lag_seconds",
        "Time since this slave had the whole log of its master",
        None if behind is None else behind.lag_seconds,
    )


def broker_metrics(
    parts: ReadParts,
    counters: Mapping[str, int],
    gauges: Mapping[str, int | None],
    parked_pulls: int,
    tasks: int,
) -> Iterator[Family | Histogram]:
    """Yield the metrics of the broker as a whole."""
    store, stats = parts.store, parts.stats
    for name, text, latency in (
        ("put", "Time from a send to its answer", stats.put_latency),
        ("get", "Time from a pull to its answer", stats.get_latency),
        ("flush", "Time of a flush to the disk", stats.flush_latency),
    ):
        series: list[tuple[Labels, Sequence[int], float]] = [
            ({}, latency.counts, latency.total_ms * S_PER_MS)
        ]
        yield Histogram(f"trebuchet_{name}_latency_seconds", text, FINE_S, series)
    for name, text, key in (
        ("puts", "Messages stored, including the broker's own copies", "put"),
        ("put_bytes", "Bytes stored in the log", "putBytes"),
        ("puts_failed", "Messages that couldn't be stored", "putFailed"),
        ("got", "Messages delivered", "got"),
        ("requests_refused", "Requests that access control refused", "refused"),
    ):
        yield Family(f"trebuchet_{name}_total", "counter", text, [({}, counters[key])])
    yield _gauge("writable", "Whether the store accepts messages", float(store.is_writable))
    yield _gauge(
        "quarantined_ranges",
        "Damaged ranges of the log that reads skip",
        len(store.files.quarantine.ranges),
    )
    yield _gauge("commit_log_min_offset", "Where the log begins", store.min_commit_log_offset)
    yield _gauge("commit_log_max_offset", "Where the log ends", store.max_commit_log_offset)
    yield _gauge("disk_bytes", "Size of the disk with the CommitLog", gauges["diskTotal"])
    yield _gauge("retention_seconds", "fileReservedTime", _seconds(gauges["retentionMs"]))
    yield _gauge(
        "half_message_age_seconds",
        "Age of the oldest half message without an outcome",
        _seconds(gauges["halfAgeMs"]),
    )
    yield _gauge("timers_pending", "Pending timer messages", gauges["timersPending"])
    yield _gauge(
        "timer_next_due_seconds",
        "Due time of the next timer message, since the epoch",
        _seconds(gauges["timerNextDueMs"]),
    )
    yield _gauge("parked_pulls", "Pulls waiting for messages", parked_pulls)
    yield _gauge("connections", "Open connections", gauges["connections"])
    yield _gauge("tasks", "Tasks of the event loop", tasks)
    yield _gauge("loop_late_seconds", "Latest delay of the event loop", _seconds(gauges["lateMs"]))


def budget_metrics(budgets: Budgets) -> Iterator[Family]:
    """Yield the bytes held by connections, and the number of waiting and dropped connections."""
    memory = budgets.memory
    yield _gauge("connections_waiting", "Connections waiting for their turn", len(budgets.turns))
    yield _gauge(
        "connections_held_bytes",
        "Bytes of unserved and unfinished frames, requests in progress and unread responses",
        memory.bytes,
    )
    yield Family(
        "trebuchet_connections_dropped_total",
        "counter",
        "Connections that were closed because they held too many bytes",
        [({}, memory.dropped)],
    )


def process_metrics(
    counters: Mapping[str, int], gauges: Mapping[str, int | None], boot_ms: int
) -> Iterator[Family]:
    """Yield the standard process metrics of Prometheus client libraries."""
    cpu_s = counters["cpuMs"] * S_PER_MS
    yield Family("process_cpu_seconds_total", "counter", "Processor time", [({}, cpu_s)])
    for name, text, value in (
        ("resident_memory_bytes", "Resident memory, mapped files included", gauges["rss"]),
        ("start_time_seconds", "When the broker started, since the epoch", _seconds(boot_ms)),
    ):
        yield Family(f"process_{name}", "gauge", text, [({}, value)])


def native_metrics(fallbacks: Mapping[str, int] | None) -> Iterator[Family]:
    """Yield which twin serves plain requests, and how many the compiled one left to Python."""
    is_native = float(fallbacks is not None)
    yield _gauge("native", "Whether plain requests are served by compiled code", is_native)
    yield Family(
        "trebuchet_native_left_total",
        "counter",
        "Requests that compiled code left to Python",
        [({"reason": reason}, count) for reason, count in (fallbacks or {}).items()],
    )


def _gauge(name: str, text: str, value: Number) -> Family:
    return Family(f"trebuchet_{name}", "gauge", text, [({}, value)])


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds * S_PER_MS
