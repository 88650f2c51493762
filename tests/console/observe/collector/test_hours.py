"""Complete hours: each becomes one whole file, and the lake matches the history."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from console.gateway.fakes.broker import FakeBroker
from console.gateway.fakes.samples import FakeSamples
from console.observe.collector import hours
from console.observe.collector.collector import WRITE_EVERY, Collector
from console.observe.collector.hours import CLOSED_AFTER_MS, KEPT_HOURS, HourFiles, name_of
from console.observe.history import metrics
from console.observe.history.database import SqliteDatabase
from console.observe.history.metrics import Subject, pair
from console.observe.history.store import HistoryStore
from console.observe.history.tiers import HOUR_MS
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder
from tests.support.collector_samples import START_MS, TestTime
from tests.support.foreign_entries import leave_in
from tests.support.history_points import keep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from console.observe.history.metrics import Metric

HOUR = START_MS // HOUR_MS
ORDERS = Subject(metrics.TOPIC, "broker-a", "orders")
READ = Subject(metrics.PROGRESS, "broker-a", pair("billing", "orders"))
BROKER = Subject(metrics.BROKER, "broker-a", "0")


class Written:
    """A history, and the folder of its hours."""

    def __init__(self, directory: Path) -> None:
        self.store = HistoryStore(SqliteDatabase(directory / "history.sqlite3"))
        self.folder = directory / "samples"
        self.files = HourFiles(self.store, self.folder)

    def sample(self, hour: int, orders: list[int | None]) -> None:
        """Store ten-second samples from the beginning of an hour on."""
        rows: dict[tuple[Subject, Metric], list[int | None]] = {
            (ORDERS, metrics.PUT): orders,
            (READ, metrics.LAG): [7] * len(orders),
            (BROKER, metrics.LATE): [2] * len(orders),
        }
        keep(self.store, hour * HOUR_MS, rows)

    def write(self, now_ms: int) -> None:
        for _ in self.files.write(now_ms):
            continue

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def lines(self, hour: int) -> list[dict[str, Any]]:
        text = gzip.decompress((self.folder / name_of(hour)).read_bytes())
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path)
    yield made
    made.store.database.close()


def after(hour: int) -> int:
    """Return a time just after the end of an hour."""
    return (hour + 1) * HOUR_MS + CLOSED_AFTER_MS


def test_an_hour_is_written_once_it_is_complete(written: Written) -> None:
    written.sample(HOUR, [None, 5, 6])

    written.write(after(HOUR) - 1)
    early = written.names()
    written.write(after(HOUR))

    assert name_of(HOUR) not in early
    assert written.names() == sorted(name_of(HOUR - each) for each in range(KEPT_HOURS))
    (put,) = [line for line in written.lines(HOUR)[1:] if line["metric"] == "put"]
    assert put == {
        "kind": "topic",
        "metric": "put",
        "unit": "msg",
        "is_counter": True,
        "minutes": [0],
        "weights": [20_000],
        "sums": [11],
        "maxima": [6],
        "broker": "broker-a",
        "topic": "orders",
    }


def test_the_lakes_data_matches_the_history(written: Written, tmp_path: Path) -> None:
    written.sample(HOUR, [None, *range(1, 30)])
    for _ in written.store.fold():
        continue
    written.sample(HOUR + 1, [4] * 12)
    written.write(after(HOUR + 1))
    builder = StoreBuilder(tmp_path / "store")
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)

    lake.take_samples(written.folder)

    minutes = (
        "SELECT (epoch_ms(minute) - {}) // 60000, total, highest, weight FROM bronze.samples "
        "WHERE kind = '{}' AND metric = '{}' ORDER BY 1"
    )
    assert lake.query(minutes.format(HOUR * HOUR_MS, "topic", "put")) == [
        (0, sum(range(1, 6)), 5, 50_000),
        *((each, sum(range(each * 6, each * 6 + 6)), each * 6 + 5, 60_000) for each in range(1, 5)),
        *((each, 24, 4, 60_000) for each in (60, 61)),
    ]
    assert lake.query(
        "SELECT DISTINCT topic, consumer_group, broker, name, total / weight FROM bronze.samples "
        "WHERE metric = 'lag'"
    ) == [("orders", "billing", "broker-a", None, 7.0)]
    assert lake.query(
        "SELECT DISTINCT name, topic, sum(weight) FROM bronze.samples WHERE metric = 'late' "
        "GROUP BY ALL"
    ) == [("0", None, 42)]


def test_clients_are_counted_by_group_language_and_version(
    written: Written, tmp_path: Path
) -> None:
    rows: dict[tuple[Subject, Metric], list[int | None]] = {
        (Subject(kind, "broker-a", pair(group, version)), metrics.MEMBERS): [count] * 6
        for kind, group, version, count in (
            (metrics.CONSUMERS, "billing", "JAVA v5_3_1", 2),
            (metrics.PRODUCERS, "shop", "GO v5_1_4", 1),
        )
    }
    keep(written.store, HOUR * HOUR_MS, rows)
    written.write(after(HOUR))
    lake = Lake(tmp_path / "lake", StoreBuilder(tmp_path / "store").write())

    lake.take_samples(written.folder)

    assert lake.query(
        "SELECT DISTINCT kind, consumer_group, name, highest FROM bronze.samples "
        "WHERE metric = 'members' ORDER BY kind"
    ) == [
        ("consumers", "billing", "JAVA v5_3_1", 2),
        ("producers", None, "shop@GO v5_1_4", 1),
    ]


def test_files_older_than_three_days_are_removed_and_none_is_rewritten(written: Written) -> None:
    written.sample(HOUR, [5])
    written.write(after(HOUR))
    kept = written.folder / name_of(HOUR)
    kept.write_bytes(b"as it was")

    written.write(after(HOUR + KEPT_HOURS - 1))
    last = kept.read_bytes()
    written.write(after(HOUR + KEPT_HOURS))

    assert last == b"as it was"
    assert not kept.exists()
    assert len(written.names()) == KEPT_HOURS


def test_others_files_in_the_folder_stay(written: Written) -> None:
    written.folder.mkdir()
    left = leave_in(written.folder)

    written.write(after(HOUR))

    assert all(path.exists() for path in left)
    assert name_of(HOUR) in written.names()


def test_an_exit_in_the_middle_leaves_no_file_and_the_next_run_writes_it(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.sample(HOUR, [5])
    written.write(after(HOUR - 1))
    monkeypatch.setattr(hours, "SUBJECTS_A_STEP", 1)
    begun = written.files.write(after(HOUR))
    next(begun)
    names = written.names()
    del begun

    written.write(after(HOUR))

    assert name_of(HOUR) not in names
    assert name_of(HOUR) in written.names()
    assert not [name for name in written.names() if name.endswith(".tmp")]
    assert len(written.lines(HOUR)) == 4


def test_a_collector_writes_hours_between_samples_and_continues_after_failures(
    written: Written, caplog: pytest.LogCaptureFixture
) -> None:
    time = TestTime()
    began: list[int] = []

    def write(now_ms: int) -> Iterator[None]:
        began.append(now_ms)
        yield
        if len(began) == 1:
            raise OSError("no space left on device")
        collector.stop.set()

    broker = FakeBroker()
    broker.add_topic("Orders", queue_nums=1)
    samples = FakeSamples(broker)
    collector = Collector(samples, written.store, time, 1, write_hours=write)

    collector.run()

    assert len(began) == 2
    assert began[1] - began[0] == WRITE_EVERY * 10_000
    assert "hours not written for the lake, will retry error=no space left on device" in caplog.text
