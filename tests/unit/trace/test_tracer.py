from __future__ import annotations

import json
import sys
import time
from typing import Any, cast

import msgspec
import pytest

from broker_core.config.limits import LimitsConfig
from broker_core.trace import watch as watch_module
from broker_core.trace.event import TraceEvent, WatchedEvent
from broker_core.trace.filter import ResumedWatch, TracedMessage, TraceFilter, TraceWatch
from broker_core.trace.tracer import LOST_SECONDS, PUSH_SECONDS, Tracer, WatchStart
from broker_core.trace.watch import Watch, Watcher
from tests.support.clock import ManualClock
from tests.support.twins import settled

PUSH_MS = round(PUSH_SECONDS * 1000)


class Viewer:
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


def watch(
    tracer: Tracer, connection: Any, target: TraceWatch, viewer: Viewer, host: str = ""
) -> WatchStart | None:
    return tracer.watch(connection, target, Watcher(viewer, host))


def stored(tracer: Tracer, topic: str = "T", **more: Any) -> None:
    tracer.emit("stored", topic, 0, 7, **more)


def having(**properties: str) -> dict[str, Any]:
    return {"properties": properties}


async def test_without_a_watcher_nothing_is_requested(tracer: Tracer) -> None:
    assert not tracer.watching

    watch(tracer, "c", TraceWatch(), Viewer())
    assert tracer.watching
    assert tracer.unwatch("c")
    assert not tracer.watching
    assert not tracer.unwatch("c")


async def test_events_arrive_in_batches_numbered_with_strings_for_long_numbers(
    tracer: Tracer,
) -> None:
    watcher = Viewer()
    watched = watch(tracer, "c", TraceWatch(), watcher)

    stored(tracer)
    stored(tracer)
    tracer.push_all()

    (batch,) = watcher.batches
    assert watched is not None
    assert batch["watchId"] == watched.watch_id
    assert batch["dropped"] == "0"
    assert [event["seq"] for event in batch["events"]] == ["1", "2"]
    assert batch["events"][0]["queueOffset"] == "7"


@pytest.mark.parametrize(
    ("options", "more", "matches"),
    [
        ({"topic": "T"}, {}, True),
        ({"topic": "U"}, {}, False),
        ({"topic": "T*"}, {}, True),
        ({"topic": "*T"}, {}, True),
        ({"topic": "?"}, {}, True),
        ({"topic": "??"}, {}, False),
        ({"topic": "U*"}, {}, False),
        ({"topic": "[T]*"}, {}, False),
        ({"tag": "A"}, having(TAGS="A"), True),
        ({"tag": "A"}, having(TAGS="B"), False),
        ({"key": "k2"}, having(KEYS="k1 k2"), True),
        ({"key": "k"}, having(KEYS="k1 k2"), False),
        ({"key": "U1"}, having(UNIQ_KEY="U1"), True),
        ({"group": "g"}, {"group": "g"}, True),
        ({"group": "g"}, {"producer_group": "g"}, True),
        ({"group": "g"}, {}, False),
        ({"key": "0A"}, {"offset_msg_id": "0A"}, True),
        ({"client": "c"}, {"client_id": "c"}, True),
        ({"client": "10.0.0.1:4411"}, {"client": "10.0.0.1:4411"}, True),
        ({"client": "10.0.0.1"}, {"client": "10.0.0.1:4411"}, True),
        ({"client": "10.0.0.1"}, {"client": "10.0.0.12:4411"}, False),
        ({"client": "c"}, {}, False),
        ({"properties": {"a": "1"}}, having(a="1", b="2"), True),
        ({"properties": {"a": "1", "b": "2"}}, having(a="1"), False),
        ({"properties": {"a": "1"}}, having(a="2"), False),
        ({"properties": {"a": "1"}}, {}, False),
        ({"stages": ["delivered"]}, {}, False),
        ({"stages": ["delivered", "stored"]}, {}, True),
        ({"errors_only": True}, {}, False),
        ({"errors_only": True, "stages": ["stored"]}, {}, False),
        ({"min_latency_ms": 5}, {"latency_us": 5000}, True),
        ({"min_latency_ms": 5}, {"latency_us": 4999}, False),
        ({"topic": "T", "tag": "A"}, {}, False),
    ],
)
async def test_the_broker_applies_the_filter(
    tracer: Tracer, options: dict[str, Any], more: dict[str, Any], matches: bool
) -> None:
    watcher = Viewer()
    watch(tracer, "c", TraceWatch(**options), watcher)

    stored(tracer, **more)
    tracer.push_all()

    assert bool(watcher.events) is matches


MESSAGE = TracedMessage(topic="T", queue_id=0, queue_offset="7", uniq_key="U")


@pytest.mark.parametrize(
    ("place", "more", "matches"),
    [
        (("T", 0, 7), {}, True),
        (("T", 0, 8), {}, False),
        (("T", 1, 7), {}, False),
        (("%RETRY%g", 0, 0), having(UNIQ_KEY="U"), True),
        (("%RETRY%g", 0, 0), having(UNIQ_KEY="V"), False),
        (("T", 0, 8), {"acknowledged_from": "0"}, True),
        (("T", 0, 8), {"acknowledged_from": "7"}, True),
        (("T", 0, 9), {"acknowledged_from": "8"}, False),
        (("T", 0, 7), {"acknowledged_from": "0"}, False),
        (("U", 0, 8), {"acknowledged_from": "0"}, False),
    ],
)
async def test_one_message_is_followed_through_its_acknowledgements_and_copies(
    tracer: Tracer, place: tuple[str, int, int], more: dict[str, Any], matches: bool
) -> None:
    watcher = Viewer()
    watch(tracer, "c", TraceWatch(message=MESSAGE), watcher)

    tracer.emit("stored", *place, **more)
    tracer.push_all()

    assert bool(watcher.events) is matches


async def test_a_sample_has_all_stages_of_a_message_and_its_copies_or_none(
    tracer: Tracer,
) -> None:
    watcher = Viewer()
    watch(tracer, "c", TraceWatch(sample=10), watcher)

    for number in range(1_000):
        own_id = f"0A{number:030X}"
        tracer.emit("stored", "T", 0, number, offset_msg_id=own_id)
        tracer.emit("delivered", "T", 0, number, offset_msg_id=own_id)
        copy = {"ORIGIN_MESSAGE_ID": own_id}
        tracer.emit("dead", "%DLQ%g", 0, number, copy, offset_msg_id=f"0B{number:030X}")
    tracer.push_all()

    stages: dict[str, set[str]] = {}
    for event in watcher.events:
        stages.setdefault(event["messageId"], set()).add(event["stage"])
    assert 50 < len(stages) < 200
    assert all(each == {"stored", "delivered", "dead"} for each in stages.values())


async def test_the_errors_filter_shows_returned_dead_and_rejected_messages(tracer: Tracer) -> None:
    watcher = Viewer()
    watch(tracer, "c", TraceWatch(errors_only=True, sample=1_000_000), watcher)

    for stage in ("stored", "delivered", "given_back", "acknowledged", "dead", "refused"):
        tracer.emit(stage, "T", 0, 7)
    tracer.push_all()

    assert [event["stage"] for event in watcher.events] == ["given_back", "dead", "refused"]


async def test_a_watch_of_many_filters_names_the_ones_an_event_matches(tracer: Tracer) -> None:
    watcher = Viewer()
    filters = {
        "all": TraceFilter(),
        "T": TraceFilter(topic="T"),
        "U": TraceFilter(topic="U"),
        "V": TraceFilter(topic="V"),
    }
    watch(tracer, "c", TraceWatch(filters=filters), watcher)
    watch(tracer, "d", TraceWatch(filters={"U": filters["U"]}), Viewer())

    stored(tracer, "T")
    stored(tracer, "U")
    tracer.push_all()

    assert [event["matched"] for event in watcher.events] == [["all", "T"], ["all", "U"]]


async def test_a_pattern_cannot_keep_the_broker_busy(tracer: Tracer) -> None:
    watch(tracer, "c", TraceWatch(topic="*a" * 120 + "b"), Viewer())
    began = time.process_time()

    stored(tracer, "a" * 255)

    assert time.process_time() - began < 1.0


async def test_a_full_ring_drops_the_oldest_and_counts(
    tracer: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "RING_EVENTS", 5)
    watcher = Viewer()
    watch(tracer, "c", TraceWatch(), watcher)

    for _ in range(8):
        stored(tracer)
    tracer.push_all()

    assert watcher.batches[0]["dropped"] == "3"
    assert [event["seq"] for event in watcher.events] == ["4", "5", "6", "7", "8"]


async def test_an_idle_watch_costs_the_loop_no_time() -> None:
    clock = ManualClock()
    tracer, viewer = Tracer(clock), Viewer()
    watch(tracer, "c", TraceWatch(), viewer)
    for report in (0, 1, 2):
        await settled()
        assert clock.waiting == 0
        assert len(viewer.events) == report

        stored(tracer)
        await settled()
        assert clock.waiting == 1
        clock.advance_ms(PUSH_MS)
    await settled()
    viewer.keeps_up = False
    stored(tracer)
    for _ in range(3):
        await settled()
        clock.advance_ms(PUSH_MS)
    await settled()
    viewer.keeps_up = True
    assert clock.waiting == 1

    clock.advance_ms(PUSH_MS)
    await settled()

    assert (len(viewer.events), clock.waiting) == (4, 0)
    await tracer.shutdown()


async def test_a_slow_watcher_receives_what_the_ring_kept(tracer: Tracer) -> None:
    watcher = Viewer()
    watch(tracer, "c", TraceWatch(), watcher)
    watcher.keeps_up = False
    stored(tracer)
    tracer.push_all()

    watcher.keeps_up = True
    stored(tracer)
    tracer.push_all()

    assert watcher.batches[0]["dropped"] == "0"
    assert [event["seq"] for event in watcher.events] == ["1", "2"]


def resumed(watched: WatchStart | None, last_seq: int, received: int) -> TraceWatch:
    assert watched is not None
    request = ResumedWatch(
        watch_id=watched.watch_id, last_seq=str(last_seq), received=str(received)
    )
    return TraceWatch(resume=request)


@pytest.mark.parametrize("is_long", [False, True], ids=["at once", "after a push"])
async def test_a_returning_watcher_receives_the_missing_events(
    tracer: Tracer, is_long: bool
) -> None:
    before, after = Viewer(), Viewer()
    watched = watch(tracer, "c", TraceWatch(), before)
    for _ in range(5):
        stored(tracer)
    tracer.push_all()
    tracer.connection_lost("c")
    stored(tracer)
    if is_long:
        tracer.push_all()

    again = watch(tracer, "d", resumed(watched, 3, 3), after)
    tracer.push_all()

    assert watched is not None
    assert again == WatchStart(watched.watch_id, is_resumed=True)
    assert [event["seq"] for event in after.events] == ["4", "5", "6"]
    assert after.batches[-1]["dropped"] == "0"


@pytest.mark.parametrize("is_long", [False, True], ids=["at once", "after pushes"])
async def test_events_lost_by_the_ring_meanwhile_are_counted(
    tracer: Tracer, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    monkeypatch.setattr(watch_module, "RING_EVENTS", 4)
    before, after = Viewer(), Viewer()
    watched = watch(tracer, "c", TraceWatch(), before)
    for _ in range(6):
        stored(tracer)
    tracer.push_all()
    assert before.batches[-1]["dropped"] == "2"
    tracer.connection_lost("c")
    for _ in range(3):
        stored(tracer)
        if is_long:
            tracer.push_all()

    # Of 3 to 6, which arrived, the last one didn't reach the page.
    watch(tracer, "d", resumed(watched, 5, 3), after)
    tracer.push_all()

    assert [event["seq"] for event in after.events] == ["6", "7", "8", "9"]
    batch = after.batches[-1]
    assert batch["dropped"] == "2"
    assert batch["lastSeq"] == "9"
    assert batch["offered"] == {"stored": "9"}


async def test_no_object_is_kept_of_events_waiting_for_a_lost_watcher() -> None:
    lost = Watch("w", TraceWatch(), Watcher(Viewer()))
    lost.lose_connection(0.0)
    event = TraceEvent(stage="stored", topic="T", queue_id=0, queue_offset="7", time_ms="1")
    emitted = WatchedEvent(event)
    without = sys.getrefcount(emitted)

    lost.offer(emitted, event, {}, 0.0)
    with_it = sys.getrefcount(emitted)
    lost.fold()

    assert with_it == without + 1
    assert sys.getrefcount(emitted) == without


async def test_a_watch_is_not_resumed_by_another_account_other_filters_or_too_late() -> None:
    clock = ManualClock()
    tracer = Tracer(clock)
    watched = tracer.watch("c", TraceWatch(), Watcher(Viewer(), owner="me"))
    tracer.connection_lost("c")
    request = resumed(watched, 0, 0)

    def is_resumed(target: TraceWatch, owner: str) -> bool:
        again = tracer.watch("d", target, Watcher(Viewer(), owner=owner))
        assert again is not None
        return again.is_resumed

    assert not is_resumed(request, "you")
    assert not is_resumed(msgspec.structs.replace(request, topic="T"), "me")
    clock.advance_ms(round(LOST_SECONDS * 1000) + 1)
    tracer.push_all()
    assert not is_resumed(request, "me")
    await tracer.shutdown()


async def test_a_rate_limit_counts_dropped_events_by_stage(tracer: Tracer) -> None:
    viewer = Viewer()
    watch(tracer, "c", TraceWatch(events_per_second_max=3), viewer)

    for _ in range(5):
        stored(tracer)
    tracer.emit("delivered", "T", 0, 7)
    tracer.push_all()

    (batch,) = viewer.batches
    assert len(batch["events"]) == 3
    assert batch["dropped"] == "3"
    assert batch["offered"] == {"stored": "5", "delivered": "1"}


async def test_an_account_without_read_permission_any_longer_receives_nothing_of_a_topic(
    tracer: Tracer,
) -> None:
    readable = {"T", "%RETRY%g"}
    viewer = Viewer()
    tracer.watch("c", TraceWatch(), Watcher(viewer, may_see=readable.__contains__))

    stored(tracer, "T")
    stored(tracer, "secret")
    tracer.emit("refused", "", None, None, group="g")
    tracer.emit("refused", "", None, None)
    tracer.push_all()
    stored(tracer, "T")
    readable.discard("T")
    tracer.push_all()
    stored(tracer, "T")
    tracer.push_all()

    assert [(event["stage"], event["topic"]) for event in viewer.events] == [
        ("stored", "T"),
        ("refused", ""),
    ]
    # Events pending when the permission was revoked aren't sent; hidden events aren't counted.
    assert viewer.batches[-1]["dropped"] == "1"
    assert viewer.batches[-1]["offered"] == {"stored": "2", "refused": "1"}


STEPS = {"received": 0, "validated": 40, "appended": 5_040, "dispatched": 5_050}


@pytest.mark.parametrize(
    ("options", "more", "matches"),
    [
        ({"stages": ["received"]}, {"steps": STEPS}, True),
        ({"stages": ["received"]}, {}, False),
        ({"min_latency_us": {"appended": 5_000}}, {"steps": STEPS}, True),
        ({"min_latency_us": {"dispatched": 5_000}}, {"steps": STEPS}, False),
        ({"min_latency_us": {"stored": 7}}, {"latency_us": 7}, True),
        ({"min_latency_us": {"delivered": 7}}, {"latency_us": 7}, False),
        ({"min_total_ms": 2}, {"total_us": 2_000}, True),
        ({"min_total_ms": 2}, {"latency_us": 2_000}, False),
    ],
)
async def test_steps_and_times_are_filters(
    tracer: Tracer, options: dict[str, Any], more: dict[str, Any], matches: bool
) -> None:
    viewer = Viewer()
    watch(tracer, "c", TraceWatch(**options), viewer)

    stored(tracer, **more)
    tracer.push_all()

    assert bool(viewer.events) is matches


async def test_watchers_have_their_own_filters(tracer: Tracer) -> None:
    one, two = Viewer(), Viewer()
    watch(tracer, "1", TraceWatch(topic="T"), one)
    watch(tracer, "2", TraceWatch(topic="U"), two)

    stored(tracer, "T")
    stored(tracer, "U")
    tracer.push_all()

    assert [event["topic"] for event in one.events] == ["T"]
    assert [event["topic"] for event in two.events] == ["U"]


def test_a_filter_with_an_unknown_field_is_rejected() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"topc":"T"}', type=TraceWatch)


async def test_strangers_at_one_address_do_not_use_up_others_places() -> None:
    limits = LimitsConfig(watcher_nums_max=4, host_watcher_nums_max=3)
    tracer = Tracer(ManualClock(), limits)
    watches = [watch(tracer, n, TraceWatch(), Viewer(), "10.0.0.1") for n in range(64)]

    assert [watch is not None for watch in watches] == [True] * 3 + [False] * 61
    assert watch(tracer, "console", TraceWatch(), Viewer(), "10.0.0.2") is not None
    assert watch(tracer, "late", TraceWatch(), Viewer(), "10.0.0.3") is None
    assert watch(tracer, 0, TraceWatch(topic="T"), Viewer(), "10.0.0.1") is not None
    tracer.unwatch(1)
    assert watch(tracer, "late", TraceWatch(), Viewer(), "10.0.0.3") is not None
    await tracer.shutdown()


def test_a_failing_watch_affects_neither_its_message_nor_the_other_watches(
    tracer: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, well = Viewer(), Viewer()
    bad = watch(tracer, "failing", TraceWatch(), failing)
    watch(tracer, "well", TraceWatch(), well)
    assert bad is not None
    offer = Watch.offer

    def fail_for_one(self: Watch, *arguments: Any) -> bool:
        if self.watch_id == bad.watch_id:
            raise KeyError("of a bug")
        return offer(self, *arguments)

    monkeypatch.setattr(Watch, "offer", fail_for_one)
    stored(tracer)
    tracer.push_all()

    assert len(well.events) == 1
    assert failing.events == []


def test_unwritable_events_are_dropped_and_later_ones_arrive(
    tracer: Tracer,
) -> None:
    viewer = Viewer()
    watch(tracer, "c", TraceWatch(), viewer)

    tracer.emit("stored", "T", cast("int", object()), 7)
    tracer.push_all()
    stored(tracer, topic="Next")
    tracer.push_all()

    assert [event["topic"] for event in viewer.events] == ["Next"]
    assert viewer.batches[-1]["dropped"] == "1"
