"""A watch's buffer: numbered pending events and sent ones, by either twin of a stretch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker_core.native import loading
from broker_core.trace.event import TraceEvent, WatchedEvent
from broker_core.trace.ring import ADDED_MAX, Numbered, Ring, Stretch

HEAD = b'",'
NATIVE = loading.load().numbered
TYPES = [Numbered] if NATIVE is None else [Numbered, NATIVE]

pytestmark = pytest.mark.parametrize("numbered_type", TYPES, ids=lambda each: each.__module__)


def event(stage: str = "stored") -> WatchedEvent:
    return WatchedEvent(TraceEvent(time_ms="1", stage=stage, topic="T"))


def numbers(stretches: list[Stretch]) -> list[int]:
    return [
        int(each["seq"])
        for stretch in stretches
        for each in json.loads(b"[" + stretch.body() + b"]")
    ]


def a_ring(numbered_type: Any, count: int, events_max: int = 1_000) -> Ring:
    """Return a ring with numbers from 1 on."""
    ring = Ring(events_max, numbered_type)
    for number in range(1, count + 1):
        ring.add(number, HEAD, event())
    return ring


def a_push(batch: list[Stretch]) -> bytes:
    """Return a watch's push of a batch."""
    return b'{"lastSeq":"9","events":[%b]}' % b",".join([each.body() for each in batch])


def send(ring: Ring, events_max: int) -> list[int]:
    batch, count = ring.batch(events_max)
    assert count == len(numbers(batch))
    ring.sent(batch, a_push(batch), count)
    return numbers(batch)


def test_a_run_of_numbers_is_json_with_one_number_each(numbered_type: Any) -> None:
    stages = ["stored", "stored", "delivered", "stored"]
    stretch = numbered_type(98, b'","matched":["a"],', [event(stage) for stage in stages])

    found = json.loads(stretch.body(b"[", b"]"))

    assert [each["seq"] for each in found] == ["98", "99", "100", "101"]
    assert [each["stage"] for each in found] == stages
    assert all(each["matched"] == ["a"] and each["topic"] == "T" for each in found)
    assert dict(stretch.stages()) == {"stored": 3, "delivered": 1}


def test_an_empty_stretch_has_no_json_and_no_stages(numbered_type: Any) -> None:
    stretch = numbered_type(1, HEAD, [])

    assert (stretch.body(), dict(stretch.stages())) == (b"", {})
    assert stretch.body(b"[", b"]") == b"[]"


def test_batches_arrive_in_order_and_only_once(numbered_type: Any) -> None:
    ring = a_ring(numbered_type, 5)
    ring.extend(numbered_type(6, HEAD, [event() for _ in range(5)]))

    assert send(ring, 7) == [1, 2, 3, 4, 5, 6, 7]
    assert ring.waiting == 3
    assert send(ring, 7) == [8, 9, 10]
    assert send(ring, 7) == []


def test_an_unsent_batch_is_retried(numbered_type: Any) -> None:
    ring = a_ring(numbered_type, 5)

    assert numbers(ring.batch(3)[0]) == numbers(ring.batch(3)[0]) == [1, 2, 3]
    ring.add(6, HEAD, event())
    assert send(ring, 10) == [1, 2, 3, 4, 5, 6]


def test_a_full_ring_drops_sent_events_first_and_then_the_oldest(numbered_type: Any) -> None:
    ring = a_ring(numbered_type, 6, events_max=6)
    send(ring, 2)

    ring.extend(numbered_type(7, HEAD, [event() for _ in range(3)]))

    assert ring.waiting == 6
    assert send(ring, 10) == [4, 5, 6, 7, 8, 9]


def test_a_full_ring_drops_one_by_one(numbered_type: Any) -> None:
    count = 3 * ADDED_MAX
    ring = a_ring(numbered_type, count, events_max=ADDED_MAX + 10)

    assert send(ring, count) == list(range(count - ADDED_MAX - 9, count + 1))


def test_events_sent_after_a_number_wait_again(numbered_type: Any) -> None:
    ring = a_ring(numbered_type, 4)
    send(ring, 4)
    ring.extend(numbered_type(6, HEAD, [event() for _ in range(4)]))
    send(ring, 2)

    ring.rewind(2)

    assert send(ring, 100) == [3, 4, 6, 7, 8, 9]
    ring.rewind(9)
    assert send(ring, 100) == []


def test_hidden_events_neither_wait_nor_come_back(numbered_type: Any) -> None:
    ring = a_ring(numbered_type, 6)
    batch, _ = ring.batch(4)
    ring.sent(batch, a_push([numbered_type(2, HEAD, [event()])]), 1)

    ring.rewind(0)

    assert send(ring, 100) == [2, 5, 6]


def test_repeated_events_equal_the_first_ones(numbered_type: Any) -> None:
    ring = Ring(100, numbered_type)
    odd = TraceEvent(
        time_ms="1", at_us="2", stage="stored", topic='"timeMs":', group="\u4e2d", steps={"a": 1}
    )
    ring.add(1, b'","matched":["\\"timeMs\\":"],', WatchedEvent(odd))
    ring.add(2, HEAD, event("delivered"))
    batch, _ = ring.batch(10)
    before = a_push(batch)
    ring.sent(batch, before, 2)

    ring.rewind(0)

    again, count = ring.batch(10)
    assert (a_push(again), count) == (before, 2)
    assert [(each.stage, each.topic, each.group) for one in again for each in one.events] == [
        ("stored", '"timeMs":', "\u4e2d"),
        ("delivered", "T", None),
    ]


def test_events_dropped_by_a_full_ring_are_not_pushed_again(numbered_type: Any) -> None:
    ring = a_ring(numbered_type, 4, events_max=6)
    send(ring, 4)
    ring.extend(numbered_type(5, HEAD, [event() for _ in range(4)]))

    ring.rewind(0)

    assert send(ring, 100) == [3, 4, 5, 6, 7, 8]


def test_numbers_with_a_gap_or_other_filters_stay_apart(numbered_type: Any) -> None:
    ring = Ring(100, numbered_type)
    ring.add(1, HEAD, event())
    ring.add(3, HEAD, event())
    ring.add(4, b'","matched":["b"],', event())

    found = [json.loads(each.body()) for each in ring.batch(10)[0]]

    assert [(each["seq"], each.get("matched")) for each in found] == [
        ("1", None),
        ("3", None),
        ("4", ["b"]),
    ]
