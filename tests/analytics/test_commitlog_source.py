from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThanOrEqual
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from pyspark.testing import assertSchemaEqual

from analytics.commitlog_source import CommitLogReader, parse_options
from analytics.errors import ReportError
from analytics.schemas import DAMAGE_COLUMN, MESSAGES, messages_with
from analytics.store_reader import Split, StoreReader
from broker_core.formats import record
from tests.analytics.store_builder import FILE_BYTES, START_MS, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_options_have_types_and_defaults() -> None:
    found = parse_options({"PATH": "/s", "fromtimestamp": "5", "includeSystemTopics": "TRUE"})

    assert found["path"] == "/s"
    assert found["fromTimestamp"] == 5
    assert found["includeSystemTopics"] is True
    assert found["checkCrc"] is True
    assert found["topic"] is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "needs the option path"),
        ({"path": "/s", "topics": "a"}, "no option topics; its options are path,"),
        ({"path": "/s", "fromTimestamp": "-5"}, "fromTimestamp is '-5'; it must be a whole"),
        ({"path": "/s", "checkCrc": "maybe"}, "checkCrc is 'maybe'; it must be true or false"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_in_a_sentence(
    options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ReportError, match=sentence):
        parse_options(options)


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (StructField("topics", StringType()), "no column topics; it has commit_log_offset,"),
        (StructField("queue_id", LongType()), "column queue_id is int32, not int64"),
    ],
)
def test_a_column_that_is_not_there_is_refused_in_a_sentence(
    field: StructField, sentence: str
) -> None:
    with pytest.raises(ReportError, match=sentence):
        CommitLogReader(parse_options({"path": "/s"}), StructType([field]))


def test_a_filter_on_the_topic_is_taken_over(tmp_path: Path) -> None:
    reader = _reader(StoreBuilder(tmp_path).put_many(10).write())
    same, other = EqualTo(("topic",), "orders"), EqualTo(("topic",), "bills")
    elsewhere = EqualTo(("queue_id",), 1)

    left = list(reader.pushFilters([same, other, elsewhere]))

    assert left == [other, elsewhere]
    assert _count(reader) == 5


def test_bounds_of_the_store_timestamp_skip_files_and_stay_with_spark(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    for number in range(300):
        builder.put(store_timestamp=START_MS + number * 60_000)
    reader = _reader(builder.write())
    low = GreaterThanOrEqual(("store_timestamp",), _moment(START_MS + 200 * 60_000))
    high = LessThanOrEqual(("store_timestamp",), _moment(START_MS + 210 * 60_000))

    left = list(reader.pushFilters([low, high]))

    assert left == [low, high]
    assert _count(reader) == 11
    assert len(_splits(reader)) < len(builder.files)


def test_many_small_files_are_few_tasks_that_read_each_byte_once(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(3000)
    assert len(builder.files) > 40
    root = str(builder.write())
    schema = StructType([StructField("store_size", IntegerType())])
    reader = CommitLogReader(parse_options({"path": root, "splitBytes": "100000"}), schema)

    tasks = reader.partitions()

    splits = _splits(reader)
    assert len(tasks) == -(-len(builder.files) // (100_000 // FILE_BYTES))
    assert splits == StoreReader(tmp_path).plan().splits
    assert _count(reader) == 3000


@pytest.mark.spark
def test_a_store_is_a_frame_of_messages(spark: SparkSession, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(300)
    builder.put("SCHEDULE_TOPIC_XXXX")

    frame = spark.read.format("commitlog").load(str(builder.write()))

    assertSchemaEqual(frame.schema, MESSAGES)
    rows = frame.orderBy("commit_log_offset").collect()
    assert [(row.topic, bytes(row.body), row.store_size) for row in rows] == [
        (one.topic, one.body, one.size) for one in builder.stored[:-1]
    ]
    assert rows[0].store_timestamp.timestamp() * 1000 == START_MS


@pytest.mark.spark
def test_spark_hands_its_filters_down(spark: SparkSession, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(300)
    bound = _moment(START_MS + 100_000)
    frame = spark.read.format("commitlog").load(str(builder.write()))

    found = frame.where((F.col("topic") == "bills") & (F.col("store_timestamp") >= bound))

    assert found.count() == 100
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert "store_timestamp" in plan
    assert "bills" not in plan


@pytest.mark.spark
def test_damage_is_a_row_where_it_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(300)
    spoiled = builder.stored[20]
    builder.overwrite(spoiled.commit_log_offset, bytes(8))
    source = spark.read.format("commitlog")
    root = str(builder.write())

    plain = source.schema(messages_with(["topic"])).load(root).count()
    rows = source.schema(messages_with(["topic"], damage=True)).load(root)

    assert plain == 299
    assert rows.count() == 300
    (damage,) = rows.where(F.col(DAMAGE_COLUMN).isNotNull()).collect()
    assert damage.topic is None
    assert (damage.damage.commit_log_from, damage.damage.commit_log_to) == (
        spoiled.commit_log_offset,
        spoiled.commit_log_offset + spoiled.size,
    )


@pytest.mark.spark
def test_an_empty_store_is_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.read.format("commitlog").load(str(tmp_path)).count() == 0


@pytest.mark.spark
def test_a_missing_store_is_told_in_our_sentence(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.read.format("commitlog").load(str(tmp_path / "gone"))

    with pytest.raises(PySparkException, match=r"There is no store at .*gone: no such directory"):
        frame.count()


@pytest.mark.spark
def test_a_wrong_checksum_costs_one_row_and_can_be_ignored(
    spark: SparkSession, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path).put_many(10)
    builder.overwrite(builder.stored[3].commit_log_offset + record.FIXED_V4_SIZE, b"X")
    root = str(builder.write())
    source = spark.read.format("commitlog").schema(messages_with(["body"]))

    assert source.load(root).count() == 9
    assert source.option("checkCrc", "false").load(root).count() == 10


def _reader(root: Path) -> CommitLogReader:
    schema = StructType([StructField("store_size", IntegerType())])
    return CommitLogReader(parse_options({"path": str(root), "splitBytes": "1"}), schema)


def _splits(reader: CommitLogReader) -> list[Split]:
    return [Split(*one) for partition in reader.partitions() for one in partition.value]


def _count(reader: CommitLogReader) -> int:
    return sum(
        batch.num_rows for partition in reader.partitions() for batch in reader.read(partition)
    )


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)
