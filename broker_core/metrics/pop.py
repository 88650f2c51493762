"""Metrics of POP: messages in flight by group and queue, and the age of the oldest lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_core.metrics.exposition import Family

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_core.clock import Clock
    from broker_core.pop.checkpoint import QueueKey
    from broker_core.pop.engine import PopEngine
    from broker_core.pop.leases import InFlight
    from broker_core.pop.pollers import Pollers
    from broker_core.pop.revival import Revival

S_PER_MS = 0.001
QUEUES_AT_ONCE = 500
"""Queues read before the loop may do other work: about a millisecond."""


class Flights(NamedTuple):
    """Leased messages, of at most as many pairs and queues as the page shows, and one more."""

    by_pair: dict[tuple[str, str], int]
    """The number of messages by group and topic."""
    by_queue: list[tuple[QueueKey, InFlight]]


async def flights_of(engine: PopEngine, series_max: int, clock: Clock) -> Flights:
    """Read the leases in portions that don't block the event loop."""
    flights = Flights({}, [])
    by_pair, by_queue = flights
    for number, (key, flight) in enumerate(engine.in_flight(), 1):
        pair = key.group, key.topic
        if pair in by_pair or len(by_pair) <= series_max:
            by_pair[pair] = by_pair.get(pair, 0) + flight.message_count
        if len(by_queue) <= series_max:
            by_queue.append((key, flight))
        if not number % QUEUES_AT_ONCE:
            await clock.sleep(0)
    return flights


def pop_metrics(
    engine: PopEngine, revival: Revival, pollers: Pollers, flights: Flights, now_ms: int
) -> Iterator[Family]:
    """Yield the metrics."""
    by_pair, by_queue = flights
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
        for key, _ in by_queue
    ]
    yield Family(
        "trebuchet_leased_messages",
        "gauge",
        "Leased messages of a group by queue",
        [(each, flight.message_count) for each, (_, flight) in zip(labels, by_queue, strict=True)],
    )
    yield Family(
        "trebuchet_oldest_lease_seconds",
        "gauge",
        "Age of a queue's oldest lease",
        [
            (each, max(0, now_ms - flight.oldest_ms) * S_PER_MS)
            for each, (_, flight) in zip(labels, by_queue, strict=True)
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
