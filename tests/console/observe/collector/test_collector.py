"""Collector: a restart loses at most one sample, and nothing is counted twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from console.gateway.errors import BrokerDownError, NameServerDownError
from console.gateway.fakes.broker import ADDRESS, FakeBroker
from console.gateway.fakes.samples import FakeSamples
from console.gateway.sample import GroupSample, LargeSample, ProgressSample, TopicSample
from console.lib.moment import now_ms
from console.observe.collector.collector import FOLD_EVERY, WRITE_EVERY, Collector, until_next_ms
from console.observe.collector.sampler import CARRIED_MS_MAX, Moment, Sampler, covered_ms
from console.observe.history import metrics
from console.observe.history.database import HistoryError, SqliteDatabase
from console.observe.history.metrics import Column, Subject
from console.observe.history.status import STATUS, Status
from console.observe.history.store import HistoryStore
from console.observe.history.tiers import FINE
from tests.support.collector_samples import START_MS, TestTime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from console.observe.history.metrics import Metric

ORDERS = Subject(metrics.TOPIC, "broker-a", "Orders")


class World:
    """A broker, its collector, which can be restarted, and the stored history."""

    def __init__(self, directory: Path) -> None:
        self.broker = FakeBroker()
        self.broker.add_topic("Orders", queue_nums=1)
        self.samples = FakeSamples(self.broker)
        self.time = TestTime()
        self.store = HistoryStore(SqliteDatabase(directory / "history.sqlite3"))
        self.collector = self.new_collector()

    def new_collector(self) -> Collector:
        self.collector = Collector(self.samples, self.store, self.time, pid=1)
        return self.collector

    def put(self, count: int) -> None:
        self.broker.put("Orders", 0, *range(count))

    def turn(self, *, puts: int = 0, after_ms: int = 10_000) -> None:
        """Put messages, advance the time, take a sample."""
        self.put(puts)
        self.time.pass_ms(after_ms)
        self.collector.turn()

    def rows(self, metric: Metric, slots: int, subject: Subject = ORDERS) -> list[int | None]:
        """Return a figure's sums from the start on, None where it's unknown."""
        number = self.store.all_subjects()[subject]
        found = self.store.read([number], FINE, START_MS // 10_000, slots)[number]
        column = Column(metric.code)
        weight, total = found.weight(column), found.sum(column)
        if weight is None or total is None:
            return [None] * slots
        return [int(v) if w else None for w, v in zip(weight, total, strict=True)]

    def status(self) -> Status:
        data = self.store.noted(STATUS)
        assert data is not None
        return msgspec.json.decode(data, type=Status)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.store.database.close()


def test_events_between_two_samples_are_kept(world) -> None:
    world.collector.turn()
    world.turn(puts=5)
    world.turn(puts=0)

    assert world.rows(metrics.PUT, 3) == [None, 5, 0]
    assert world.rows(metrics.RETAINED, 3) == [0, 5, 5]


def test_a_new_collector_continues_where_the_last_one_ended(world) -> None:
    world.collector.turn()
    world.turn(puts=5)
    world.new_collector()
    world.turn(puts=3)
    world.new_collector()
    world.turn(puts=2)

    assert world.rows(metrics.PUT, 4) == [None, 5, 3, 2]


def test_a_short_pause_is_a_gap_whose_messages_count(world) -> None:
    world.collector.turn()
    world.turn(puts=6, after_ms=30_000)
    number = world.store.all_subjects()[ORDERS]
    found = world.store.read([number], FINE, START_MS // 10_000, 4)[number]

    assert world.rows(metrics.PUT, 4) == [None, None, None, 6]
    # Over thirty seconds, so the rate is correct.
    assert found.weight(Column(metrics.PUT.code)).tolist() == [0, 0, 0, 30_000]


def test_after_a_long_pause_counting_starts_over(world) -> None:
    world.collector.turn()
    world.turn(puts=500, after_ms=CARRIED_MS_MAX + 10_000)
    world.turn(puts=2)

    slots = CARRIED_MS_MAX // 10_000 + 3
    assert [value for value in world.rows(metrics.PUT, slots) if value is not None] == [2]


def test_a_restarted_broker_causes_no_loss_and_no_jump(world) -> None:
    world.collector.turn()
    world.turn(puts=5)
    world.broker.silent = BrokerDownError(ADDRESS, "refused")
    world.turn(puts=4)
    world.broker.silent = None
    world.samples.boot_timestamp = START_MS
    world.turn()

    assert world.rows(metrics.PUT, 4) == [None, 5, None, 4]


def test_a_clock_that_steps_back_makes_no_rate_negative_and_loses_no_message(world) -> None:
    world.collector.turn()
    for _ in range(3):
        world.turn(puts=2)
    world.time.wall_ms -= 20_000
    world.turn(puts=2)
    world.turn(puts=2)

    rows = world.rows(metrics.PUT, 4)
    assert sum(value for value in rows if value) == 10
    assert rows == [None, 2, 4, 4]


def test_after_a_restart_with_a_clock_step_back_one_sample_is_unknown(world) -> None:
    world.collector.turn()
    world.turn(puts=2)
    world.time.wall_ms -= 3_600_000
    world.new_collector()
    world.turn(puts=9)
    world.turn(puts=1)

    early = (START_MS - 3_600_000) // 10_000
    number = world.store.all_subjects()[ORDERS]
    found = world.store.read([number], FINE, early, 4)[number]
    assert found.sum(Column(metrics.PUT.code)).tolist() == [0, 0, 0, 1]


def test_an_unresponsive_broker_is_a_named_gap(world) -> None:
    world.collector.turn()
    world.broker.silent = BrokerDownError(ADDRESS, "refused")
    world.turn()

    assert world.rows(metrics.RETAINED, 2) == [0, None]
    assert "refused" in world.status().problems["broker-a:0"]


def test_without_a_name_server_there_is_no_sample_and_the_reason_is_kept(world) -> None:
    world.broker.fails = NameServerDownError(["127.0.0.1:9876"], "refused")

    world.collector.turn()

    assert "127.0.0.1:9876" in world.status().problems["*"]


def test_a_sample_rejected_by_the_disk_is_counted_with_the_next(world) -> None:
    world.collector.turn()
    database = world.store.database
    [(pages,)] = database.rows("PRAGMA page_count")
    database.run(f"PRAGMA max_page_count={pages}")
    problems: dict[str, str] = {}
    sampler = Sampler(world.samples, world.store)
    while not problems:
        world.put(1)
        world.time.pass_ms(10_000)
        problems = sampler.take(world.time.now()).problems
    database.run("PRAGMA max_page_count=1073741823")
    world.put(1)
    world.time.pass_ms(10_000)
    sampler.take(world.time.now())

    assert "full" in problems[""]
    total = len(world.broker.queues[next(iter(world.broker.queues))].store_timestamps)
    slots = (world.time.wall_ms - START_MS) // 10_000 + 1
    assert sum(value for value in world.rows(metrics.PUT, slots) if value) == total


def test_samples_are_folded_in_between(world) -> None:
    world.turn()
    turns = 0

    def judge(_now: int, _noticed: object, _facts: object) -> None:
        nonlocal turns
        turns += 1
        if turns == FOLD_EVERY + 1:
            world.collector.stop.set()

    world.collector = Collector(world.samples, world.store, world.time, pid=1, judge=judge)
    world.collector.run()

    assert world.store.samples_waiting() <= 2
    assert [v for v in world.rows(metrics.RETAINED, FOLD_EVERY + 3) if v is not None]


INT64_MAX = (1 << 63) - 1
ODD = {
    "an end beyond 64 bits": {"topics": [TopicSample("Orders", 1, [0, 0, 1 << 63])]},
    "ends as far apart as can be": {
        "topics": [TopicSample("Orders", 1, [0, -INT64_MAX, INT64_MAX, 1, 0, INT64_MAX])]
    },
    "bytes beyond 64 bits": {"topics": [TopicSample("Orders", 1 << 70, [0, 0, 1])]},
    "an offset that a client made up": {
        "progress": [ProgressSample("g", "Orders", [0, INT64_MAX, 1, -1])]
    },
    "a lag beyond 64 bits": {
        "progress": [
            ProgressSample(
                "g", "Orders", [n for q in range(9) for n in (q, -INT64_MAX, INT64_MAX, 0)]
            )
        ]
    },
    "a counter beyond 64 bits": {"counters": {"put": 1 << 200}},
    "a gauge beyond 64 bits": {"gauges": {"rss": -(1 << 200)}},
    "members beyond 64 bits": {"groups": [GroupSample("g", 1 << 99)]},
    "queues beyond 64 bits": {"topics": [TopicSample("Orders", 1, [0, 0, 1], 1 << 99)]},
    "a message beyond 64 bits": {"large": [LargeSample("Orders", 1 << 99, 0, 0)]},
}


@pytest.mark.parametrize("changes", ODD.values(), ids=ODD)
def test_no_number_from_a_broker_breaks_the_collector_or_its_data(
    world, monkeypatch, changes
) -> None:
    world.collector.turn()
    node, whole = next(iter(world.samples.take().items()))
    odd = msgspec.structs.replace(whole, **changes)
    for sample in (odd, whole, odd, odd):
        monkeypatch.setattr(world.samples, "take", lambda sample=sample: {node: sample})
        world.turn()
        assert world.status().problems == {}
    monkeypatch.undo()
    world.collector.fold()

    world.turn(puts=3)
    world.turn(puts=4)
    world.collector.fold()

    assert world.status().problems == {}
    assert world.rows(metrics.PUT, 7)[-1] == 4
    assert world.store.samples_waiting() == 0


def test_a_broker_with_an_unusable_answer_does_not_stop_others_from_being_sampled(
    world, monkeypatch
) -> None:
    node, whole = next(iter(world.samples.take().items()))
    bad = msgspec.structs.replace(whole, broker_name="broker-b", counters=None)
    other = replace(node, broker_name="broker-b")
    monkeypatch.setattr(world.samples, "take", lambda: {other: bad, node: whole})

    world.turn()
    world.turn()

    assert set(world.status().problems) == {"broker-b:0"}
    assert world.rows(metrics.RETAINED, 3)[1:] == [0, 0]


@pytest.mark.parametrize("error", [KeyError("of a bug"), HistoryError("locked")])
def test_failing_rules_end_no_sample(world, error) -> None:
    def judge(*_: object) -> None:
        raise error

    world.collector = Collector(world.samples, world.store, world.time, pid=1, judge=judge)
    world.turn(puts=1)
    world.turn(puts=2)

    assert [v for v in world.rows(metrics.PUT, 3) if v is not None] == [2]


def test_unwritable_hours_end_no_sample(world) -> None:
    turns = 0

    def write(_: int) -> Iterator[None]:
        raise KeyError("of a bug")
        yield

    def judge(*_: object) -> None:
        nonlocal turns
        turns += 1
        if turns == 2 * WRITE_EVERY:
            world.collector.stop.set()

    world.collector = Collector(
        world.samples, world.store, world.time, pid=1, judge=judge, write_hours=write
    )
    world.collector.run()

    assert turns == 2 * WRITE_EVERY


def test_a_group_that_keeps_up_is_not_examined(world) -> None:
    world.broker.add_group("billing")
    soon_ms = now_ms() + 3_600_000
    world.broker.put("Orders", 0, 1, 2, soon_ms)
    world.broker.offsets["billing", "Orders", 0] = 2
    sampler = Sampler(world.samples, world.store)
    sampler.take(world.time.now())
    assert not sampler.noticed

    world.broker.offsets["billing", "Orders", 0] = 1
    sampler.take(world.time.now())

    assert {each.kind for each in sampler.noticed} == {metrics.GROUP, metrics.PROGRESS}


@pytest.mark.parametrize(
    ("accounted", "wall_before", "covered"),
    [
        (Moment(0, 0), None, 10_000),
        (Moment(0, 40), None, 10_000),
        (Moment(0, -CARRIED_MS_MAX), None, 0),
        (None, None, 0),
        (None, START_MS - 20_000, 20_000),
        (None, START_MS + 1, 0),
    ],
)
def test_a_samples_fields(accounted, wall_before, covered) -> None:
    assert covered_ms(accounted, wall_before, Moment(START_MS, 10_000)) == covered


@pytest.mark.parametrize(("wall", "left"), [(0, 10_000), (1, 9_999), (9_700, 10_300)])
def test_samples_are_taken_at_the_start_of_ten_seconds(wall, left) -> None:
    assert until_next_ms(wall) == left


def test_a_failover_is_marked_and_so_is_a_restart(world) -> None:
    world.samples.gauges = {"epoch": 1}
    world.collector.turn()
    world.samples.boot_timestamp = START_MS + 1
    world.turn()
    world.samples.gauges, world.samples.boot_timestamp = {"epoch": 2}, START_MS + 2
    world.turn()

    events = world.store.events(0, 1 << 60)
    assert sorted(each.what for each in events) == ["failover", "restart"]
