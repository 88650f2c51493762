"""The bridge: who sees which event, what is dropped, what happens when a broker goes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.errors import RemotingConnectError
from console.tracing.bridge import (
    BATCH_EVENTS_MAX,
    QUEUE_EVENTS_MAX,
    VIEWERS_PER_USER_MAX,
    TooManyViewersError,
    TraceBridge,
    Viewer,
)
from console.tracing.filters import FilterError, TraceFilter, parse_filter, union
from tests.console.tracing_fakes import FakeBrokers, an_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers({"broker-a": "127.0.0.1:10911"})


@pytest.fixture
async def bridge(brokers: FakeBrokers) -> AsyncIterator[TraceBridge]:
    bridge = TraceBridge(
        brokers.find, brokers.open, batch_every_s=0, backoff_first_s=0, discover_every_s=0.01
    )
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


def test_a_paused_viewer_is_sent_nothing_and_still_counts() -> None:
    viewer = Viewer(1)
    viewer.paused = True

    viewer.offer(an_event())

    batch = frames(viewer)[-1]
    assert (batch["events"], batch["seen"], batch["waiting"]) == ([], 1, 1)


def test_long_texts_are_cut_for_the_page() -> None:
    viewer = Viewer(1)

    viewer.offer(an_event(keys="k" * 5_000))

    assert len(frames(viewer)[-1]["events"][0]["keys"]) < 300


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (TraceFilter(), True),
        (TraceFilter(topic="orders"), True),
        (TraceFilter(topic="order"), False),
        (TraceFilter(tag="created"), True),
        (TraceFilter(tag="paid"), False),
        (TraceFilter(key="k2"), True),
        (TraceFilter(key="UNIQ"), True),
        (TraceFilter(key="k"), False),
        (TraceFilter(group="pg"), True),
        (TraceFilter(group="cg"), False),
        (TraceFilter(stages=frozenset({"delivered"})), False),
        (TraceFilter(stages=frozenset({"delivered", "stored"})), True),
    ],
)
def test_a_filter_shows_what_all_its_words_match(wanted: TraceFilter, matches: bool) -> None:
    event = an_event(
        topic="orders", tags="created", keys="k1 k2", uniqKey="UNIQ", producerGroup="pg"
    )

    assert wanted.matches(event) is matches


def test_the_broker_is_asked_for_one_topic_only_when_all_viewers_share_it() -> None:
    one, other = TraceFilter(topic="a", tag="t"), TraceFilter(topic="b", tag="t")

    assert union([one, one]).topic == "a"
    assert union([one, other]) == TraceFilter(topic=None, tag="t")
    assert union([one, TraceFilter()]) == TraceFilter()


@pytest.mark.parametrize(
    "content",
    [
        {"topic": 7},
        {"topic": "t" * 256},
        {"stages": ["lost"]},
        {"stages": "stored"},
        {"colour": "red"},
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(FilterError):
        parse_filter(content)


async def test_brokers_are_watched_only_while_somebody_looks(
    bridge: TraceBridge, brokers: FakeBrokers
) -> None:
    viewer = Viewer(1)
    assert not brokers.links

    bridge.join(viewer)
    await brokers.until_watched()
    assert len(brokers.open_links) == 1

    await bridge.leave(viewer)
    assert not brokers.open_links


async def test_viewers_of_one_broker_share_one_connection(
    bridge: TraceBridge, brokers: FakeBrokers
) -> None:
    one, other = Viewer(1), Viewer(2)
    one.filter = TraceFilter(topic="orders")

    bridge.join(one)
    bridge.join(other)
    await brokers.until_watched()
    brokers.push([an_event(topic="orders"), an_event(topic="payments")])

    assert len(brokers.links) == 1
    assert (one.seen, other.seen) == (1, 2)


async def test_a_burst_of_10_000_events_is_counted_exactly(
    bridge: TraceBridge, brokers: FakeBrokers
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


async def test_what_the_broker_dropped_is_told_once(
    bridge: TraceBridge, brokers: FakeBrokers
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until_watched()

    brokers.push([an_event()], dropped=5)
    brokers.push([an_event()], dropped=7)
    brokers.push([an_event()], dropped=2, watch_id="2")

    assert viewer.broker_dropped == 9


async def test_a_new_filter_is_sent_to_the_broker_on_the_same_connection(
    bridge: TraceBridge, brokers: FakeBrokers
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until_watched()

    viewer.filter = TraceFilter(topic="orders")
    bridge.refilter()
    await brokers.until(lambda: len(brokers.links[0].watches) == 2)

    assert json.loads(brokers.links[0].watches[-1])["topic"] == "orders"
    assert len(brokers.links) == 1


async def test_a_broker_that_goes_away_is_tried_again_and_the_page_is_told(
    bridge: TraceBridge, brokers: FakeBrokers
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until_watched()

    brokers.failure = RemotingConnectError("no connection to 127.0.0.1:10911: refused")
    brokers.links[0].lose()
    await brokers.until(lambda: len(brokers.links) > 2)
    status = next(frame for frame in frames(viewer) if frame["type"] == "status")
    brokers.failure = None
    await brokers.until_watched()
    brokers.push([an_event()])

    assert status["brokers"][0]["state"] == "away"
    assert "refused" in status["brokers"][0]["message"]
    assert viewer.seen == 1


async def test_without_a_name_server_the_page_is_told_why(
    bridge: TraceBridge, brokers: FakeBrokers
) -> None:
    brokers.unknown = RemotingConnectError("The name server does not answer.")
    viewer = Viewer(1)

    bridge.join(viewer)
    await asyncio.wait_for(viewer.until_news(), 5)
    await brokers.until(lambda: brokers.asked > 0)

    status = next(frame for frame in frames(viewer) if frame["type"] == "status")
    assert status["problem"] == "The name server does not answer."


async def test_a_body_that_is_no_batch_is_passed_over(
    bridge: TraceBridge, brokers: FakeBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    viewer = Viewer(1)
    bridge.join(viewer)
    await brokers.until_watched()

    brokers.links[-1].on_events(b"{nonsense")
    brokers.push([an_event()])

    assert viewer.seen == 1
    assert "cannot be read" in caplog.text


async def test_a_user_watches_in_twenty_windows_at_most(
    bridge: TraceBridge, brokers: FakeBrokers
) -> None:
    for _ in range(VIEWERS_PER_USER_MAX):
        bridge.join(Viewer(1))

    with pytest.raises(TooManyViewersError):
        bridge.join(Viewer(1))
    bridge.join(Viewer(2))
