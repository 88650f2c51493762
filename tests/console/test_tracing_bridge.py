"""The bridge: which events users see, drops, and broker failures."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from console.accounts.actions import Action
from console.accounts.rights import Patterns, Rights
from console.gateway.answers import WatchFilter, WatchPlace
from console.gateway.errors import BrokerDownError, NameServerDownError, RequestFailedError
from console.gateway.fakes.cluster import FakeCluster
from console.messages.tracing import bridge as bridge_module
from console.messages.tracing.bridge import (
    BATCH_EVENTS_MAX,
    QUEUE_EVENTS_MAX,
    VIEWERS_PER_USER_MAX,
    TooManyViewersError,
    TraceBridge,
    Viewer,
)
from console.messages.tracing.filters import FilterError, parse_filter
from tests.console.tracing_fakes import TracedBroker, an_event
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def brokers() -> TracedBroker:
    return TracedBroker()


@pytest.fixture
async def bridge(brokers: TracedBroker) -> AsyncIterator[TraceBridge]:
    bridge = brokers.bridge(batch_every_s=0, backoff_first_s=0, discover_every_s=0.01)
    yield bridge
    await bridge.shutdown()


def frames(viewer: Viewer) -> list[dict[str, Any]]:
    return [json.loads(frame) for frame in viewer.take()]


def test_a_full_queue_drops_the_oldest_and_counts_them() -> None:
    viewer = Viewer(1)

    for number in range(QUEUE_EVENTS_MAX + 3):
        viewer.offer(an_event(seq=str(number)))

    batch = frames(viewer)[-1]
    assert (batch["seen"], batch["dropped"]) == (QUEUE_EVENTS_MAX + 3, 3)
    assert batch["events"][0]["seq"] == "3"
    assert len(batch["events"]) == BATCH_EVENTS_MAX


def test_events_per_second_above_the_filters_limit_count_as_dropped_by_stage() -> None:
    clock = ManualClock()
    viewer = Viewer(1, monotonic=clock.monotonic)
    viewer.show(WatchFilter(rate_max=2))

    for stage in ("stored", "flushed", "delivered", "delivered"):
        viewer.offer(an_event(stage=stage))
    clock.advance_ms(1_000)
    for stage in ("stored", "flushed", "acknowledged"):
        viewer.offer(an_event(stage=stage))

    batch = frames(viewer)[-1]
    assert [event["stage"] for event in batch["events"]] == ["stored", "flushed"] * 2
    assert (batch["seen"], batch["dropped"]) == (7, 3)
    assert batch["lost"] == {"delivered": 2, "acknowledged": 1}


def test_a_paused_viewer_receives_nothing_but_still_counts() -> None:
    viewer = Viewer(1)
    viewer.paused = True

    viewer.offer(an_event())

    batch = frames(viewer)[-1]
    assert (batch["events"], batch["seen"], batch["waiting"]) == ([], 1, 1)


def test_a_page_that_reconnects_receives_what_it_missed() -> None:
    viewer = Viewer("reader")
    for number in range(3):
        viewer.offer(an_event(queueOffset=str(number)))
    [first] = frames(viewer)
    viewer.offer(an_event(queueOffset="3"))

    viewer.resend_after(1)
    [again] = frames(viewer)

    assert (first["upTo"], again["upTo"]) == (3, 4)
    assert [event["queueOffset"] for event in again["events"]] == ["1", "2", "3"]
    assert (again["seen"], again["dropped"]) == (4, 0)


def test_events_not_kept_for_a_returning_page_count_as_dropped() -> None:
    viewer = Viewer("reader")
    for _ in range(3):
        for number in range(QUEUE_EVENTS_MAX):
            viewer.offer(an_event(queueOffset=str(number)))
        while json.loads(viewer.take()[-1])["events"]:
            pass

    viewer.resend_after(0)
    arrivals = 0
    while events := (frame := json.loads(viewer.take()[-1]))["events"]:
        arrivals += len(events)

    assert arrivals == QUEUE_EVENTS_MAX
    assert arrivals + frame["dropped"] == frame["seen"]


def test_waiting_events_survive_a_new_filter_with_their_own_number() -> None:
    viewer = Viewer(1)
    viewer.show(WatchFilter(), 6)
    viewer.paused = True
    viewer.offer(an_event(seq="1"))

    viewer.show(WatchFilter(topic="orders"), 7)
    viewer.offer(an_event(seq="2"))
    viewer.resume()

    batches = [frames(viewer)[-1], frames(viewer)[-1]]
    assert [(batch["round"], batch["events"][0]["seq"]) for batch in batches] == [
        (6, "1"),
        (7, "2"),
    ]
    assert (batches[-1]["seen"], batches[-1]["dropped"]) == (2, 0)


def test_long_texts_are_cut_for_the_page() -> None:
    viewer = Viewer(1)

    viewer.offer(an_event(keys="k" * 5_000))

    assert len(frames(viewer)[-1]["events"][0]["keys"]) < 300


def test_a_paused_page_keeps_little_more_than_the_texts_of_its_events() -> None:
    fields = {f"field{number}": f"what it has, {number}" for number in range(16)}
    texts = [
        json.dumps(an_event(seq=str(number), **fields)).encode()
        for number in range(2 * QUEUE_EVENTS_MAX)
    ]
    viewer = Viewer("reader")

    tracemalloc.start()
    for text in texts[:QUEUE_EVENTS_MAX]:
        viewer.offer(msgspec.json.decode(text))
    while json.loads(viewer.take()[-1])["events"]:
        pass
    viewer.paused = True
    for text in texts[QUEUE_EVENTS_MAX:]:
        viewer.offer(msgspec.json.decode(text))
    gc.collect()
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert json.loads(viewer.take()[-1])["waiting"] == QUEUE_EVENTS_MAX
    # The last sent ones are kept, in case a connection breaks.
    assert sum(map(len, texts)) < kept_bytes < 1.6 * sum(map(len, texts))


def test_a_filter_matches_what_the_page_shows() -> None:
    text = {
        "type": "filter",
        "topic": " orders.* ",
        "group": "",
        "client": "10.0.0.1",
        "property": "colour = dark = red",
        "stages": ["stored"],
        "errorsOnly": True,
        "minLatencyMs": 5,
        "minLatencyUs": {"flushed": 800, "delivered": 5_000},
        "minTotalMs": 200,
        "sample": 100,
        "rate": 50,
    }

    assert parse_filter(text) == WatchFilter(
        topic="orders.*",
        client="10.0.0.1",
        named=("colour", "dark = red"),
        stages=frozenset({"stored"}),
        errors_only=True,
        min_latency_ms=5,
        min_latency_us=(("delivered", 5_000), ("flushed", 800)),
        min_total_ms=200,
        sample=100,
        rate_max=50,
    )


@pytest.mark.parametrize(
    "content",
    [
        {"topic": 7},
        {"topic": "t" * 256},
        {"stages": ["lost"]},
        {"stages": "stored"},
        {"message": "orders"},
        {"message": {"topic": "orders", "queueId": 0}},
        {"message": {"topic": "orders", "queueId": -1, "queueOffset": "7"}},
        {"message": {"topic": "orders", "queueId": 0, "queueOffset": "9" * 20}},
        {"colour": "red"},
        {"property": "colour"},
        {"property": "=red"},
        {"minLatencyMs": -1},
        {"minLatencyMs": "5"},
        {"minLatencyUs": {"lost": 5}},
        {"minLatencyUs": {"stored": -1}},
        {"minLatencyUs": {}},
        {"minTotalMs": 0.5},
        {"sample": 0},
        {"sample": True},
        {"rate": -1},
        {"rate": "50"},
    ],
)
def test_an_invalid_filter_is_rejected(content: dict[str, Any]) -> None:
    with pytest.raises(FilterError):
        parse_filter(content)


async def test_brokers_are_watched_only_while_there_are_viewers(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    viewer = Viewer(1)
    assert not brokers.opened

    bridge.join(viewer)
    await brokers.until_watched()
    assert len(brokers.open_watches) == 1

    await bridge.leave(viewer)
    assert not brokers.open_watches


async def test_viewers_of_one_broker_share_one_connection(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    one, other = Viewer(1), Viewer(2)
    one.filter = WatchFilter(topic="orders")

    bridge.join(one)
    bridge.join(other)
    await brokers.until_watched()
    brokers.push([an_event(topic="orders"), an_event(topic="payments")])

    assert len(brokers.opened) == 1
    assert (one.seen, other.seen) == (1, 2)


async def test_a_broker_is_queried_once_for_several_viewers(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    viewers = [Viewer(number) for number in range(3)]
    for viewer in viewers[1:]:
        viewer.filter = WatchFilter(topic="orders")

    for viewer in viewers:
        bridge.join(viewer)
    await brokers.until_watched()

    request = brokers.opened[0].subscriptions[-1]
    assert sorted(request.values(), key=str) == sorted(
        [WatchFilter(), WatchFilter(topic="orders")], key=str
    )


async def test_events_in_flight_for_an_old_filter_are_discarded(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until_watched()

    viewer.show(WatchFilter(topic="payments"), 1)
    bridge.refilter()
    brokers.push([an_event(topic="orders")])

    assert viewer.seen == 0


async def test_brokers_are_asked_for_no_more_filters_than_they_accept(
    bridge: TraceBridge, brokers: TracedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "FILTERS_MAX", 2)
    for number, topic in enumerate(["orders", "payments"]):
        viewer = Viewer(number)
        viewer.filter = WatchFilter(topic=topic)
        bridge.join(viewer)

    assert bridge.has_room_for(WatchFilter(topic="orders"))
    assert not bridge.has_room_for(WatchFilter())


async def test_a_burst_of_10_000_events_is_counted_exactly(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until_watched()

    for start in range(0, 10_000, 500):
        brokers.push([an_event(seq=str(start + number)) for number in range(500)])
    batches: list[dict[str, Any]] = []
    while not batches or batches[-1]["waiting"]:
        batches.append(frames(viewer)[-1])

    shown = [event["seq"] for batch in batches for event in batch["events"]]
    assert batches[-1]["seen"] == 10_000
    assert len(shown) + batches[-1]["dropped"] == 10_000
    assert shown == [str(number) for number in range(10_000 - QUEUE_EVENTS_MAX, 10_000)]


async def test_events_dropped_by_the_broker_are_reported_once(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until_watched()

    brokers.push([an_event()], dropped=5)
    brokers.push([an_event()], dropped=7)
    brokers.push([an_event()], dropped=2, watch_id="2")

    assert viewer.broker_dropped == 9


async def test_the_brokers_dropped_stages_are_reported_once_nothing_waits_there(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until_watched()

    brokers.push([an_event()], dropped=2, offered={"stored": 3, "flushed": 2})
    waits = frames(viewer)[-1]
    brokers.push([an_event()], dropped=3, offered={"stored": 3, "flushed": 2})
    brokers.push([], dropped=4, offered={"stored": 3, "flushed": 3})

    assert (waits["brokerDropped"], waits["lost"]) == (2, {})
    frame = frames(viewer)[-1]
    assert (frame["brokerDropped"], frame["lost"]) == (4, {"stored": 1, "flushed": 3})


async def test_a_new_filter_is_sent_to_the_broker_on_the_same_connection(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until_watched()

    viewer.filter = WatchFilter(topic="orders")
    bridge.refilter()
    await brokers.until(lambda: len(brokers.opened[0].subscriptions) == 2)

    assert list(brokers.opened[0].subscriptions[-1].values()) == [WatchFilter(topic="orders")]
    assert len(brokers.opened) == 1


async def test_a_lost_broker_is_retried_and_the_page_is_updated(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until_watched()

    brokers.refuses = BrokerDownError("127.0.0.1:10911", "refused")
    brokers.opened[0].lose()
    await brokers.until(lambda: len(brokers.opened) > 2)
    status = next(frame for frame in frames(viewer) if frame["type"] == "status")
    brokers.refuses = None
    await brokers.until_watched()
    brokers.push([an_event()])

    assert status["brokers"][0]["state"] == "away"
    assert "refused" in status["brokers"][0]["message"]
    assert viewer.seen == 1


async def test_a_watch_continues_where_it_was_after_losing_its_connection(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until_watched()
    brokers.push([an_event(seq="7"), an_event(seq="9")], watch_id="w")
    frames(viewer)

    brokers.resumes = True
    brokers.opened[0].lose()
    report: list[dict[str, Any]] = []
    while not any(broker["resumed"] for broker in report):
        await asyncio.wait_for(viewer.wait_for_events(), 5)
        report += [broker for frame in frames(viewer) for broker in frame.get("brokers", ())]

    assert report[-1]["state"] == "watching"
    assert brokers.opened[0].after is None
    assert brokers.opened[1].after == WatchPlace("w", 9, 2)


async def test_a_broker_that_rejects_the_watch_is_quoted(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    brokers.refuses = RequestFailedError("127.0.0.1:10911", 3, "request type 30001 not supported")
    viewer = Viewer(1)

    bridge.join(viewer)
    messages: list[str] = []
    while not any(messages):
        await asyncio.wait_for(viewer.wait_for_events(), 5)
        for frame in frames(viewer):
            messages += [broker["message"] for broker in frame.get("brokers", ())]

    assert "request type 30001 not supported" in messages[-1]


async def test_without_a_name_server_the_page_explains_why(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    brokers.broker.fails = NameServerDownError(["127.0.0.1:9876"], "connection refused")
    viewer = Viewer(1)

    bridge.join(viewer)
    problems: list[str] = []
    while not any(problems):
        await asyncio.wait_for(viewer.wait_for_events(), 5)
        problems += [frame["problem"] for frame in frames(viewer) if frame["type"] == "status"]

    assert problems[-1] == brokers.broker.fails.what


async def test_a_user_watches_in_at_most_twenty_windows(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    for _ in range(VIEWERS_PER_USER_MAX):
        bridge.join(Viewer(1))

    with pytest.raises(TooManyViewersError):
        bridge.join(Viewer(1))
    bridge.join(Viewer(2))


def sees(*topics: str) -> Rights:
    return Rights(given={Action.SEE: Patterns(frozenset(topics))})


async def test_a_viewer_gets_no_event_of_a_topic_with_hidden_messages(
    brokers: TracedBroker, bridge: TraceBridge
) -> None:
    limited, other = Viewer(1, sees("mine")), Viewer(2)
    bridge.join(limited)
    bridge.join(other)
    await brokers.until_watched()

    brokers.push([an_event(topic="orders"), an_event(topic="mine")])

    assert [each["topic"] for each in frames(limited)[-1]["events"]] == ["mine"]
    assert limited.seen == 1
    assert other.seen == 2


async def test_events_waiting_under_former_permissions_are_dropped_and_sent_ones_not_repeated(
    brokers: TracedBroker, bridge: TraceBridge
) -> None:
    viewer = Viewer(1, sees("mine", "orders"))
    bridge.join(viewer)
    await brokers.until_watched()
    brokers.push([an_event(topic="orders", stage="stored")])
    viewer.take()
    brokers.push([an_event(topic="orders", stage="stored"), an_event(topic="mine")])

    viewer.apply_rights(sees("mine", "orders"))
    assert frames(viewer)[-1]["waiting"] == 0
    brokers.push([an_event(topic="orders", stage="stored")])
    viewer.apply_rights(sees("mine"))
    viewer.resend_after(0)
    brokers.push([an_event(topic="orders"), an_event(topic="mine", queueOffset="9")])

    frame = frames(viewer)[-1]
    assert [each["queueOffset"] for each in frame["events"]] == ["9"]
    assert frame["dropped"] == 4
    assert frame["lost"]["stored"] == 1


async def test_a_watch_that_fails_for_an_unknown_reason_is_retried(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    brokers.refuses = KeyError("of a bug")
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until(lambda: len(brokers.opened) >= 2)

    brokers.refuses = None
    await brokers.until_watched()
    brokers.push([an_event()])

    assert viewer.seen == 1


async def test_a_name_server_with_an_invalid_answer_is_queried_again(
    bridge: TraceBridge, brokers: TracedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[int] = []
    registered = FakeCluster.registered

    def fail_once(self: FakeCluster) -> Any:
        requests.append(1)
        if len(requests) == 1:
            raise TypeError("of a bug")
        return registered(self)

    monkeypatch.setattr(FakeCluster, "registered", fail_once)
    bridge.join(Viewer(1))

    await brokers.until_watched()

    assert len(requests) >= 2


async def test_an_invalid_event_does_not_affect_others_of_its_batch(
    bridge: TraceBridge, brokers: TracedBroker
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until_watched()

    brokers.push([an_event(seq="1"), an_event(seq="2", tags=object()), an_event(seq="3")])

    assert [event["seq"] for event in frames(viewer)[-1]["events"]] == ["1", "3"]
