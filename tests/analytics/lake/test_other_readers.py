"""Readers without our code see each message once, with all its fields."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from analytics.lake import iceberg
from analytics.lake.maintenance import maintain
from analytics.lake.tables import MESSAGES
from analytics.lake.writer import ArrowWriter
from tests.analytics.lake.lakes import Lake, traffic_of
from tests.analytics.store_builder import START_MS, StoreBuilder
from tests.support import delta_spark

if TYPE_CHECKING:
    from pathlib import Path

    from tests.analytics.store_builder import Stored

DAY_MS = 86_400_000
FIRST_DAY = datetime.fromtimestamp(START_MS / 1000, UTC).date()
COLUMNS = ("commit_log_offset", "topic", "queue_offset", "store_timestamp", "keys", "uniq_key")
Row = tuple[Any, ...]
BY_DELTA_SPARK = """
import json, sys
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
messages = spark.read.format("delta").load(sys.argv[1])
rows = messages.orderBy("commit_log_offset").select(*sys.argv[4:]).collect()
second = messages.groupBy("day").count().orderBy("day").collect()[1]["count"]
gold = spark.read.format("delta").load(sys.argv[2])
sums = gold.agg(F.sum("messages"), F.sum("bytes"), F.sum("body_bytes")).first()
iceberg = spark.read.format("iceberg").load(sys.argv[3])
same = iceberg.orderBy("commit_log_offset").select(*sys.argv[4:]).collect()
of_day = iceberg.where("day = DATE '" + str(iceberg.agg(F.max("day")).first()[0]) + "'").count()
messages.where("uniq_key = 'U150'").write.format("delta").mode("append").save(sys.argv[1])
print(json.dumps({"rows": rows, "second": second, "gold": list(sums), "iceberg": [same, of_day]},
                 default=str))
"""


@dataclass(frozen=True, slots=True)
class Filled:
    """A lake and its contents."""

    lake: Lake
    stored: list[Stored]

    def at(self, table: str) -> str:
        return self.lake.place.table(table)


@pytest.fixture(scope="module", params=["in batches", "compacted"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """A lake of two days, in batches as they arrived, or with completed days."""
    directory = tmp_path_factory.mktemp("lake")
    builder = StoreBuilder(directory / "store")
    for number in range(200):
        builder.put(
            f"topic-{number % 3}",
            queue_id=number % 2,
            properties=b"KEYS\x01k%d all\x02UNIQ_KEY\x01U%03d" % (number, number),
            store_timestamp=START_MS + DAY_MS * (number // 100) + number,
        )
    builder.write()
    lake = Lake(directory / "lake", builder.root, batch_bytes=5000)
    lake.take_all()
    lake.catch_up()
    if request.param == "compacted":
        maintain(lake.place, FIRST_DAY + timedelta(days=9), ArrowWriter())
    return Filled(lake, builder.stored)


def put(filled: Filled) -> list[Row]:
    """Return the test's messages, as rows of COLUMNS."""
    queues: dict[tuple[str, int], int] = {}
    rows = []
    for number, one in enumerate(filled.stored):
        queue_offset = queues[one.topic, number % 2] = queues.get((one.topic, number % 2), -1) + 1
        stored = datetime.fromtimestamp(one.store_timestamp / 1000, UTC)
        text = (stored, [f"k{number}", "all"], f"U{number:03}")
        rows.append((one.commit_log_offset, one.topic, queue_offset, *text))
    return rows


def as_spark_prints_it(moment: datetime) -> str:
    return str(moment.replace(tzinfo=None))


def test_polars_can_read_the_messages(filled: Filled) -> None:
    frame = pl.scan_delta(filled.at(MESSAGES.name))

    rows = frame.sort("commit_log_offset").select(COLUMNS).collect().rows()
    second = frame.filter(pl.col("day") == FIRST_DAY + timedelta(days=1)).select(pl.len())
    one = frame.filter(pl.col("uniq_key") == "U150").select("topic", "properties").collect()

    assert rows == put(filled)
    assert second.collect().item() == 100
    assert one.rows() == [("topic-0", {"KEYS": "k150 all", "UNIQ_KEY": "U150"})]


def test_duckdb_can_read_the_messages(filled: Filled) -> None:
    files = DeltaTable(filled.at(MESSAGES.name)).file_uris()
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute("SET timezone = 'UTC'")
        rows = connection.read_parquet(files, hive_partitioning=True)
        found = rows.project(", ".join(COLUMNS)).order("commit_log_offset").to_arrow_table()
        one = rows.filter("uniq_key = 'U150'").project("topic, properties['KEYS'], day").fetchall()

    assert [tuple(row.values()) for row in found.to_pylist()] == put(filled)
    assert one == [("topic-0", "k150 all", FIRST_DAY + timedelta(days=1))]


def test_both_read_gold(filled: Filled) -> None:
    at = filled.at("gold.traffic_minute")
    summed = "sum(messages)::BIGINT, sum(bytes)::BIGINT, sum(body_bytes)::BIGINT"

    by_polars = pl.read_delta(at).select(pl.sum("messages", "bytes", "body_bytes")).row(0)
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        by_duckdb = (
            connection.read_parquet(DeltaTable(at).file_uris()).aggregate(summed).fetchall()[0]
        )

    every = traffic_of(filled.stored).values()
    assert by_polars == by_duckdb == tuple(map(sum, zip(*every, strict=True)))


@pytest.mark.spark
@pytest.mark.parametrize("filled", ["compacted"], indirect=True)
def test_spark_reads_both_formats_and_appends_to_our_delta_tables(
    filled: Filled, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(BY_DELTA_SPARK)
    copied = shutil.copytree(filled.at(MESSAGES.name), tmp_path / "messages")
    iceberg.follow(replace(filled.lake.place, has_iceberg=True))
    uri = f"sqlite:///{filled.lake.directory}/iceberg.db"
    registered = load_catalog("trebuchet", type="sql", uri=uri).load_table(MESSAGES.name)
    places = (str(copied), filled.at("gold.traffic_minute"), registered.metadata_location)

    found = delta_spark.answer(script, tmp_path, *places, *COLUMNS)

    every = traffic_of(filled.stored).values()
    assert found["rows"] == json.loads(json.dumps(put(filled), default=as_spark_prints_it))
    assert found["iceberg"] == [found["rows"], 100]
    assert found["second"] == 100
    assert found["gold"] == list(map(sum, zip(*every, strict=True)))
    again = DeltaTable(copied).to_pyarrow_dataset().to_table(columns=["uniq_key"])
    assert again["uniq_key"].to_pylist().count("U150") == 2
