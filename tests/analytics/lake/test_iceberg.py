"""Iceberg next to Delta: the same files and rows, whatever happens to the lake."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import load_catalog

from analytics.errors import LakeError
from analytics.lake import iceberg
from analytics.lake.bodies import BodyRule, BodyRules
from analytics.lake.body_columns import columns_of
from analytics.lake.jobs import LakeJobs
from analytics.lake.maintenance import maintain
from analytics.lake.place import LakePlace
from analytics.lake.repair import forget, rebuild
from analytics.lake.silver_tables import tables_in
from analytics.lake.tables import MESSAGES
from analytics.lake.watermark import Watermark
from analytics.lake.writer import ArrowWriter
from tests.analytics.lake.lakes import BROKER, Lake, SmallBatches
from tests.analytics.store_builder import START_MS, StoreBuilder
from tests.support import iceberg_duckdb

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

DAY_MS = 86_400_000
FIRST_DAY = datetime.fromtimestamp(START_MS / 1000, UTC).date()
FORMATS = {"TREBUCHET_LAKE_FORMATS": "delta,iceberg"}
TABLES = ("bronze.messages", "gold.traffic_minute", "gold.keys_day", "silver.orders")


class StopError(Exception):
    """A kill."""


def filled(directory: Path, count: int = 24) -> Lake:
    """Return a lake of two days in three batches, with Iceberg tables and bodies as columns."""
    builder = StoreBuilder(directory / "store")
    for number in range(count):
        builder.put(
            "orders",
            body=b'{"number": %d, "to": {"city": "Ulm"}}' % number if number % 4 else b"-",
            properties=b"KEYS\x01k%d all\x02UNIQ_KEY\x01U%02d" % (number, number),
            store_timestamp=START_MS + DAY_MS * (number // (count // 2)) + number,
        )
    builder.write()
    columns = columns_of("orders", {"number": "long", "to": {"city": "string"}}, is_short=True)
    rules = BodyRules({"orders": BodyRule(columns=columns)})
    lake = Lake(directory / "lake", builder.root, rules=rules)
    lake.place = LakePlace.of(str(lake.directory), None, FORMATS)
    return lake


def ingest(lake: Lake) -> None:
    writer = SmallBatches(ArrowWriter(), 2_000)
    LakeJobs(lake.place, lambda: writer, seconds=60).ingest(lake.source)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = filled(tmp_path)
    ingest(made)
    return made


def table_of(lake: Lake, name: str) -> Table:
    """Open a table like a user who has the catalogue file but not our code."""
    uri = f"sqlite:///{lake.directory}/iceberg.db"
    return load_catalog("trebuchet", type="sql", uri=uri).load_table(name)


def by_pyiceberg(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    return rows_of(table_of(lake, name).scan().to_arrow())


def by_delta(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    table = next(each for each in tables_in(lake.place) if each.name == name)
    return rows_of(table.dataset(lake.place).to_table().select(table.schema.names))


def rows_of(found: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def assert_equal(lake: Lake) -> None:
    for name in TABLES:
        assert by_pyiceberg(lake, name) == by_delta(lake, name), name


def test_iceberg_has_deltas_rows_files_and_the_logs_offset(lake: Lake) -> None:
    assert_equal(lake)
    found = table_of(lake, MESSAGES.name)
    delta = MESSAGES.existing(lake.place)
    assert {task.file.file_path for task in found.scan().plan_files()} == set(delta.file_uris())
    snapshot = found.current_snapshot()
    watermark = Watermark.of(delta, BROKER)
    assert snapshot is not None
    assert snapshot.summary is not None
    assert watermark is not None
    report = snapshot.summary.additional_properties
    assert report["trebuchet.delta-version"] == str(delta.version())
    assert report["trebuchet.log-offset.broker-a"] == str(watermark.offset)
    # No metadata contains keys, which would reveal forgotten messages.
    names = {field.field_id: field.name for field in found.schema().fields}
    for task in found.scan().plan_files():
        bounds = {names[number] for number in task.file.lower_bounds or {}}
        assert bounds == {"broker", "commit_log_offset", "topic", "store_timestamp"}
    assert len(found.scan(row_filter=f"day = '{FIRST_DAY}'").to_arrow()) == 12
    assert len(list(found.scan(row_filter=f"day = '{FIRST_DAY}'").plan_files())) < len(
        delta.file_uris()
    )


def test_duckdb_can_read_it(lake: Lake) -> None:
    sql = "SELECT {} FROM iceberg_scan('{}') ORDER BY 1, 2"
    messages = table_of(lake, MESSAGES.name).metadata_location
    silver = table_of(lake, "silver.orders").metadata_location

    found, orders = iceberg_duckdb.answers(
        sql.format("commit_log_offset, uniq_key, day::VARCHAR, keys[2]", messages),
        sql.format('number, "to".city', silver),
    )

    target = MESSAGES.dataset(lake.place).to_table().to_pylist()
    assert found == sorted(
        [row["commit_log_offset"], row["uniq_key"], str(row["day"]), "all"] for row in target
    )
    assert orders == [[number, "Ulm"] for number in range(24) if number % 4]


def test_iceberg_follows_merging_forgetting_retention_and_rebuild(lake: Lake) -> None:
    maintain(lake.place, FIRST_DAY + timedelta(days=9), ArrowWriter())
    iceberg.follow(lake.place)
    assert len(list(table_of(lake, MESSAGES.name).scan().plan_files())) == 2
    assert_equal(lake)

    forget(lake.place, "k5")
    assert_equal(lake)
    found = table_of(lake, MESSAGES.name)
    assert "U05" not in found.scan().to_arrow()["uniq_key"].to_pylist()
    # No snapshot refers to a deleted file.
    assert len(found.snapshots()) == 1

    maintain(lake.place, FIRST_DAY + timedelta(days=9), ArrowWriter(), bronze_days=8)
    iceberg.follow(lake.place)
    assert {row[0] for row in by_pyiceberg(lake, MESSAGES.name)} == {FIRST_DAY + timedelta(days=1)}
    assert_equal(lake)

    rebuild(lake.place, lake.source)
    assert by_pyiceberg(lake, MESSAGES.name) == []
    ingest(lake)
    assert_equal(lake)


def test_a_kill_between_the_formats_leaves_iceberg_to_catch_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = filled(tmp_path)

    def die(place: LakePlace) -> int:
        raise StopError

    with monkeypatch.context() as patched:
        patched.setattr(iceberg, "follow", die)
        with pytest.raises(LakeError):
            ingest(lake)
    assert len(by_delta(lake, MESSAGES.name)) == 24
    assert not (lake.directory / "iceberg.db").exists()

    ingest(lake)

    assert_equal(lake)


def test_a_failing_catalogue_only_holds_back_iceberg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = filled(tmp_path)
    monkeypatch.setenv("PYICEBERG_CATALOG__TREBUCHET__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__TREBUCHET__URI", "http://127.0.0.1:9")
    with pytest.raises(LakeError, match="couldn't be updated from Delta"):
        ingest(lake)
    assert len(by_delta(lake, MESSAGES.name)) == 24
    status = json.loads((lake.directory / "status.json").read_text())
    assert "Delta isn't affected" in status["error"]
    monkeypatch.undo()

    ingest(lake)

    assert_equal(lake)


def test_torn_metadata_is_rebuilt_from_delta(lake: Lake) -> None:
    torn = table_of(lake, MESSAGES.name).metadata_location
    Path(torn).write_text("{")

    iceberg.follow(lake.place)

    assert_equal(lake)


def test_following_without_news_commits_nothing(lake: Lake) -> None:
    assert iceberg.follow(lake.place) == 0
    assert iceberg.follow(replace(lake.place, has_iceberg=False)) == 0


@pytest.mark.parametrize("text", ["iceberg", "delta,hudi", ","])
def test_invalid_formats_are_rejected(tmp_path: Path, text: str) -> None:
    with pytest.raises(LakeError, match="must be delta or delta,iceberg"):
        LakePlace.of(str(tmp_path), None, {"TREBUCHET_LAKE_FORMATS": text})
