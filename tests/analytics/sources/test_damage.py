"""Damage is never silent: reading fails, or damage is a row, or the user chose to skip it."""

from __future__ import annotations

import json
import logging
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Observation, functions as F  # noqa: N812 - as in Spark's documentation

from analytics.errors import DamageError, ReportError
from analytics.schemas import CLUSTER_MESSAGES, DAMAGE_COLUMN, messages_with
from analytics.sources import commitlog, queue_reading
from analytics.sources.observed import observed
from broker_core.formats import record
from broker_core.message.sys_flag import COMPRESSED_FLAG
from tests.analytics.query_draining import drained
from tests.analytics.sources.clusters import WITH_DAMAGE, reader_of, rows_of, send
from tests.analytics.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tests.support.broker_process import BrokerProcess

TOPICS, WITH_ROWS = messages_with(["topic"]), messages_with(["topic"], damage=True)


@pytest.fixture
def damaged(tmp_path: Path) -> StoreBuilder:
    """300 messages, one of them with zeros in its size field."""
    builder = StoreBuilder(tmp_path / "store").put_many(300)
    builder.overwrite(builder.stored[20].commit_log_offset, bytes(8))
    builder.write()
    return builder


def read(builder: StoreBuilder, schema: StructType, **options: str) -> list[dict[str, Any]]:
    given = commitlog.parse_options({"path": str(builder.write()), **options})
    reader = commitlog.CommitLogReader(given, schema)
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(
    ("schema", "mode"),
    [(TOPICS, {}), (TOPICS, {"mode": "failfast"}), (WITH_ROWS, {"mode": "FAILFAST"})],
)
def test_a_damaged_range_fails_the_read(
    damaged: StoreBuilder, schema: StructType, mode: dict[str, str]
) -> None:
    spoiled = damaged.stored[20]
    end = spoiled.commit_log_offset + spoiled.size
    place = f"Bytes {spoiled.commit_log_offset} to {end} of the log, in"

    with pytest.raises(DamageError, match=f"{place} .* mode=PERMISSIVE"):
        read(damaged, schema, **mode)


@pytest.mark.parametrize("mode", [{}, {"mode": "PERMISSIVE"}])
def test_a_damaged_range_is_a_row_where_the_schema_has_the_column(
    damaged: StoreBuilder, mode: dict[str, str]
) -> None:
    spoiled = damaged.stored[20]

    rows = read(damaged, WITH_ROWS, **mode)

    assert len(rows) == 300
    (damage,) = [row for row in rows if row[DAMAGE_COLUMN] is not None]
    assert damage["topic"] is None
    assert damage[DAMAGE_COLUMN]["commit_log_from"] == spoiled.commit_log_offset
    assert damage[DAMAGE_COLUMN]["commit_log_to"] == spoiled.commit_log_offset + spoiled.size


def test_damage_is_skipped_and_logged_on_request(
    damaged: StoreBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert len(read(damaged, TOPICS, mode="PERMISSIVE")) == 299
    assert "damaged range file=" in caplog.text


def test_an_unreadable_body_fails_or_is_null(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(10)
    spoiled = builder.stored[3]
    builder.overwrite(spoiled.commit_log_offset + record.FIXED_V4_SIZE, b"X")
    bodies = messages_with(["body"])

    with pytest.raises(
        DamageError,
        match=f"message at commit log offset {spoiled.commit_log_offset}, offset 0 of queue 0, "
        "doesn't match its checksum",
    ):
        read(builder, bodies)
    assert [row["body"] for row in read(builder, bodies, mode="PERMISSIVE")].count(None) == 1
    assert len(read(builder, TOPICS)) == 10
    assert len(read(builder, bodies, checkCrc="false")) == 10


def test_a_body_that_cannot_be_decompressed_fails_or_is_null(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.put(body=zlib.compress(b"a body"), sys_flag=COMPRESSED_FLAG)
    builder.put(body=b"no zlib", sys_flag=COMPRESSED_FLAG)
    bodies = messages_with(["body"])

    with pytest.raises(DamageError, match="offset 1 of queue 0, can't be decompressed"):
        read(builder, bodies, decompress="true")
    assert [row["body"] for row in read(builder, bodies, decompress="true", mode="PERMISSIVE")] == [
        b"a body",
        None,
    ]


def test_damage_in_a_brokers_data_fails_or_is_a_row(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, topic, 6)
    following = queue_reading.Chunks.following

    async def spoiled(chunks: queue_reading.Chunks, cluster: Any) -> bytes:
        data = await following(chunks, cluster)
        return data and data + b"no record at all"

    monkeypatch.setattr(queue_reading.Chunks, "following", spoiled)

    with pytest.raises(
        DamageError, match=rf"of {topic} on broker-a is damaged \(.* mode=PERMISSIVE"
    ):
        rows_of(reader_of(broker, CLUSTER_MESSAGES, subscribe=topic))
    rows = rows_of(reader_of(broker, WITH_DAMAGE, subscribe=topic))
    assert [row["damage"] is None for row in rows].count(True) == 6
    assert [row["damage"]["reason"] for row in rows if row["damage"]] == [
        queue_reading.NO_RECORD
    ] * 2
    assert len(rows_of(reader_of(broker, subscribe=topic, mode="PERMISSIVE"))) == 6


@pytest.mark.spark
def test_spark_fails_at_damage_unless_it_is_observed_and_then_counted(
    spark: SparkSession, damaged: StoreBuilder, tmp_path: Path
) -> None:
    root = str(damaged.root)
    source = spark.read.format("commitlog")

    with pytest.raises(PySparkException, match=r"DamageError: Bytes .* are damaged"):
        source.schema(TOPICS).load(root).count()

    observation = Observation("frame")
    frame = observed(source.schema(WITH_ROWS).load(root), observation)
    assert frame.columns == ["topic"]
    assert frame.where(F.col("topic") == "orders").count() == 149
    assert observation.get == {"messages": 299, "damaged_ranges": 1}

    streaming = spark.readStream.format("commitlog").schema(WITH_ROWS)
    stream = streaming.option("startingOffset", "earliest").load(root)
    writing = observed(stream, "stream").writeStream.format("noop")
    query = drained(writing.option("checkpointLocation", str(tmp_path / "checkpoint")))
    counted = [progress.observedMetrics["stream"] for progress in query.recentProgress]
    assert sum(one.messages for one in counted) == 299
    assert sum(one.damaged_ranges for one in counted) == 1
    (reported,) = query.recentProgress[0].sources
    assert json.loads(reported.latestOffset or "")["metrics"]["bytesBehindLatest"] > 0


def test_a_frame_without_the_column_cannot_be_observed() -> None:
    class Frame:
        columns = ("topic",)

    with pytest.raises(ReportError, match=r"has no column damage\. Read it with messages_w"):
        observed(Frame(), "x")  # type: ignore[arg-type]
