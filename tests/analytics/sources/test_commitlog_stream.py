"""The log as a stream: each message once, despite appends, damage or loss in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import LongType, StructField, StructType

from analytics.errors import DataLossError, ReportError
from analytics.schemas import messages_with
from analytics.sources.commitlog import OFFSET, CommitLogStreamReader, parse_options
from tests.analytics.query_draining import drained
from tests.analytics.store_builder import FILE_BYTES, START_MS, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

OFFSETS = StructType([StructField(OFFSET, LongType())])


def reader_of(root: Path, **options: object) -> CommitLogStreamReader:
    given = {name: str(value) for name, value in options.items()}
    return CommitLogStreamReader(parse_options({"path": str(root), **given}), OFFSETS)


def read(reader: CommitLogStreamReader, start: int, end: int) -> list[int]:
    return [
        at
        for partition in reader.partitions({OFFSET: start}, {OFFSET: end})
        for batch in reader.read(partition)
        for at in batch[OFFSET].to_pylist()
    ]


def followed(reader: CommitLogStreamReader, start: int) -> tuple[list[int], int, int]:
    """Read batch after batch to the end: the offsets, the final offset, the number of batches."""
    found: list[int] = []
    batches = 0
    limit = reader.getDefaultReadLimit()
    while (end := reader.latestOffset({OFFSET: start}, limit)[OFFSET]) > start:
        found += read(reader, start, end)
        start = end
        batches += 1
    return found, start, batches


def test_a_stream_starts_where_configured(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, first_offset=5 * FILE_BYTES)
    hour = 3_600_000
    for number in range(300):
        builder.put(store_timestamp=START_MS + number * hour)
    root = builder.write()
    third = builder.stored[250]

    assert reader_of(root).initialOffset()[OFFSET] == builder.position
    assert reader_of(root, startingOffset="latest").initialOffset()[OFFSET] == builder.position
    assert reader_of(root, startingOffset="earliest").initialOffset() == {OFFSET: 5 * FILE_BYTES}
    assert reader_of(root, startingOffset=123).initialOffset() == {OFFSET: 123}
    timed = reader_of(root, startingTimestamp=third.store_timestamp)
    begun = timed.initialOffset()[OFFSET]
    assert 5 * FILE_BYTES < begun <= third.commit_log_offset
    assert followed(timed, begun)[0] == [one.commit_log_offset for one in builder.stored[250:]]


@pytest.mark.parametrize("name", ["endingOffset", "endingTimestamp"])
def test_a_stream_has_no_end(tmp_path: Path, name: str) -> None:
    with pytest.raises(ReportError, match=r"A stream of commitlog has no end. Remove endingOff"):
        reader_of(tmp_path, **{name: 5})


def test_batches_of_bounded_size_hold_each_message_once(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    reader = reader_of(builder.write(), maxBytesPerTrigger=3000)

    assert reader.getDefaultReadLimit() == ReadMaxBytes(3000)
    found, end, batches = followed(reader, 0)

    assert found == [one.commit_log_offset for one in builder.stored]
    assert end == builder.position
    assert batches >= builder.position // 3000


def test_all_available_data_is_read_if_spark_says_so(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    reader = reader_of(builder.write(), maxBytesPerTrigger=3000)

    assert reader.latestOffset({OFFSET: 0}, ReadMaxBytes(3000))[OFFSET] < builder.position
    behind = builder.position - reader.latestOffset({OFFSET: 0}, ReadMaxBytes(3000))[OFFSET]
    assert reader.reportLatestOffset() == {
        OFFSET: builder.position,
        "metrics": {"bytesBehindLatest": behind},
    }
    assert reader.latestOffset({OFFSET: 0}, ReadAllAvailable())[OFFSET] == builder.position
    assert reader.reportLatestOffset()["metrics"] == {"bytesBehindLatest": 0}


def test_data_appended_after_the_trigger_waits_for_the_next_query(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(10)
    reader = reader_of(builder.write())
    reader.prepareForTriggerAvailableNow()
    before = builder.position

    builder.put_many(10).write()

    assert reader.latestOffset({OFFSET: 0}, ReadAllAvailable())[OFFSET] == before


def test_a_log_that_ends_before_the_streams_position_is_rejected(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(10)
    root = builder.write()
    beyond = {OFFSET: 5 * FILE_BYTES}

    with pytest.raises(DataLossError, match=f"ends at {FILE_BYTES}, before {5 * FILE_BYTES}"):
        reader_of(root).latestOffset(beyond, ReadAllAvailable())
    waiting = reader_of(root, failOnDataLoss="false")
    assert waiting.latestOffset(beyond, ReadAllAvailable()) == beyond


@pytest.mark.parametrize("now", [False, True], ids=["ProcessingTime", "AvailableNow"])
def test_another_log_is_loss_even_if_it_reaches_as_far(tmp_path: Path, now: bool) -> None:
    builder = StoreBuilder(tmp_path / "one").put_many(50)
    reader = reader_of(builder.write())
    start = {OFFSET: 0}
    at = reader.latestOffset(start, ReadAllAvailable())
    assert reader_of(tmp_path / "one").latestOffset(at, ReadAllAvailable()) == at
    other = StoreBuilder(tmp_path / "other")
    for number in range(300):
        other.put(body=b"another %d" % number)
    root = other.write()

    replaced = reader_of(root)
    if now:
        replaced.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match=f"has other messages before {at[OFFSET]} than"):
        replaced.latestOffset(at, ReadAllAvailable())
    with pytest.raises(DataLossError, match="has other messages"):
        reader_of(root).partitions(start, at)
    passing = reader_of(root, failOnDataLoss="false")
    assert passing.latestOffset(at, ReadAllAvailable())[OFFSET] == other.position


def test_a_log_whose_old_files_expired_is_the_same_log(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(50)
    reader = reader_of(builder.write())
    at = reader.latestOffset({OFFSET: 0}, ReadAllAvailable())
    builder.put_many(600).write()
    for file in sorted(builder.files)[:-1]:
        builder.path_of(file).unlink()

    # It can no longer be identified; expired unread data counts as loss when it's read.
    assert reader.latestOffset(at, ReadAllAvailable())[OFFSET] == builder.position


def test_messages_expired_before_they_were_read_are_rejected_or_skipped(
    tmp_path: Path,
) -> None:
    builder = StoreBuilder(tmp_path).put_many(400)
    root = builder.write()
    builder.path_of(0).unlink()
    end = reader_of(root).latestOffset({OFFSET: 0}, ReadAllAvailable())[OFFSET]

    assert end == builder.position
    with pytest.raises(DataLossError, match=f"Bytes 0 to {FILE_BYTES}"):
        read(reader_of(root), 0, end)
    assert read(reader_of(root, failOnDataLoss="false"), 0, end) == [
        one.commit_log_offset for one in builder.stored if one.commit_log_offset >= FILE_BYTES
    ]


@pytest.mark.spark
def test_a_resumed_query_neither_misses_nor_repeats_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(200)
    builder.write()

    _drain(spark, tmp_path)
    first = _rows(spark, tmp_path)
    builder.put_many(150)
    builder.write()
    _drain(spark, tmp_path)

    assert first == [one.commit_log_offset for one in builder.stored[:200]]
    assert _rows(spark, tmp_path) == [one.commit_log_offset for one in builder.stored]


@pytest.mark.spark
def test_a_query_whose_log_has_expired_ends_with_our_explanation(
    spark: SparkSession, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(400)
    builder.write()
    builder.path_of(0).unlink()

    with pytest.raises(StreamingQueryException, match=r"DataLossError: Bytes 0 to .* are gone"):
        _drain(spark, tmp_path, startingOffset="0")


def _drain(spark: SparkSession, directory: Path, **options: str) -> None:
    """Run a query over all available data, in batches, into Parquet."""
    stream = (
        spark.readStream.format("commitlog")
        .schema(messages_with([OFFSET, "topic"]))
        .options(startingOffset="earliest", maxBytesPerTrigger="12000")
        .options(**options)
        .load(str(directory / "store"))
    )
    writing = stream.writeStream.format("parquet")
    drained(
        writing.option("checkpointLocation", str(directory / "checkpoint")), str(directory / "out")
    )


def _rows(spark: SparkSession, directory: Path) -> list[int]:
    return sorted(
        row[0] for row in spark.read.parquet(str(directory / "out")).select(OFFSET).collect()
    )
