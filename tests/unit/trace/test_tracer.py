from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from broker_core.trace import tracer as tracer_module
from broker_core.trace.filter import TraceFilter
from broker_core.trace.tracer import Tracer
from tests.support.clock import ManualClock


class Watcher:
    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []
        self.keeps_up = True

    def __call__(self, body: bytes) -> bool:
        if self.keeps_up:
            self.batches.append(json.loads(body))
        return self.keeps_up

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for batch in self.batches for event in batch["events"]]


@pytest.fixture
async def tracer() -> Any:
    made = Tracer(ManualClock())
    yield made
    await made.shutdown()


def stored(tracer: Tracer, topic: str = "T", **more: Any) -> None:
    tracer.emit("stored", topic, 0, 7, **more)


async def test_without_a_watcher_nothing_is_asked_for(tracer: Tracer) -> None:
    assert not tracer.watching

    tracer.watch("c", TraceFilter(), Watcher())
    assert tracer.watching
    assert tracer.unwatch("c")
    assert not tracer.watching
    assert not tracer.unwatch("c")


async def test_events_come_in_batches_numbered_with_texts_for_long_numbers(
    tracer: Tracer,
) -> None:
    watcher = Watcher()
    watch_id = tracer.watch("c", TraceFilter(), watcher)

    stored(tracer)
    stored(tracer)
    tracer.push_all()

    (batch,) = watcher.batches
    assert batch["watchId"] == watch_id
    assert batch["dropped"] == "0"
    assert [event["seq"] for event in batch["events"]] == ["1", "2"]
    assert batch["events"][0]["queueOffset"] == "7"


@pytest.mark.parametrize(
    ("wanted", "more", "matches"),
    [
        ({"topic": "T"}, {}, True),
        ({"topic": "U"}, {}, False),
        ({"tag": "A"}, {"tags": "A"}, True),
        ({"tag": "A"}, {"tags": "B"}, False),
        ({"key": "k2"}, {"keys": "k1 k2"}, True),
        ({"key": "k"}, {"keys": "k1 k2"}, False),
        ({"key": "U1"}, {"uniq_key": "U1"}, True),
        ({"group": "g"}, {"group": "g"}, True),
        ({"group": "g"}, {}, False),
        ({"client_id": "c"}, {"client_id": "c"}, True),
        ({"stages": ["delivered"]}, {}, False),
        ({"min_latency_ms": 5}, {"latency_us": 5000}, True),
        ({"min_latency_ms": 5}, {"latency_us": 4999}, False),
    ],
)
async def test_the_filter_decides_in_the_broker(
    tracer: Tracer, wanted: dict[str, Any], more: dict[str, Any], matches: bool
) -> None:
    watcher = Watcher()
    tracer.watch("c", TraceFilter(**wanted), watcher)

    stored(tracer, **more)
    tracer.push_all()

    assert bool(watcher.events) is matches


async def test_a_sample_is_one_in_n_of_what_matches(tracer: Tracer) -> None:
    watcher = Watcher()
    tracer.watch("c", TraceFilter(sample=10), watcher)

    for _ in range(95):
        stored(tracer)
    tracer.push_all()

    assert len(watcher.events) == 9


async def test_a_full_ring_drops_the_oldest_and_counts(
    tracer: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracer_module, "RING_EVENTS", 5)
    watcher = Watcher()
    tracer.watch("c", TraceFilter(), watcher)

    for _ in range(8):
        stored(tracer)
    tracer.push_all()

    assert watcher.batches[0]["dropped"] == "3"
    assert [event["seq"] for event in watcher.events] == ["4", "5", "6", "7", "8"]


async def test_what_a_slow_watcher_could_not_take_is_counted(tracer: Tracer) -> None:
    watcher = Watcher()
    tracer.watch("c", TraceFilter(), watcher)
    watcher.keeps_up = False
    stored(tracer)
    tracer.push_all()

    watcher.keeps_up = True
    stored(tracer)
    tracer.push_all()

    assert watcher.batches[0]["dropped"] == "1"


async def test_watchers_have_filters_of_their_own(tracer: Tracer) -> None:
    one, two = Watcher(), Watcher()
    tracer.watch("1", TraceFilter(topic="T"), one)
    tracer.watch("2", TraceFilter(topic="U"), two)

    stored(tracer, "T")
    stored(tracer, "U")
    tracer.push_all()

    assert [event["topic"] for event in one.events] == ["T"]
    assert [event["topic"] for event in two.events] == ["U"]


def test_a_filter_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"topc":"T"}', type=TraceFilter)
