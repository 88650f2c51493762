"""The Spark sources with Apache RocketMQ itself: its cluster over TCP, and its files."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from analytics.errors import DataLossError
from analytics.remote.access import Access
from analytics.remote.cluster import Cluster, Queue
from analytics.remote.send import Outgoing, Sender
from analytics.schemas import CLUSTER_MESSAGES, MESSAGES
from analytics.sources.commitlog import CommitLogReader, parse_options as commitlog_options
from analytics.sources.rocketmq import RocketMqReader
from analytics.sources.rocketmq_options import parse_options
from analytics.sources.rocketmq_stream import RocketMqStreamReader
from analytics.sources.rocketmq_writer import Messages
from analytics.sources.stored_times import stored_ms_at
from analytics.sources.stream_progress import Progress
from tests.conftest import require_java
from tests.support import raw_remoting
from tests.support.peer import Peer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from tests.support.java_clients import JavaClients

pytestmark = pytest.mark.interop

TOPIC = "orders"
COUNT = 60
DELETE_TOPIC_IN_BROKER = 215


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def peer(
    request: pytest.FixtureRequest, java_4: JavaClients, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    """The real broker with messages of the real client, single ones and in batches."""
    require_java()
    with Peer(request.param, tmp_path_factory.mktemp("peer")) as one:
        raw_remoting.create_topic(one.port, TOPIC, queues=3)
        until(lambda: is_known(one, TOPIC), "the name server to know the topic", seconds=120)
        java_4.send(one.namesrv, TOPIC, modes="sync", count=COUNT, tags="paid", prefix="order")
        java_4.send(one.namesrv, TOPIC, modes="batch", count=COUNT, tags="sent", prefix="late")
        yield one


def is_known(peer: Peer, topic: str) -> bool:
    async def topics() -> list[str]:
        async with Cluster(Access((peer.namesrv,))) as cluster:
            return await cluster.topics()

    return topic in asyncio.run(topics())


def rows(reader: RocketMqReader | CommitLogReader) -> list[dict[str, Any]]:
    found = [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: int(row["commit_log_offset"]))


def over_tcp(peer: Peer, schema: StructType = CLUSTER_MESSAGES, **options: object) -> Any:
    given = {name: str(value) for name, value in options.items()}
    return RocketMqReader(
        parse_options({"namesrvAddr": peer.namesrv, "subscribe": TOPIC, **given}), schema
    )


def from_files(peer: Peer, **options: object) -> CommitLogReader:
    given = {name: str(value) for name, value in options.items()}
    return CommitLogReader(
        commitlog_options({"path": str(peer.store), "topic": TOPIC, **given}), MESSAGES
    )


def test_client_messages_are_read_over_tcp(peer: Peer) -> None:
    found = rows(over_tcp(peer, endingOffsets="latest"))

    sent = [row for row in found if row["tags"] in ("paid", "sent")]
    assert len(sent) == 2 * COUNT
    assert {row["broker_name"] for row in found} == {"broker-a"}
    assert all(row["uniq_key"] for row in sent)
    by_queue: dict[int, list[int]] = {}
    for row in found:
        by_queue.setdefault(row["queue_id"], []).append(row["queue_offset"])
    assert all(offsets == list(range(len(offsets))) for offsets in by_queue.values())


def test_the_cluster_and_its_files_have_the_same_rows(peer: Peer) -> None:
    cluster = rows(over_tcp(peer))
    for row in cluster:
        del row["broker_name"]

    assert rows(from_files(peer)) == cluster
    # Through the ConsumeQueues, which RocketMQ writes in a separate thread.
    last = cluster[-1]["commit_log_offset"]
    plan = commitlog_options({"path": str(peer.store), "topic": TOPIC}).plan(None, last)
    assert plan.split_bytes > 0


def test_times_find_the_same_messages_as_in_the_files(peer: Peer) -> None:
    every = rows(over_tcp(peer))
    times = sorted(round(row["store_timestamp"].timestamp() * 1000) for row in every)
    bounds = {"startingTimestamp": times[len(times) // 3], "endingTimestamp": times[-5]}

    cluster = rows(over_tcp(peer, **bounds))

    assert [row["commit_log_offset"] for row in cluster] == [
        row["commit_log_offset"] for row in rows(from_files(peer, **bounds))
    ]
    assert 0 < len(cluster) < len(every)


def test_a_stream_reads_each_message_once(peer: Peer) -> None:
    stream = RocketMqStreamReader(
        parse_options(
            {
                "namesrvAddr": peer.namesrv,
                "subscribe": TOPIC,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "25",
            }
        ),
        CLUSTER_MESSAGES,
    )
    found: list[tuple[int, int]] = []
    at = stream.initialOffset()

    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        found += [
            (row["queue_id"], row["queue_offset"])
            for partition in stream.partitions(at, end)
            for batch in stream.read(partition)
            for row in batch.to_pylist()
        ]
        at = end

    assert len(found) == len(set(found)) == sum(Progress.of(at).offsets.values())


def send(peer: Peer, topic: str, *outgoing: Outgoing) -> None:
    async def sent() -> None:
        async with Cluster(Access((peer.namesrv,))) as cluster:
            await Sender(cluster, "pg").send_all(outgoing)

    until(lambda: is_known(peer, topic), "the name server to know the topic", seconds=120)
    asyncio.run(sent())


def stream_of(peer: Peer, topic: str, **options: str) -> RocketMqStreamReader:
    given = {"namesrvAddr": peer.namesrv, "subscribe": topic, **options}
    return RocketMqStreamReader(parse_options(given), CLUSTER_MESSAGES)


def test_a_topic_recreated_by_the_real_broker_is_noticed(peer: Peer) -> None:
    topic = "again"
    raw_remoting.create_topic(peer.port, topic, queues=1)
    send(peer, topic, *(Outgoing(topic, b"%d" % number, {}) for number in range(5)))
    start = stream_of(peer, topic, startingOffsets="earliest").initialOffset()
    at = stream_of(peer, topic).latestOffset(start, ReadAllAvailable())
    assert stream_of(peer, topic).latestOffset(at, ReadAllAvailable()) == at
    with raw_remoting.RawClient(peer.port) as client:
        assert client.ask(DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == raw_remoting.SUCCESS
    raw_remoting.create_topic(peer.port, topic, queues=1)
    send(peer, topic, *(Outgoing(topic, b"%d" % number, {}) for number in range(9)))

    stream = stream_of(peer, topic)
    stream.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="was deleted and created again"):
        stream.latestOffset(at, ReadAllAvailable())


def test_a_queues_times_are_found_to_the_message(peer: Peer) -> None:
    every = rows(over_tcp(peer))
    queue = [row for row in every if row["queue_id"] == 1]
    times = [round(row["store_timestamp"].timestamp() * 1000) for row in queue]
    bounds = times[0] + 1, times[-1]
    starting, ending = (
        json.dumps({TOPIC: {"broker-a": {"0": 4 * 10**12, "1": at, "2": 4 * 10**12}}})
        for at in bounds
    )

    found = rows(
        over_tcp(peer, startingOffsetsByTimestamp=starting, endingOffsetsByTimestamp=ending)
    )

    assert [row["queue_offset"] for row in found if row["queue_id"] == 1] == [
        row["queue_offset"]
        for row, at in zip(queue, times, strict=True)
        if bounds[0] <= at < bounds[1]
    ]
    assert {row["queue_id"] for row in found} == {1}


def test_a_delivery_time_is_kept_by_rocketmq_5(peer: Peer) -> None:
    if peer.version != "5.3.3":
        return  # 4.9 has no timer messages
    topic = "timed"
    raw_remoting.create_topic(peer.port, topic, queues=1)
    at = datetime.now(UTC) + timedelta(seconds=4)
    row = {"body": b"late", "deliver_at": at}
    send(peer, topic, Messages(topic, "1").of(row))
    queue = Queue(topic, "broker-a", 0)

    async def stored() -> int | None:
        async with Cluster(Access((peer.namesrv,))) as cluster:
            return await stored_ms_at(cluster, queue, 0, "g")

    until(lambda: asyncio.run(stored()) is not None, "the message to be delivered", seconds=60)
    assert (asyncio.run(stored()) or 0) >= at.timestamp() * 1000 - 1000


def test_written_messages_are_received_by_the_real_client(peer: Peer, java_4: JavaClients) -> None:
    topic = "written"
    raw_remoting.create_topic(peer.port, topic, queues=3)
    bodies = [b"%04d" % number for number in range(20)]

    async def send() -> None:
        async with Cluster(Access((peer.namesrv,))) as cluster:
            outgoing = [Outgoing(topic, body, {"TAGS": "t", "KEYS": "k"}) for body in bodies]
            await Sender(cluster, "pg").send_all(outgoing)

    until(lambda: is_known(peer, topic), "the name server to know the topic", seconds=120)
    asyncio.run(send())
    received = java_4.receive(peer.namesrv, topic, "written-group", count=len(bodies))

    assert {line[0] for line in received} == {"k"}
    assert {line[5] for line in received} == {body.decode() for body in bodies}
