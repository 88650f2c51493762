"""Which watches the native turn can notify without an event, and how they handle it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker_core.trace import watch as watches
from broker_core.trace.event import TraceEvent, WatchedEvent
from broker_core.trace.event_sinks import EventSinks
from broker_core.trace.filter import TraceFilter, TraceWatch
from broker_core.trace.watch import Watch, Watcher


class Peer:
    """Stores its messages; can see all topics except `hidden`."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []
        self.hidden: set[str] = set()

    def push(self, body: bytes) -> bool:
        self.batches.append(json.loads(body))
        return True

    def may_see(self, topic: str) -> bool:
        return topic not in self.hidden


def a_watch(peer: Peer | None = None, /, **options: Any) -> Watch:
    peer = peer or Peer()
    watcher = Watcher(peer.push, may_see=peer.may_see if peer.hidden else None)
    return Watch("name", TraceWatch(**options), watcher)


def watched_event(stage: str, topic: str = "T") -> Any:
    return WatchedEvent(TraceEvent(time_ms="1", stage=stage, topic=topic))


@pytest.mark.parametrize(
    "options",
    [
        {"sample": 8, "tag": "paid"},
        {"sample": 8, "key": "7"},
        {"sample": 8, "client": "10.0.0.1"},
        {"sample": 8, "properties": {"colour": "red"}},
        {"sample": 8, "errors_only": True, "stages": ["stored", "delivered", "dead"]},
        {"sample": 8, "min_latency_ms": 1},
        {"sample": 8, "min_latency_us": {"delivered": 1}},
        {"sample": 8, "min_total_ms": 1},
        {"sample": 8, "events_per_second_max": 5},
        {"filters": {"a": TraceFilter(sample=8), "b": TraceFilter(sample=8, topic="T")}},
        {},
    ],
    ids=lambda options: ",".join(options) or "everything",
)
def test_conditions_on_an_events_content_are_left_to_filters(options: dict[str, Any]) -> None:
    event_sinks = EventSinks([a_watch(**options)])

    assert event_sinks.of_puts["T"] is None
    assert event_sinks.of_pulls["T", "g"] is None or not any(event_sinks.of_pulls["T", "g"])


def test_a_sample_of_topics_a_group_and_stages_is_decided_without_an_event() -> None:
    pulls = a_watch(sample=8, topic="T*", group="g", stages=["delivered"])
    puts = a_watch(filters={"a": TraceFilter(sample=8, stages=["validated", "replicated"])})
    event_sinks = EventSinks([pulls])

    assert event_sinks.of_pulls["Tail", "g"] == ((pulls,), ())
    assert event_sinks.of_pulls["Tail", "other"] is event_sinks.of_pulls["U", "g"] is None
    # The producer is only in the event.
    assert event_sinks.of_puts["Tail"] is None
    assert EventSinks([puts]).of_puts["U"] == ((puts,), (), (puts,))


def test_two_samples_and_the_level_full_are_left_to_filters() -> None:
    same = [a_watch(sample=8), a_watch(sample=8)]

    assert EventSinks(same).of_puts["T"] == (tuple(same),) * 3
    assert EventSinks([*same, a_watch(sample=4)]).of_puts["T"] is None
    assert EventSinks([*same, a_watch(sample=8, tag="A")]).of_pulls["T", "g"] is None
    assert EventSinks(same, is_full=True).of_pulls["T", "g"] is None


def test_each_accepted_event_has_its_number_among_the_offered_ones() -> None:
    peer = Peer()
    watch = a_watch(peer, filters={"mine": TraceFilter(sample=1)})
    watch.fresh.append(watched_event("stored"))
    event = TraceEvent(time_ms="1", stage="filtered", topic="T")
    watch.offer(WatchedEvent(event), event, {}, 0.0)
    watch.fresh.append(watched_event("delivered"))
    watch.lose("flushed")
    watch.send()

    (batch,) = peer.batches
    assert [(each["seq"], each["stage"], each["matched"]) for each in batch["events"]] == [
        ("1", "stored", ["mine"]),
        ("2", "filtered", ["mine"]),
        ("3", "delivered", ["mine"]),
    ]
    assert batch["offered"] == {"stored": "1", "filtered": "1", "delivered": "1", "flushed": "1"}
    assert (batch["lastSeq"], batch["dropped"]) == ("4", "1")


def test_events_hidden_from_a_watcher_have_no_number() -> None:
    peer = Peer()
    peer.hidden.add("Secret")
    watch = a_watch(peer, sample=8)
    for topic in ("Secret", "T", "Secret"):
        watch.fresh.append(watched_event("stored", topic))
    watch.send()

    (batch,) = peer.batches
    assert [(each["seq"], each["topic"]) for each in batch["events"]] == [("1", "T")]
    assert (batch["offered"], batch["dropped"]) == ({"stored": "1"}, "0")


def test_an_unread_watch_keeps_the_newest_events_and_counts_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watches, "RING_EVENTS", 5)
    peer = Peer()
    watch = a_watch(peer, sample=8)
    watch.lose_connection(0.0)
    for _ in range(10):
        watch.fresh.append(watched_event("stored"))
    watch.resume(Watcher(peer.push), 0, 0)
    watch.send()

    (batch,) = peer.batches
    assert [each["seq"] for each in batch["events"]] == ["6", "7", "8", "9", "10"]
    assert (batch["offered"], batch["dropped"]) == ({"stored": "10"}, "5")
