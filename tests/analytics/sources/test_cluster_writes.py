"""Writing rows to a cluster: each becomes a message, in its queue and with its time."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from analytics.errors import ReportError
from analytics.schemas import CLUSTER_MESSAGES
from analytics.sources.rocketmq_options import parse_options
from analytics.sources.rocketmq_writer import Messages, RocketMqStreamWriter, RocketMqWriter
from tests.analytics.query_draining import drained
from tests.analytics.sources.clusters import NAMESRV, options_of, reader_of, rows_of, send
from tests.support import raw_remoting
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess

BODY = CLUSTER_MESSAGES["body"]


ROWS = pa.RecordBatch.from_pylist(
    [
        {"body": b"one", "tags": "t", "keys": ["a", "b"], "properties": [("mine", "yes")]},
        {"body": b"two", "tags": None, "keys": None, "properties": None},
        {"body": b"two", "tags": None, "keys": None, "properties": None},
    ],
    schema=pa.schema(
        [
            ("body", pa.binary()),
            ("tags", pa.string()),
            ("keys", pa.list_(pa.string())),
            ("properties", pa.map_(pa.string(), pa.string())),
        ]
    ),
)


def test_written_data_is_read_again(broker: BrokerProcess, topic: str) -> None:
    schema = StructType(
        [
            CLUSTER_MESSAGES["body"],
            CLUSTER_MESSAGES["tags"],
            CLUSTER_MESSAGES["keys"],
            CLUSTER_MESSAGES["properties"],
        ]
    )
    target = parse_options(options_of(broker, topic=topic, idempotenceScope="batch 7"))
    for _ in range(2):
        RocketMqWriter(target, schema, overwrite=False).write(iter([ROWS]))

    rows = rows_of(reader_of(broker, subscribe=topic))

    assert sorted(row["body"] for row in rows) == [b"one"] * 2 + [b"two"] * 4
    first = next(row for row in rows if row["body"] == b"one")
    assert (first["tags"], first["keys"]) == ("t", ["a", "b"])
    assert dict(first["properties"])["mine"] == "yes"
    # The second write repeats the first one; two equal rows are two messages.
    assert len({row["uniq_key"] for row in rows}) == 3


def test_a_digest_differs_by_scope_and_content_only() -> None:
    row = {"body": "text", "keys": "k"}
    one = Messages("orders", "1/0").of(row).properties["UNIQ_KEY"]

    assert Messages("orders", "1/0").of(row).properties["UNIQ_KEY"] == one
    assert Messages("orders", "2/0").of(row).properties["UNIQ_KEY"] != one
    assert Messages("orders", "1/0").of({**row, "keys": "j"}).properties["UNIQ_KEY"] != one
    assert Messages("orders", "1/0").of({**row, "uniq_key": "U"}).properties["UNIQ_KEY"] == "U"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"body": b""}, "no body"),
        ({"body": None}, "no body"),
        ({"body": b"x", "topic": "a b"}, "topic 'a b', .* illegal characters"),
        (
            {"body": b"x", "topic": "SCHEDULE_TOPIC_XXXX"},
            "Sending to the topic SCHEDULE_TOPIC_XXXX isn't",
        ),
        ({"body": b"x", "properties": [("a\x02", "b")]}, "property 'a.x02' contains U.0002"),
        ({"body": b"x", "properties": [("a", "b\x01")]}, "property 'a' contains U.0001"),
        ({"body": b"x", "properties": [("a", "b\0")]}, "property 'a' contains U.0000"),
        ({"body": b"x", "properties": [("", "b")]}, "a property has no name"),
        ({"body": b"x", "tags": "a\x02b\x01c"}, "property 'TAGS' contains U.0001"),
        ({"body": b"x", "keys": ["a\x02b"]}, "property 'KEYS' contains U.0002"),
        ({"body": b"x", "keys": ["k0", "k 1"]}, "The key 'k 1' contains a space"),
        ({"body": b"x", "sharding_key": "a", "queue_id": 1}, "both sharding_key and queue_id"),
        ({"body": b"x", "broker_name": "broker-a"}, "a broker_name without a queue_id"),
        ({"body": b"x", "delay_level": -1}, "delay levels begin at 1"),
        (
            {"body": b"x", "delay_level": 3, "deliver_at": datetime.now(UTC)},
            "both delay_level and deliver_at",
        ),
    ],
)
def test_a_row_rejected_by_all_brokers_is_rejected(row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ReportError, match=sentence):
        Messages("orders", "1").of(row)


@pytest.mark.parametrize(
    ("fields", "topic", "overwrite", "sentence"),
    [
        ([("body", StringType()), ("size", StringType())], "t", False, "the column size"),
        ([("body", IntegerType())], "t", False, "column body is int; to be written it must be bi"),
        ([("body", StringType()), ("queue_id", LongType())], "t", False, "queue_id is bigint"),
        ([("body", StringType()), ("deliver_at", LongType())], "t", False, "be timestamp"),
        ([("tags", StringType())], "t", False, "has no column body"),
        ([("body", StringType())], "", False, "needs the option topic, or a column topic"),
        ([("body", StringType())], "t", True, "can't be overwritten"),
    ],
)
def test_an_unwritable_frame_is_rejected(
    fields: list[tuple[str, Any]], topic: str, overwrite: bool, sentence: str
) -> None:
    given = {"namesrvAddr": NAMESRV, **({"topic": topic} if topic else {})}
    schema = StructType([StructField(name, kind) for name, kind in fields])

    with pytest.raises(ReportError, match=sentence):
        RocketMqWriter(parse_options(given), schema, overwrite=overwrite)


def written(
    broker: BrokerProcess,
    topic: str,
    rows: list[dict[str, Any]],
    *more: StructField,
    options: dict[str, Any] | None = None,
) -> None:
    """Write rows with a body and some more columns as one task."""
    schema = StructType([BODY, *more])
    kinds = {"string": pa.string(), "int": pa.int32(), "timestamp": pa.timestamp("us", tz="UTC")}
    columns = [(one.name, kinds[one.dataType.simpleString()]) for one in more]
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema([("body", pa.binary()), *columns]))
    target = parse_options(options_of(broker, topic=topic, **(options or {})))
    RocketMqWriter(target, schema, overwrite=False).write(iter([batch]))


def places(broker: BrokerProcess, topic: str) -> dict[bytes, tuple[int, int]]:
    """Return queue and offset of each body."""
    rows = rows_of(reader_of(broker, subscribe=topic))
    return {row["body"]: (row["queue_id"], row["queue_offset"]) for row in rows}


def test_a_row_goes_to_its_named_queue(broker: BrokerProcess, topic: str) -> None:
    rows: list[dict[str, Any]] = [
        {"body": b"%d" % number, "queue_id": (1, 1, 0)[number % 3], "broker_name": "broker-a"}
        for number in range(30)
    ]

    queue = StructField("queue_id", IntegerType())
    written(broker, topic, rows, queue, StructField("broker_name", StringType()))

    found = places(broker, topic)
    for queue_id in (0, 1):
        sent = [row["body"] for row in rows if row["queue_id"] == queue_id]
        assert [found[body] for body in sent] == [(queue_id, at) for at in range(len(sent))]
    with pytest.raises(ReportError, match=f"names queue 7 of {topic}, which doesn't exist"):
        written(broker, topic, [{"body": b"x", "queue_id": 7}], queue)


def test_rows_with_a_sharding_key_keep_their_order_in_one_queue(
    broker: BrokerProcess, topic: str
) -> None:
    rows: list[dict[str, Any]] = [
        {"body": b"%03d" % number, "sharding_key": ("a", "b", None)[number % 3]}
        for number in range(90)
    ]

    written(broker, topic, rows, StructField("sharding_key", StringType()))

    found = places(broker, topic)
    # "a".hashCode() is 97, "b".hashCode() is 98: the queues that a Java producer chooses.
    for key, queue_id in (("a", 1), ("b", 0)):
        of_key = [found[row["body"]] for row in rows if row["sharding_key"] == key]
        assert {queue for queue, _ in of_key} == {queue_id}
        assert of_key == sorted(of_key)
    stored = rows_of(reader_of(broker, subscribe=topic))
    assert Counter(dict(row["properties"]).get("__SHARDINGKEY") for row in stored) == {
        "a": 30,
        "b": 30,
        None: 30,
    }


def test_a_row_may_be_delivered_later(broker: BrokerProcess, topic: str) -> None:
    written(
        broker,
        topic,
        [{"body": b"late", "delay_level": 18}],
        StructField("delay_level", IntegerType()),
    )

    assert rows_of(reader_of(broker, subscribe=topic)) == []
    waiting = {"subscribe": "SCHEDULE_TOPIC_XXXX", "includeSystemTopics": "true"}
    found = [dict(row["properties"]) for row in rows_of(reader_of(broker, **waiting))]
    assert [one["DELAY"] for one in found if one["REAL_TOPIC"] == topic] == ["18"]


def test_a_delivery_time_is_in_rocketmq_5s_form() -> None:
    at = datetime(2026, 11, 27, 12, 0, 0, 250_900, tzinfo=UTC)
    made = Messages("orders", "1").of({"body": b"x", "deliver_at": at, "delay_level": None})

    assert made.properties["TIMER_DELIVER_MS"] == "1795780800250"
    assert "DELAY" not in made.properties


def test_a_body_that_is_too_large_is_rejected_before_it_is_sent(
    broker: BrokerProcess, topic: str
) -> None:
    with pytest.raises(ReportError, match="a body of 5,000,000 bytes, more than the 4,194,304"):
        written(broker, topic, [{"body": bytes(5_000_000)}])
    assert places(broker, topic) == {}


def test_large_bodies_are_compressed_before_their_size_is_checked(
    broker: BrokerProcess, topic: str
) -> None:
    options = {"rocketmq.compressMsgBodyOverHowmuch": 100, "rocketmq.maxMessageSize": 100}
    large, small = b"a" * 5_000, b"a" * 99

    written(broker, topic, [{"body": large}, {"body": small}], options=options)

    stored = {row["body"] for row in rows_of(reader_of(broker, subscribe=topic))}
    restored = rows_of(reader_of(broker, subscribe=topic, decompress=True))
    assert small in stored
    assert large not in stored
    assert {row["body"] for row in restored} == {large, small}
    with pytest.raises(ReportError, match=r"rocketmq\.maxMessageSize allows"):
        written(broker, topic, [{"body": random.Random(7).randbytes(200)}], options=options)


def test_an_unanswered_send_is_repeated_as_often_as_configured(
    broker: BrokerProcess, topic: str
) -> None:
    options = {
        "rocketmq.sendMsgTimeout": 200,
        "rocketmq.retryTimesWhenSendFailed": 2,
        "rocketmq.pollNameServerInterval": 600_000,
        "fetchOffset.retryIntervalMs": 1,
    }
    # The route is cached for the next ten minutes; a stopped process doesn't answer.
    written(broker, topic, [{"body": b"0"}], options=options)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        begun = monotonic()
        with pytest.raises(ReportError, match="answer"):
            written(broker, topic, [{"body": b"1"}], options=options)
        seconds = monotonic() - begun
    finally:
        os.kill(broker.pid, signal.SIGCONT)

    assert seconds >= 3 * 0.2
    # Three attempts, which the broker receives when it continues, and one before.
    until(
        lambda: (
            sorted(row["body"] for row in rows_of(reader_of(broker, subscribe=topic)))
            == [b"0", b"1", b"1", b"1"]
        ),
        "the repeated sends",
    )


@pytest.mark.parametrize("scope", [{}, {"idempotenceScope": "copies"}], ids=["default", "fixed"])
@pytest.mark.spark
def test_equal_rows_of_two_batches_differ_and_a_repeated_batch_does_not(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path, scope: dict[str, str]
) -> None:
    for _ in range(6):
        send(broker, topic, 1)
    copy = f"{topic}-copy"
    raw_remoting.create_topic(broker.port, copy, queues=1)
    cluster = {"namesrvAddr": broker.namesrv}
    stream = spark.readStream.format("rocketmq").options(
        **cluster, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2"
    )
    writing = stream.load().select("body").writeStream.format("rocketmq")
    writing = writing.options(**cluster, **scope, topic=copy)
    writing = writing.option("checkpointLocation", str(tmp_path))

    drained(writing)
    keys = [row["uniq_key"] for row in rows_of(reader_of(broker, subscribe=copy))]
    assert len(set(keys)) == 6
    # As after a crash before the commit.
    commits = sorted((tmp_path / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    commits[-1].unlink()
    (tmp_path / "commits" / f".{commits[-1].name}.crc").unlink()
    drained(writing)

    again = [row["uniq_key"] for row in rows_of(reader_of(broker, subscribe=copy))]
    assert len(again) > len(keys)
    assert set(again) == set(keys)


def test_a_row_with_a_delivery_time_is_delivered_at_that_time(
    broker: BrokerProcess, topic: str
) -> None:
    schema = StructType([BODY, StructField("deliver_at", TimestampType())])
    at = datetime.now(UTC) + timedelta(seconds=5)
    rows = pa.RecordBatch.from_pylist(
        [{"body": b"later", "deliver_at": at}, {"body": b"now", "deliver_at": None}],
        schema=pa.schema([("body", pa.binary()), ("deliver_at", pa.timestamp("us", "UTC"))]),
    )
    target = parse_options(options_of(broker, topic=topic))
    RocketMqWriter(target, schema, overwrite=False).write(iter([rows]))
    reader = reader_of(broker, subscribe=topic)

    assert [row["body"] for row in rows_of(reader)] == [b"now"]
    until(lambda: len(rows_of(reader)) == 2, "the message to be delivered")

    (stored,) = [row["store_timestamp"] for row in rows_of(reader) if row["body"] == b"later"]
    assert stored >= at.replace(microsecond=at.microsecond // 1000 * 1000)


def test_a_batch_without_a_number_is_rejected() -> None:
    writer = RocketMqStreamWriter(
        parse_options({"namesrvAddr": NAMESRV, "topic": "t"}), StructType([BODY])
    )

    with pytest.raises(ReportError, match="Spark doesn't say which batch of the stream this is"):
        writer.write(iter([]))
