"""The views of the lake: what SQL sees, optionally restricted to topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from analytics.lake.gold_tables import EVERY_TABLE
from analytics.lake.place import LakePlace
from analytics.lake.repair import forget
from analytics.lake.tables import MESSAGES
from analytics.lake.views import lake_views
from tests.analytics.lake.lakes import Lake, add_views
from tests.analytics.store_builder import StoreBuilder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:", config={"threads": 1}) as opened:
        yield opened


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    builder = StoreBuilder(tmp_path / "store").put_many(20, topics=("orders", "it's", "bills"))
    builder.write()
    return Lake(tmp_path / "lake's", builder.root)


def topics_in(connection: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    query = "SELECT topic, count(*) FROM bronze.messages GROUP BY topic ORDER BY topic"
    return connection.execute(query).fetchall()


def test_each_table_has_a_view_with_all_its_columns(
    connection: duckdb.DuckDBPyConnection, lake: Lake
) -> None:
    lake.take_all()
    forget(lake.place, "FD00")
    add_views(connection, lake.place)

    assert connection.execute("SELECT count(*) FROM bronze.forgotten").fetchall() == [(20,)]
    for view in lake_views():
        described = connection.execute(f"DESCRIBE {view.name}").fetchall()
        kinds = [
            (name, kind.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"))
            for name, kind, *_ in described
        ]
        assert kinds == [(column.name, column.type) for column in view.columns]
    assert {view.name for view in lake_views()} == {table.name for table in EVERY_TABLE}
    assert topics_in(connection) == [("bills", 6), ("it's", 7), ("orders", 7)]


def test_a_lakes_name_is_not_a_pattern_for_others(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    for name, topic in (("lake *?[x]", "own"), ("lake of x", "others")):
        builder = StoreBuilder(tmp_path / topic).put_many(1, topics=(topic,))
        builder.write()
        Lake(tmp_path / name, builder.root).take_all()
    place = LakePlace.of(str(tmp_path / "lake *?[x]"), None, {})
    add_views(connection, place)

    assert topics_in(connection) == [("own", 1)]


def test_views_of_a_missing_lake_are_empty(
    connection: duckdb.DuckDBPyConnection, lake: Lake
) -> None:
    add_views(connection, lake.place)

    assert topics_in(connection) == []


@pytest.mark.parametrize(
    ("topics", "expected"),
    [(["it's"], [("it's", 7)]), ({"bills", "unknown"}, [("bills", 6)]), ([], [])],
)
def test_a_view_has_only_its_topics(
    connection: duckdb.DuckDBPyConnection,
    lake: Lake,
    topics: Collection[str],
    expected: list[tuple[str, int]],
) -> None:
    lake.take_all()
    add_views(connection, lake.place, topics)

    assert topics_in(connection) == expected


def test_a_column_missing_in_all_files_is_null(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)
    older = pa.schema([MESSAGES.schema.field(name) for name in ("day", "topic")])
    rows = pa.table({"day": [None], "topic": ["orders"]}, schema=older)
    DeltaTable.create(lake.place.table(MESSAGES.name), older, partition_by=["day"])
    write_deltalake(lake.place.table(MESSAGES.name), rows, mode="append")
    add_views(connection, lake.place)

    assert connection.execute("SELECT topic, uniq_key FROM bronze.messages").fetchall() == [
        ("orders", None)
    ]
