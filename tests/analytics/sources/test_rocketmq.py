"""The cluster source with our broker; tests/interop covers Apache RocketMQ."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from analytics.errors import DataLossError, ReportError
from analytics.remote.cluster import Queue
from analytics.schemas import CLUSTER_MESSAGES
from analytics.sources.queue_offsets import nested
from analytics.sources.queue_ranges import QueueRange, shared
from analytics.sources.rocketmq import RocketMqDataSource, RocketMqReader
from analytics.sources.rocketmq_options import parse_options
from analytics.sources.stream_progress import Progress
from tests.analytics.query_draining import drained
from tests.analytics.sources.clusters import (
    NAMESRV,
    WITH_DAMAGE,
    bodies_of,
    followed,
    reader_of,
    rows_of,
    send,
    stream_bodies,
    stream_of,
)
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import certificate
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ALL = {"namesrvAddr": NAMESRV, "subscribe": "orders"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "a"}, "needs the option namesrvAddr"),
        ({"namesrvAddr": "here", "subscribe": "a"}, "namesrvAddr is 'here'; it must be host:port"),
        ({"namesrvAddr": NAMESRV}, "needs one of the options subscribe, subscribePattern, assign"),
        ({**ALL, "assign": "{}"}, "subscribe and assign can't be combined"),
        ({**ALL, "topics": "a"}, "rocketmq has no option topics"),
        ({**ALL, "path": "/x"}, "doesn't read a path"),
        ({"namesrvAddr": NAMESRV, "subscribePattern": "("}, "must be a regular expression"),
        (
            {"namesrvAddr": NAMESRV, "assign": '{"a": 1}'},
            "assign is .* expected an object, found 1",
        ),
        ({"namesrvAddr": NAMESRV, "assign": "{}"}, "it must name a queue"),
        ({**ALL, "startingOffsets": "first"}, "startingOffsets is 'first'; it must be earliest"),
        (
            {**ALL, "startingOffsets": '{"a": {"b": {"0": -3}}}'},
            "a whole number of at least -2, found -3",
        ),
        (
            {**ALL, "startingOffsets": '{"a": {"b": {"x": 3}}}'},
            "a queue ID must be a number, not 'x'",
        ),
        ({**ALL, "endingOffsets": "earliest"}, "endingOffsets is 'earliest'; it must be latest"),
        ({**ALL, "startingOffsets": "latest", "startingTimestamp": "5"}, "can't be combined"),
        (
            {**ALL, "minPartitions": "0"},
            "minPartitions is '0'; it must be a whole number of at least 1",
        ),
        ({**ALL, "consumerGroup": "a b"}, "consumerGroup is 'a b'; .* illegal characters"),
        ({**ALL, "tls": "on"}, "tls is 'on'; it must be true or false"),
    ],
)
def test_an_invalid_option_is_rejected_with_an_explanation(
    options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ReportError, match=sentence):
        RocketMqReader(parse_options(options), CLUSTER_MESSAGES)


def test_headers_may_be_left_out_of_the_schema() -> None:
    assert RocketMqDataSource(ALL).schema() == CLUSTER_MESSAGES
    without = RocketMqDataSource({**ALL, "includeHeaders": "false"}).schema()
    assert "properties" not in without.names


def test_a_secret_is_in_no_text_of_the_options() -> None:
    expected = parse_options({**ALL, "accessKey": "me", "secretKey": "s3cr3t-of-mine"})

    assert "s3cr3t-of-mine" not in repr(expected)


def test_every_message_is_a_row_with_the_stored_values(broker: BrokerProcess, topic: str) -> None:
    sent = send(broker, topic, 100)

    rows = rows_of(reader_of(broker, subscribe=topic))

    assert sorted(row["body"] for row in rows) == sent
    for queue_id in (0, 1):
        numbers = [row["queue_offset"] for row in rows if row["queue_id"] == queue_id]
        assert numbers == list(range(len(numbers)))
    one = next(row for row in rows if row["body"] == b"000007")
    assert (one["topic"], one["broker_name"], one["keys"]) == (
        topic,
        "broker-a",
        ["k000007", "all"],
    )
    assert dict(one["properties"])["KEYS"] == "k000007 all"
    assert one["store_host"] == f"127.0.0.1:{broker.port}"
    assert one["body_size"] == 6


def test_missing_columns_are_rejected(broker: BrokerProcess) -> None:
    with pytest.raises(ReportError, match="rocketmq has no column offset; it has broker_name,"):
        reader_of(broker, StructType([StructField("offset", StringType())]), subscribe="a")
    with pytest.raises(ReportError, match="rocketmq's column queue_offset is int64, not int32"):
        reader_of(broker, StructType([StructField("queue_offset", IntegerType())]), subscribe="a")


def test_offsets_limit_each_queue(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, 40)
    starting = {topic: {"broker-a": {"0": 5, "1": -1}}}
    ending = {topic: {"broker-a": {"0": 9}}}

    found = rows_of(
        reader_of(
            broker,
            subscribe=topic,
            startingOffsets=json.dumps(starting),
            endingOffsets=json.dumps(ending),
        )
    )

    assert [(row["queue_id"], row["queue_offset"]) for row in found] == [
        (0, number) for number in range(5, 9)
    ]


def test_queues_may_be_named_one_by_one(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, 20)
    queues = json.dumps({topic: {"broker-a": [1]}})

    found = rows_of(reader_of(broker, assign=queues))

    assert [(row["queue_id"], row["queue_offset"]) for row in found] == [
        (1, number) for number in range(10)
    ]


def test_a_pattern_matches_topics_but_not_the_brokers_own(
    broker: BrokerProcess, topic: str
) -> None:
    sent = send(broker, topic, 10)

    assert bodies_of(reader_of(broker, subscribePattern=f"{topic[:-1]}.")) == sent
    assert bodies_of(reader_of(broker, subscribePattern=topic[:-1])) == []
    everything = rows_of(reader_of(broker, subscribePattern=".*"))
    assert not {row["topic"] for row in everything} & {"SCHEDULE_TOPIC_XXXX", "TBW102"}


def test_times_limit_the_read_to_the_millisecond(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, 200)
    every = rows_of(reader_of(broker, subscribe=topic))
    stored = sorted(round(row["store_timestamp"].timestamp() * 1000) for row in every)
    first, behind = stored[60], stored[140]

    found = rows_of(
        reader_of(broker, subscribe=topic, startingTimestamp=first, endingTimestamp=behind)
    )

    assert sorted(round(row["store_timestamp"].timestamp() * 1000) for row in found) == [
        at for at in stored if first <= at < behind
    ]


@pytest.mark.parametrize("least", [1, 2, 5, 40])
def test_large_ranges_are_cut_for_more_tasks(broker: BrokerProcess, topic: str, least: int) -> None:
    sent = send(broker, topic, 40)
    reader = reader_of(broker, subscribe=topic, minPartitions=least)

    assert len(reader.partitions()) >= least
    assert bodies_of(reader) == sent


def test_small_queues_share_a_task() -> None:
    ranges = [QueueRange(Queue("t", "b", number), 0, 30_000) for number in range(10)]

    assert [len(each.value) for each in shared(ranges, 0)] == [3, 3, 3, 1]
    assert [len(each.value) for each in shared([], 5)] == [0]


def test_a_missing_topic_is_reported_in_one_sentence(broker: BrokerProcess) -> None:
    with pytest.raises(ReportError, match=r"The name server 127.* has no topic nowhere"):
        reader_of(broker, subscribe="nowhere").partitions()


def test_an_unresponsive_name_server_is_explained_in_one_sentence() -> None:
    given = {
        "namesrvAddr": f"127.0.0.1:{free_port()}",
        "subscribe": "a",
        "timeoutMs": "2000",
        "fetchOffset.numRetries": "1",
        "fetchOffset.retryIntervalMs": "1",
    }

    with pytest.raises(ReportError, match=r"The name server at 127\.0\.0\.1:\d+ doesn't respond"):
        RocketMqReader(parse_options(given), CLUSTER_MESSAGES).partitions()


def test_an_offset_beyond_the_end_is_loss(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, 4)
    starting = json.dumps({topic: {"broker-a": {"0": 500}}})

    with pytest.raises(DataLossError, match="ends at 2, before the offset 500"):
        reader_of(broker, subscribe=topic, startingOffsets=starting).partitions()
    passed = reader_of(broker, subscribe=topic, startingOffsets=starting, failOnDataLoss="false")
    assert len(rows_of(passed)) == 2


def test_missing_messages_fail_the_read_or_are_damage_rows(
    broker: BrokerProcess, topic: str
) -> None:
    send(broker, topic, 4)
    beyond = QueueRange(Queue(topic, "broker-a", 0), 1, 9)
    (share,) = shared([beyond], 0)

    with pytest.raises(DataLossError, match="the offsets 2 to 9 no longer exist"):
        list(reader_of(broker, subscribe=topic).read(share))
    counting = reader_of(broker, WITH_DAMAGE, subscribe=topic, failOnDataLoss="false")
    rows = [row for batch in counting.read(share) for row in batch.to_pylist()]
    assert [row["queue_offset"] for row in rows if row["damage"] is None] == [1]
    assert [row["damage"]["reason"] for row in rows if row["damage"]] == [
        "the offsets 2 to 9 no longer exist"
    ]


def test_a_stream_reads_each_message_once_in_bounded_batches(
    broker: BrokerProcess, topic: str
) -> None:
    sent = send(broker, topic, 50)
    stream = stream_of(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=8)
    found: list[bytes] = []
    at, batches = stream.initialOffset(), 0

    while (end := stream.latestOffset(at, ReadMaxRows(8))) != at:
        size = sum(Progress.of(end).offsets.values()) - sum(Progress.of(at).offsets.values())
        assert 0 < size <= 8 + 1
        found += stream_bodies(stream, at, end)
        at, batches = end, batches + 1

    assert sorted(found) == sent
    assert batches >= 6
    assert stream.getDefaultReadLimit() == ReadMaxRows(8)
    assert stream.partitions(at, at) == []


def test_a_stream_starts_at_the_end_and_includes_new_topics(
    broker: BrokerProcess, topic: str
) -> None:
    send(broker, topic, 10)
    stream = stream_of(broker, subscribePattern=f"{topic}.*")
    begun = stream.initialOffset()
    raw_remoting.create_topic(broker.port, f"{topic}-new", queues=1)
    sent = send(broker, topic, 3, first=100) + send(broker, f"{topic}-new", 2, first=200)

    end = stream.latestOffset(begun, ReadAllAvailable())

    assert sorted(stream_bodies(stream, begun, end)) == sorted(sent)


def test_a_stream_whose_topic_was_recreated_is_rejected(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, 4)
    ahead = nested({Queue(topic, "broker-a", 0): 40})
    gone = nested({Queue(topic, "broker-a", 9): 4})

    with pytest.raises(DataLossError, match="ends at 2, before the offset 40 that this stream has"):
        stream_of(broker, subscribe=topic).latestOffset(ahead, ReadAllAvailable())
    with pytest.raises(DataLossError, match="which this stream has read up to 4, no longer exists"):
        stream_of(broker, subscribe=topic).latestOffset(gone, ReadAllAvailable())
    passing = stream_of(broker, subscribe=topic, failOnDataLoss="false")
    assert sorted(followed(passing, ahead)[0]) == [b"%06d" % number for number in range(4)]


def test_a_stream_has_no_end(broker: BrokerProcess) -> None:
    with pytest.raises(ReportError, match="A stream of rocketmq has no end"):
        stream_of(broker, subscribe="a", endingOffsets="latest")


def test_an_account_reads_only_permitted_topics(tmp_path: Path) -> None:
    (tmp_path / "one" / "conf").mkdir(parents=True)
    accounts = {
        "accounts": [
            {"accessKey": "reporter", "secretKey": "a-long-secret", "admin": True},
        ]
    }
    file = tmp_path / "one" / "conf" / "plain_acl.yml"
    file.write_text(yaml.safe_dump(accounts))
    file.chmod(0o600)
    secret = tmp_path / "secret"
    secret.write_text("a-long-secret\n")
    broker = BrokerProcess(tmp_path / "one", aclEnable="true")
    broker.start()
    try:
        account: dict[str, Any] = {"accessKey": "reporter", "secretKeyFile": secret}
        assert rows_of(reader_of(broker, subscribe="TBW102", **account)) == []
        with pytest.raises(ReportError, match=r"rejected GET_M.*Check signature failed"):
            reader_of(
                broker, subscribe="TBW102", accessKey="reporter", secretKey="wrong"
            ).partitions()
    finally:
        broker.stop()


def test_connections_are_encrypted_and_the_other_side_is_verified(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "broker")
    other, _ = certificate(tmp_path, "other")
    broker = BrokerProcess(
        tmp_path / "one",
        **{
            "tls.server.mode": "enforcing",
            "tls.server.certPath": made,
            "tls.server.keyPath": key,
            "tls.test.mode.enable": "false",
        },
    )
    broker.start()
    try:
        nothing: dict[str, Any] = {"subscribePattern": "nothing", "tls": "true"}
        assert rows_of(reader_of(broker, **nothing, tlsCaFile=made)) == []
        assert rows_of(reader_of(broker, **nothing, tlsVerify="false")) == []
        once: dict[str, Any] = {"fetchOffset.numRetries": 0}
        with pytest.raises(ReportError, match=r"doesn't respond: .*certificate verify failed"):
            reader_of(broker, **nothing, **once, tlsCaFile=other).partitions()
    finally:
        broker.stop()


@pytest.mark.spark
def test_a_frame_makes_a_round_trip_through_a_cluster_as_frame_and_stream(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    frame = spark.range(300).selectExpr("cast(id as string) AS body", "'t' AS tags")
    cluster = {"namesrvAddr": broker.namesrv}

    frame.write.format("rocketmq").mode("append").options(**cluster, topic=topic).save()
    source = spark.read.format("rocketmq").options(**cluster, subscribe=topic, minPartitions="4")
    rows = source.load().select("body", "tags", "broker_name").collect()

    assert sorted(int(bytes(row.body)) for row in rows) == list(range(300))
    assert {(row.tags, row.broker_name) for row in rows} == {("t", "broker-a")}

    copy = f"{topic}-copy"
    raw_remoting.create_topic(broker.port, copy, queues=2)
    stream = spark.readStream.format("rocketmq").options(
        **cluster, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="120"
    )
    writing = stream.load().select("body", "tags").writeStream.format("rocketmq")
    query = drained(
        writing.options(**cluster, topic=copy).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
    )

    copied = spark.read.format("rocketmq").options(**cluster, subscribe=copy).load()
    found = Counter(int(bytes(row.body)) for row in copied.select("body").collect())
    # At least once: a batch that was started twice may be stored twice.
    assert set(found) == set(range(300))
    assert query.recentProgress
