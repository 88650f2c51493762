"""RocketMQ 5's metrics, under their names and labels, as far as this broker has the figures.

The names are those of RocketMQ's exporter and end in their unit. Metrics that would require
counting each message are omitted: message sizes, transaction outcomes, response codes.

Source: broker/metrics/BrokerMetricsManager.java, BrokerMetricsConstant.java,
store/metrics/DefaultStoreMetricsManager.java, remoting/metrics/RemotingMetricsManager.java (5.3.3).
Differs: message_type is "unspecified", because 4.9 topics have no types and messages within a topic
aren't distinguished; a retry topic's lag is reported under the retry topic; rocketmq_rpc_latency
covers sends and pulls, without response codes, in Trebuchet's buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

from broker_core.message import names
from broker_core.message.versions import version_text
from broker_core.metrics.exposition import Family, Histogram
from broker_core.stats.latency import FINE_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from broker_core.metadata.progress import ProgressRow
    from broker_core.metrics.exposition import Labels, Number
    from broker_core.metrics.readings import ReadParts
    from broker_core.stats.counters import StatsSet
    from broker_core.stats.latency import Latency

STORAGE = {"storage_type": "local", "storage_medium": "disk"}
UNSPECIFIED = "unspecified"
REMOTING = "remoting"
SYSTEM_GROUP_PREFIX = names.CID_RMQ_SYS_PREFIX.lower()
RPC_BOUNDS_MS = (1.0, 5.0, 10.0, 100.0, 1_000.0, 2_000.0, 3_000.0)
"""RocketMQ's bounds without 3 and 7, which this broker doesn't count separately."""
PROCESSORS = (
    "send",
    "async_put",
    "pull",
    "ack",
    "query_message",
    "client_manager",
    "heartbeat",
    "lite_pull",
    "transaction",
    "consumer_manager",
    "reply",
)
"""RocketMQ's queues in front of thread pools; here the event loop serves them in turn."""


def one(name: str, text: str, value: Number, labels: Labels | None = None) -> Family:
    """Return a gauge with a single series."""
    return Family(name, "gauge", text, [(labels or {}, value)])


def metrics_of(
    parts: ReadParts,
    gauges: Mapping[str, int | None],
    rows: list[ProgressRow],
    permission: int,
    waiting: int,
    now_ms: int,
) -> Iterator[Family | Histogram]:
    """Yield the metrics; `waiting` is the number of connections waiting for their turn."""
    yield from _storage(parts, gauges)
    yield one("rocketmq_broker_permission", "Permission: 4 read, 2 write, 6 both", permission)
    yield one("rocketmq_topic_number", "Configured topics", len(parts.topics.table))
    yield one(
        "rocketmq_consumer_group_number",
        "Configured subscription groups",
        len(parts.groups.table),
    )
    yield Family(
        "rocketmq_processor_watermark",
        "gauge",
        "Connections with waiting requests, counted under admin",
        [
            *(({"processor": each}, 0) for each in PROCESSORS),
            ({"processor": "admin"}, waiting),
        ],
    )
    yield from _traffic(parts)
    yield from _lag(rows, now_ms)
    yield from _connections(parts)
    yield one(
        "rocketmq_half_messages",
        "Half messages that have no outcome yet",
        gauges["halfPending"],
    )
    yield Histogram(
        "rocketmq_rpc_latency_milliseconds",
        "Time from request to response, without pulls that wait for messages",
        RPC_BOUNDS_MS,
        [
            _rpc("send_message", parts.stats.put_latency),
            _rpc("pull_message", parts.stats.get_latency),
        ],
    )


def _storage(parts: ReadParts, gauges: Mapping[str, int | None]) -> Iterator[Family]:
    for name, text, value in (
        ("size_bytes", "Used space of the disk with the CommitLog", gauges["diskUsed"]),
        ("flush_behind_bytes", "Bytes that aren't flushed yet", gauges["flushBehind"]),
        (
            "dispatch_behind_bytes",
            "Bytes that no queue points to yet",
            parts.store.dispatch_behind_bytes,
        ),
        (
            "message_reserve_time_milliseconds",
            "Age of the oldest message",
            gauges["oldestAgeMs"],
        ),
    ):
        yield one(f"rocketmq_storage_{name}", text, value, STORAGE)


def _traffic(parts: ReadParts) -> Iterator[Family]:
    stats = parts.stats
    for name, text, items in (
        ("messages_in", "Messages stored, by topic", stats.topic_put_nums),
        ("throughput_in", "Bytes stored in the log, by topic", stats.topic_put_size),
    ):
        yield Family(f"rocketmq_{name}_total", "counter", text, _put(items))
    for name, text, items in (
        ("messages_out", "Messages delivered, by topic and group", stats.group_get_nums),
        ("throughput_out", "Bytes delivered, by topic and group", stats.group_get_size),
    ):
        yield Family(f"rocketmq_{name}_total", "counter", text, _got(items))
    yield Family(
        "rocketmq_send_to_dlq_messages_total",
        "counter",
        "Messages moved to dead-letter topics, by group",
        _dead(stats.topic_put_nums),
    )


def _put(items: StatsSet) -> Iterator[tuple[Labels, Number]]:
    for topic, item in list(items.items()):
        yield (
            {
                "topic": topic,
                "message_type": UNSPECIFIED,
                "is_system": _text(names.is_system_topic(topic)),
            },
            item.value,
        )


def _got(items: StatsSet) -> Iterator[tuple[Labels, Number]]:
    for key, item in list(items.items()):
        topic, _, group = key.partition("@")
        yield (
            {
                "topic": topic,
                "consumer_group": group,
                "is_system": _is_system(topic, group),
            },
            item.value,
        )


def _dead(items: StatsSet) -> Iterator[tuple[Labels, Number]]:
    for topic, item in list(items.items()):
        if names.is_dlq_topic(topic):
            group = topic.removeprefix(names.DLQ_GROUP_TOPIC_PREFIX)
            yield {"consumer_group": group, "is_system": _is_system("", group)}, item.value


def _lag(rows: list[ProgressRow], now_ms: int) -> Iterator[Family]:
    lags = [(_pair(row), *_behind(row, now_ms)) for row in rows]
    for name, text, series in (
        ("messages", "Messages that a group hasn't consumed", ((a, lag) for a, lag, _ in lags)),
        (
            "latency_milliseconds",
            "Age of the first message that a group hasn't consumed",
            ((labels, age) for labels, _, age in lags),
        ),
    ):
        yield Family(f"rocketmq_consumer_lag_{name}", "gauge", text, series)


def _pair(row: ProgressRow) -> Labels:
    return {
        "consumer_group": row.group,
        "topic": row.topic,
        "is_retry": _text(names.is_retry_topic(row.topic)),
        "is_system": _is_system(row.topic, row.group),
    }


def _behind(row: ProgressRow, now_ms: int) -> tuple[int, int | None]:
    """Return how many messages are unread, and the age of the oldest; None if unknown."""
    numbers = iter(row.numbers)
    lag, oldest, is_known = 0, 0, True
    for _, offset, end, since in zip(numbers, numbers, numbers, numbers, strict=True):
        unread = max(0, end - offset)
        lag += unread
        if unread and since < 0:
            is_known = False
        elif unread:
            oldest = max(oldest, now_ms - since)
    return lag, oldest if is_known else None


def _connections(parts: ReadParts) -> Iterator[Family]:
    producers = Counter(
        (member.language.lower(), version_text(member.version))
        for members in parts.producers.groups.values()
        for member in members.values()
    )
    yield Family(
        "rocketmq_producer_connections",
        "gauge",
        "Connected producers",
        [
            ({"language": language, "version": version, "protocol_type": REMOTING}, count)
            for (language, version), count in producers.items()
        ],
    )
    consumers = Counter(
        (group.name, group.consume_type, member.language.lower(), version_text(member.version))
        for group in parts.consumers.groups.values()
        for member in group.members.values()
    )
    yield Family(
        "rocketmq_consumer_connections",
        "gauge",
        "Connected consumers, by group",
        _consumers(consumers.items()),
    )


def _consumers(
    counts: Iterable[tuple[tuple[str, str, str, str], int]],
) -> Iterator[tuple[Labels, Number]]:
    for (group, consume_type, language, version), count in counts:
        # RocketMQ writes PULL and PUSH.
        mode = consume_type.removeprefix("CONSUME_").lower()
        yield (
            {
                "consumer_group": group,
                "language": language,
                "version": version,
                "consume_mode": {"actively": "pull", "passively": "push"}.get(mode, mode),
                "protocol_type": REMOTING,
                "is_system": _is_system("", group),
            },
            count,
        )


def _rpc(request_code: str, latency: Latency) -> tuple[Labels, list[int], float]:
    counts = [0] * (len(RPC_BOUNDS_MS) + 1)
    for bound, count in zip((*FINE_MS, float("inf")), latency.counts, strict=True):
        counts[bisect_left(RPC_BOUNDS_MS, bound)] += count
    labels = {
        "protocol_type": REMOTING,
        "request_code": request_code,
        "is_long_polling": "false",
    }
    return labels, counts, latency.total_ms


def _is_system(topic: str, group: str) -> str:
    return _text(names.is_system_topic(topic) or group.lower().startswith(SYSTEM_GROUP_PREFIX))


def _text(value: bool) -> str:
    return "true" if value else "false"
