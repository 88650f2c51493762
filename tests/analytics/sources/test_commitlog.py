from __future__ import annotations

import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from pyspark.testing import assertSchemaEqual

from analytics.errors import ReportError
from analytics.schemas import DAMAGE_COLUMN, MESSAGES, messages_with
from analytics.sources.commitlog import CommitLogReader, parse_options
from analytics.store.decode import CheckCrc, RowFilter
from analytics.store.reader import StoreReader
from broker_core.formats import record
from broker_core.message.sys_flag import COMPRESSED_FLAG
from tests.analytics.store_builder import FILE_BYTES, START_MS, StoreBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from analytics.store.plan import Split
    from analytics.store.slices import UnitSlice


def test_options_have_types_and_defaults() -> None:
    found = parse_options(
        {"PATH": "/s", "startingtimestamp": "5", "includeSystemTopics": "TRUE", "topic": "a, b"}
    )

    assert found.path == Path("/s")
    assert found.rows == RowFilter(
        topics=frozenset({"a", "b"}), include_system_topics=True, from_ms=5
    )
    assert (found.starting_offset, found.ending_offset) == (None, None)
    assert found.check_crc is CheckCrc.BODY
    assert found.fail_on_data_loss is True
    assert found.decompress is False


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "needs the option path"),
        ({"path": "/s", "topics": "a"}, "no option topics; its options are path,"),
        ({"path": "/s", "startingTimestamp": "-5"}, "startingTimestamp is '-5'; it must be a who"),
        ({"path": "/s", "checkCrc": "maybe"}, "checkCrc is 'maybe'; it must be body, true or fal"),
        ({"path": "/s", "decompress": "2"}, "decompress is '2'; it must be true or false"),
        ({"path": "/s", "topic": "a,b c"}, "topic is 'a,b c'; .* contains illegal characters"),
        ({"path": "/s", "topic": ","}, "topic is ','; it must be topics separated by commas"),
        ({"path": "/s", "queue": "1,x"}, "queue is '1,x'; it must be queue ids sep"),
        ({"path": "/s", "startingOffset": "first"}, "'first'; it must be earliest, latest or a w"),
        ({"path": "/s", "endingOffset": "earliest"}, "'earliest'; it must be latest or a whole"),
        ({"path": "/s", "maxBytesPerTrigger": "0"}, "'0'; it must be a whole number of at least 1"),
        ({"path": "/s", "groupBy": "topic,body"}, "'topic,body'; it must be columns sep"),
        ({"path": "/s", "groupBy": ""}, "groupBy is ''; it must be columns sep"),
        ({"path": "/s", "groupBy": "tags", "groupSeconds": "0"}, "'0'; it must be a whole number"),
        ({"path": "/s", "groupSeconds": "60"}, "groupSeconds requires groupBy"),
    ],
)
def test_an_invalid_option_is_rejected_with_an_explanation(
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
def test_a_missing_column_is_rejected_with_an_explanation(
    field: StructField, sentence: str
) -> None:
    with pytest.raises(ReportError, match=sentence):
        CommitLogReader(parse_options({"path": "/s"}), StructType([field]))


def test_options_narrow_what_is_read(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    for number in range(300):
        builder.put(("orders", "bills")[number % 2], store_timestamp=START_MS + number * 60_000)
    root = builder.write()

    reader = _reader(
        root,
        topic="bills",
        startingTimestamp=str(START_MS + 200 * 60_000),
        endingTimestamp=str(START_MS + 211 * 60_000),
    )

    assert _count(reader) == 5
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
def test_one_use_of_a_frame_does_not_share_another_ones_filter(
    spark: SparkSession, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path).put_many(300, topics=("orders", "bills", "bills"))
    frame = spark.read.format("commitlog").load(str(builder.write()))

    orders = frame.where(F.col("topic") == "orders")
    late = frame.where(F.col("store_timestamp") >= _moment(START_MS + 200_000))

    assert [orders.count(), late.count(), orders.unionByName(late).count()] == [100, 100, 200]
    assert [orders.count(), frame.count(), orders.count()] == [100, 300, 100]


@pytest.mark.spark
def test_queries_of_one_view_do_not_narrow_each_other(spark: SparkSession, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(300, topics=("orders", "bills", "bills"))
    spark.read.format("commitlog").load(str(builder.write())).createOrReplaceTempView("messages")

    (row,) = spark.sql(
        "SELECT (SELECT count(*) FROM messages WHERE topic = 'orders') AS orders,"
        " (SELECT count(*) FROM messages WHERE topic = 'bills') AS bills,"
        " (SELECT count(*) FROM messages) AS all"
    ).collect()

    assert row.asDict() == {"orders": 100, "bills": 200, "all": 300}


@pytest.mark.spark
def test_a_file_that_expires_during_a_read_fails_unless_gaps_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    root = str(builder.write())
    source = spark.read.format("commitlog").option("startingOffset", 0)
    counting = source.schema(messages_with(["topic"], damage=True))

    builder.path_of(0).unlink()

    with pytest.raises(
        PySparkException, match=r"DataLossError: Bytes 0 to 8192 of the log, in .* are gone"
    ):
        source.load(root).count()
    rows = counting.option("failOnDataLoss", "false").load(root)
    gaps = rows.where(F.col(DAMAGE_COLUMN).isNotNull()).collect()
    assert [(row.damage.commit_log_from, row.damage.commit_log_to) for row in gaps] == [
        (0, FILE_BYTES)
    ]


@pytest.mark.spark
def test_an_empty_store_is_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.read.format("commitlog").load(str(tmp_path)).count() == 0


@pytest.mark.spark
def test_a_missing_store_is_reported_in_our_words(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.read.format("commitlog").load(str(tmp_path / "gone"))

    with pytest.raises(PySparkException, match=r"No store at .*gone\. The directory doesn't exist"):
        frame.count()


@pytest.mark.spark
@pytest.mark.parametrize(("check_crc", "rows"), [("body", 10), ("false", 10), ("true", 9)])
def test_a_wrong_checksum_costs_the_same_for_any_request(
    spark: SparkSession, tmp_path: Path, check_crc: str, rows: int
) -> None:
    builder = StoreBuilder(tmp_path).put_many(10)
    builder.overwrite(builder.stored[3].commit_log_offset + record.FIXED_V4_SIZE, b"X")
    root = str(builder.write())
    source = spark.read.format("commitlog").options(checkCrc=check_crc, mode="PERMISSIVE")

    with_body = source.schema(messages_with(["body"])).load(root)
    without = source.schema(messages_with(["topic"])).load(root)

    assert (with_body.count(), without.count()) == (rows, rows)
    nulls = 1 if check_crc == "body" else 0
    assert with_body.where(F.col("body").isNull()).count() == nulls


@pytest.mark.spark
def test_a_records_fields_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.put(
        body=zlib.compress(b"a long body"),
        properties=b"KEYS\x01k1 k2\x02TAGS\x01paid\x02UNIQ_KEY\x017F\x02mine\x01yes",
        sys_flag=COMPRESSED_FLAG,
    )
    root = str(builder.write())

    (row,) = spark.read.format("commitlog").option("decompress", "true").load(root).collect()

    assert (row.tags, row.keys, row.uniq_key) == ("paid", ["k1", "k2"], "7F")
    assert row.properties == {"KEYS": "k1 k2", "TAGS": "paid", "UNIQ_KEY": "7F", "mine": "yes"}
    assert (row.born_host, row.store_host) == ("127.0.0.1:10911", "127.0.0.1:10911")
    assert bytes(row.body) == b"a long body"


def _reader(root: Path, **options: str) -> CommitLogReader:
    schema = StructType([StructField("store_size", IntegerType())])
    given = parse_options({"path": str(root), "splitBytes": "1", **options})
    return CommitLogReader(given, schema)


def _splits(reader: CommitLogReader) -> list[Split | UnitSlice]:
    return [one for partition in reader.partitions() for one in partition.value]


def _count(reader: CommitLogReader) -> int:
    return sum(
        batch.num_rows for partition in reader.partitions() for batch in reader.read(partition)
    )


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


@pytest.mark.spark
def test_equal_messages_are_reported_as_one(spark: SparkSession, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(300, ("orders", "bills"))
    store = str(builder.write())
    schema = StructType(
        [
            StructField("topic", StringType()),
            StructField("messages", LongType()),
            StructField("store_size", LongType()),
        ]
    )
    source = spark.read.format("commitlog").schema(schema)

    rows = source.option("groupBy", "topic").option("splitBytes", "4096").load(store).collect()

    for topic in ("orders", "bills"):
        of_topic = [row for row in rows if row["topic"] == topic]
        stored = [each for each in builder.stored if each.topic == topic]
        assert sum(row["messages"] for row in of_topic) == len(stored) == 150
        assert sum(row["store_size"] for row in of_topic) == sum(each.size for each in stored)
    assert len(rows) < 100


@pytest.mark.spark
def test_a_column_missing_in_all_groups_is_named(spark: SparkSession, tmp_path: Path) -> None:
    store = str(StoreBuilder(tmp_path / "store").put_many(3).write())
    schema = StructType([StructField("topic", StringType()), StructField("tags", StringType())])

    with pytest.raises(PySparkException, match="commitlog has no column tags; it has topic, dam"):
        spark.read.format("commitlog").schema(schema).option("groupBy", "topic").load(
            store
        ).collect()
