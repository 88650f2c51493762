"""Metrics of POP: messages in flight by group and queue, and the age of the oldest lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.metrics.exposition import Family

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_core.pop.engine import PopEngine
    from broker_core.pop.pollers import Pollers
    from broker_core.pop.revival import Revival

S_PER_MS = 0.001


def pop_metrics(
    engine: PopEngine, revival: Revival, pollers: Pollers, now_ms: int
) -> Iterator[Family]:
    """Yield the metrics, computed from the current leases."""
    flights = sorted(engine.in_flight().items())
    by_pair: dict[tuple[str, str], int] = {}
    for key, flight in flights:
        pair = key.group, key.topic
        by_pair[pair] = by_pair.get(pair, 0) + flight.message_count
    yield Family(
        "rocketmq_consumer_inflight_messages",
        "gauge",
        "Leased messages that a group hasn't acknowledged",
        [
            ({"consumer_group": group, "topic": topic}, count)
            for (group, topic), count in by_pair.items()
        ],
    )
    labels = [
        {"consumer_group": key.group, "topic": key.topic, "queue_id": str(key.queue_id)}
        for key, _ in flights
    ]
    yield Family(
        "trebuchet_leased_messages",
        "gauge",
        "Leased messages of a group by queue",
        [(each, flight.message_count) for each, (_, flight) in zip(labels, flights, strict=True)],
    )
    yield Family(
        "trebuchet_oldest_lease_seconds",
        "gauge",
        "Age of a queue's oldest lease",
        [
            (each, max(0, now_ms - flight.oldest_ms) * S_PER_MS)
            for each, (_, flight) in zip(labels, flights, strict=True)
        ],
    )
    counters = (
        (
            "leases_ended_total",
            "Messages redelivered because their leases ended",
            revival.revived_times,
        ),
        (
            "leased_dead_letters_total",
            "Messages that became dead letters after too many redeliveries",
            revival.dead_times,
        ),
    )
    yield Family(
        "trebuchet_lease_bytes",
        "gauge",
        "Memory of all leases",
        [({}, engine.leases.byte_count)],
    )
    yield Family("trebuchet_parked_pops", "gauge", "Waiting pops", [({}, len(pollers))])
    for name, text, value in counters:
        yield Family(f"trebuchet_{name}", "counter", text, [({}, value)])
