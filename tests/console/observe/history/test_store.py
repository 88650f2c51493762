"""HistoryStore: stored data can be read back exactly once, folded or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from console.observe.history import codec, metrics
from console.observe.history.database import HistoryError, SqliteDatabase
from console.observe.history.metrics import Column, Subject
from console.observe.history.points import MISSING, SUM, WEIGHT
from console.observe.history.store import SUBJECTS_A_STEP, HistoryStore
from console.observe.history.tiers import COARSE, DAY_MS, FINE, MIDDLE, TIERS, tier_for
from tests.support.history_points import layout_of

if TYPE_CHECKING:
    from pathlib import Path

    from console.observe.history.database import Database
    from console.observe.history.points import Points
    from console.observe.history.tiers import Tier

START_MS = 1_795_251_600_000
PUT, LAG = Column(metrics.PUT.code), Column(metrics.LAG.code)
ORDERS = Subject(metrics.TOPIC, "broker-a", "Orders")
BILLS = Subject(metrics.TOPIC, "broker-a", "Bills")


class Written:
    """A store with samples of some topics, ten seconds apart."""

    def __init__(self, store: HistoryStore) -> None:
        self.store = store
        self.ids = store.subject_ids([ORDERS, BILLS], START_MS)

    def add(self, index: int, orders: int, bills: int | None = 7, *, covered: int = 10_000) -> None:
        numbers = {(self.ids[ORDERS], PUT): orders, (self.ids[ORDERS], LAG): index}
        if bills is not None:
            numbers[self.ids[BILLS], PUT] = bills
        layout, order = layout_of(numbers)
        values = np.array(list(numbers.values()), dtype=np.int64)[order]
        at = START_MS + index * 10_000
        self.store.add_sample("broker-a:0", at, covered, layout, values, b"{}")

    def fold(self) -> None:
        for _ in self.store.fold():
            continue

    def sums(self, subject: Subject, tier: Tier = FINE, slots: int = 360) -> list[int | None]:
        """Return the sum of PUT in each slot, None where it's unknown."""
        number = self.ids[subject]
        found = self.store.read([number], tier, START_MS // tier.step_ms, slots)[number]
        weight, total = found.weight(PUT), found.sum(PUT)
        if weight is None or total is None:
            return [None] * slots
        return [int(v) if w else None for w, v in zip(weight, total, strict=True)]


@pytest.fixture
def written(database: Database) -> Written:
    return Written(HistoryStore(database))


def test_a_sample_can_be_read_immediately(written) -> None:
    written.add(0, 5)
    written.add(2, 6)

    assert written.sums(ORDERS, slots=4) == [5, None, 6, None]
    assert written.sums(BILLS, slots=4) == [7, None, 7, None]


def test_folding_does_not_change_query_results(written) -> None:
    for index in range(80):
        written.add(index, index * 3, None if index % 5 else index)
    before = {tier: (written.sums(ORDERS, tier), written.sums(BILLS, tier)) for tier in TIERS}

    written.fold()

    assert written.store.samples_waiting() == 0
    assert {t: (written.sums(ORDERS, t), written.sums(BILLS, t)) for t in TIERS} == before
    for tier in TIERS:
        assert sum(v for v in written.sums(ORDERS, tier) if v) == sum(n * 3 for n in range(80))


def test_samples_after_a_fold_are_added_to_the_same_blocks(written) -> None:
    for index in range(9):
        written.add(index, 1)
        if index % 3 == 2:
            written.fold()
    written.add(9, 1)

    assert written.sums(ORDERS, slots=10) == [1] * 10
    assert written.sums(ORDERS, MIDDLE, 2) == [6, 4]
    assert written.sums(ORDERS, COARSE, 1) == [10]


def test_an_interrupted_fold_adds_nothing_twice(database: Database) -> None:
    subjects = [Subject(metrics.TOPIC, "b", f"t{n}") for n in range(SUBJECTS_A_STEP * 3)]
    store = HistoryStore(database)
    ids = store.subject_ids(subjects, START_MS)
    layout, order = layout_of((number, PUT) for number in ids.values())
    for index in range(3):
        values = np.full(len(ids), 4, dtype=np.int64)[order]
        store.add_sample("b:0", START_MS + index * 10_000, 10_000, layout, values, b"{}")
    steps = store.fold()
    next(steps)
    next(steps)
    del steps

    # Another process continues.
    again = HistoryStore(database)
    found = again.read(list(ids.values()), FINE, START_MS // 10_000, 3)
    for _ in again.fold():
        continue
    folded = again.read(list(ids.values()), FINE, START_MS // 10_000, 3)

    for number in ids.values():
        assert found[number].table[SUM].tolist() == [[4, 4, 4]]
        assert folded[number].table[SUM].tolist() == [[4, 4, 4]]


def test_a_clock_that_steps_back_repeats_a_time_and_loses_nothing(written) -> None:
    for index in (0, 1, 2, 3, 1, 2, 3, 4):
        written.add(index, 10)
    before = written.sums(ORDERS, slots=5)
    written.fold()

    assert before == written.sums(ORDERS, slots=5) == [10, 20, 20, 20, 10]
    number = written.ids[ORDERS]
    found = written.store.read([number], FINE, START_MS // 10_000, 5)[number]
    # Twice as much in twice the time: the rate is the same.
    assert found.weight(PUT).tolist() == [10_000, 20_000, 20_000, 20_000, 10_000]


def test_a_counter_without_a_time_is_a_gap(written) -> None:
    written.add(0, 999, covered=0)
    written.add(1, 5)

    assert written.sums(ORDERS, slots=2) == [None, 5]


def test_each_tier_keeps_its_time(written) -> None:
    written.add(0, 5)
    written.fold()
    store = written.store

    store.expire(START_MS + 2 * DAY_MS)
    assert written.sums(ORDERS, FINE, 1) == [None]
    assert written.sums(ORDERS, MIDDLE, 1) == [5]
    store.expire(START_MS + 16 * DAY_MS)
    assert written.sums(ORDERS, MIDDLE, 1) == [None]
    assert written.sums(ORDERS, COARSE, 1) == [5]
    store.expire(START_MS + 370 * DAY_MS)
    assert written.sums(ORDERS, COARSE, 1) == [None]
    assert store.all_subjects() == {}


def test_history_beyond_the_size_limit_is_dropped_early_oldest_first(written) -> None:
    database = written.store.database
    rng = np.random.default_rng(1)
    days = 20
    for index in range(days):
        at = START_MS + index * DAY_MS
        layout, order = layout_of(
            (written.ids[each], Column(code)) for each in (ORDERS, BILLS) for code in range(1, 200)
        )
        noise = rng.integers(0, 1 << 49, len(order))
        written.store.add_sample("broker-a:0", at, 10_000, layout, noise, b"{}")
    written.fold()
    with database.transaction(writes=False):
        full = database.bytes_used()
        [(oldest,)] = database.rows("SELECT MIN(block) FROM history_blocks WHERE tier = 2")

    written.store.expire(START_MS, bytes_max=full * 9 // 10)

    with database.transaction(writes=False):
        [(left,)] = database.rows("SELECT MIN(block) FROM history_blocks WHERE tier = 2")
        assert 0 < database.bytes_used() <= full * 9 // 10
    assert left > oldest


def test_a_full_disk_rejects_a_sample_and_accepts_the_next_when_there_is_room(
    tmp_path: Path,
) -> None:
    database = SqliteDatabase(tmp_path / "history.sqlite3")
    written = Written(HistoryStore(database))
    written.add(0, 5)
    [(pages,)] = database.rows("PRAGMA page_count")
    database.run(f"PRAGMA max_page_count={pages}")
    rng = np.random.default_rng(1)
    layout, order = layout_of((number, Column(code)) for number in (1, 2) for code in range(1, 99))
    noise = rng.integers(0, 1 << 49, len(order))

    def fill() -> None:
        for index in range(1, 100):
            at = START_MS + index * 10_000
            written.store.add_sample("broker-a:0", at, 10_000, layout, noise, b"{}")

    with pytest.raises(HistoryError, match="full"):
        fill()

    database.run("PRAGMA max_page_count=1073741823")
    written.add(200, 6)
    assert written.sums(ORDERS, slots=1) == [5]
    assert written.sums(ORDERS, slots=201)[-1] == 6
    database.close()


def test_one_process_writes_at_a_time(database: Database) -> None:
    with (
        database.lock(),
        pytest.raises(HistoryError, match="another collector"),
        database.lock(),
    ):
        pytest.fail("two hold it")
    entered = []
    with database.lock():
        entered.append(True)
    assert entered


def test_a_missing_value_is_unknown_and_not_zero(written) -> None:
    layout, order = layout_of([(written.ids[ORDERS], PUT)])
    values = np.array([MISSING], dtype=np.int64)[order]
    written.store.add_sample("broker-a:0", START_MS, 10_000, layout, values, b"{}")
    written.fold()

    assert written.sums(ORDERS, slots=1) == [None]
    number = written.ids[ORDERS]
    found = written.store.read([number], COARSE, START_MS // COARSE.step_ms, 1)[number]
    assert not found.table[WEIGHT].any()


@pytest.mark.parametrize(
    ("hours", "age_hours", "tier"),
    [(1, 1, FINE), (4, 4, FINE), (24, 24, MIDDLE), (1, 30, MIDDLE), (720, 720, COARSE)],
)
def test_a_chart_is_as_fine_as_possible(hours, age_hours, tier) -> None:
    hour = 3_600_000
    now = START_MS
    low = now - age_hours * hour

    assert tier_for(low, low + hours * hour, now) == tier


def test_data_derived_from_all_samples_is_recomputed_with_each_of_them(written: Written) -> None:
    made: list[int] = []

    def make() -> int:
        made.append(len(made))
        return made[-1]

    written.add(0, 1)
    first = [written.store.cached_result("sum", make) for _ in range(3)]
    written.add(1, 2)
    second = [written.store.cached_result("sum", make) for _ in range(3)]
    written.fold()

    assert (first, second) == ([0] * 3, [1] * 3)
    assert written.store.cached_result("sum", make) == 2


@pytest.mark.parametrize("value", [(1 << 63) - 1, -(1 << 63) + 1])
def test_figures_of_any_size_are_folded_and_read(written, value) -> None:
    for index, orders in enumerate((value, 1, -value, value, 2)):
        written.add(index, orders)
        written.fold()

    assert written.sums(ORDERS, slots=5)[1::3] == [1, 2]
    assert written.sums(BILLS, slots=5) == [7] * 5


def test_a_damaged_block_loses_only_its_own_points(written) -> None:
    written.add(0, 1)
    written.fold()
    database = written.store.database
    with database.transaction(writes=True):
        database.run(
            "UPDATE history_blocks SET points = ? WHERE subject = ?",
            (b"damaged", written.ids[ORDERS]),
        )
    assert written.sums(ORDERS, slots=2) == [None, None]
    assert written.sums(BILLS, slots=2) == [7, None]

    written.add(1, 2)
    written.fold()

    assert written.sums(ORDERS, slots=2) == [None, 2]
    assert written.sums(BILLS, slots=2) == [7, 7]


def test_a_damaged_sample_is_skipped_and_removed_by_the_next_fold(written) -> None:
    for index in range(3):
        written.add(index, 5)
    database = written.store.database
    with database.transaction(writes=True):
        for column, value, index in (("numbers", b"damaged", 1), ("layout", "gone", 2)):
            database.run(
                f"UPDATE history_samples SET {column} = ? WHERE at_ms = ?",
                (value, START_MS + index * 10_000),
            )
    again = HistoryStore(database)
    written.store = again
    assert written.sums(ORDERS, slots=3) == [5, None, None]

    written.fold()

    assert written.sums(ORDERS, slots=3) == [5, None, None]
    assert again.samples_waiting() == 0


def test_a_series_that_cannot_be_written_does_not_affect_others(written, monkeypatch) -> None:
    encode = codec.encode

    def fail_for_one(points: Points) -> bytes:
        if LAG in points.columns:
            raise ValueError("of a bug")
        return encode(points)

    monkeypatch.setattr(codec, "encode", fail_for_one)
    written.add(0, 5)
    written.fold()

    assert written.store.samples_waiting() == 0
    assert written.sums(BILLS, slots=1) == [7]
