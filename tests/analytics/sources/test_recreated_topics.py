"""A topic that is deleted and recreated is noticed, by every trigger, at any time."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from analytics.errors import DataLossError
from analytics.remote.cluster import Queue
from analytics.sources.marks import find_marks, recreated
from analytics.sources.stream_progress import Mark, Place, Progress
from tests.analytics.query_draining import drained
from tests.analytics.sources.clusters import (
    delete_topic,
    followed,
    recreate_topic,
    send,
    stream_bodies,
    stream_of,
)
from tests.support import raw_remoting

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess

WORDS = "was deleted and created again"


def restarted(broker: BrokerProcess, start: dict[str, Any], *, now: bool, **options: Any) -> Any:
    """Return the next trigger of a stopped query; `now` is Trigger.AvailableNow."""
    stream = stream_of(broker, **options)
    if now:
        stream.prepareForTriggerAvailableNow()
    return stream, lambda: stream.latestOffset(start, ReadAllAvailable())


@pytest.mark.parametrize("count", [4, 24, 60], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize("now", [False, True], ids=["ProcessingTime", "AvailableNow"])
def test_a_recreated_topic_is_loss_however_far_it_has_grown(
    broker: BrokerProcess, topic: str, count: int, now: bool
) -> None:
    send(broker, topic, 24)
    _, at = followed(stream_of(broker, subscribe=topic), begin(broker, topic))
    recreate_topic(broker, topic)
    sent = send(broker, topic, count, first=1000)

    _, look = restarted(broker, at, now=now, subscribe=topic)
    with pytest.raises(DataLossError, match=WORDS):
        look()

    stream, _ = restarted(broker, at, now=now, subscribe=topic, failOnDataLoss="false")
    assert sorted(followed(stream, at)[0]) == sent


def test_undelivered_messages_of_a_deleted_topic_are_loss(
    broker: BrokerProcess, topic: str
) -> None:
    send(broker, topic, 8)
    at = begin(broker, topic)
    recreate_topic(broker, topic)
    send(broker, topic, 8, first=1000)

    with pytest.raises(DataLossError, match=WORDS):
        stream_of(broker, subscribe=topic).latestOffset(at, ReadAllAvailable())


def test_a_repeated_batch_is_not_read_from_another_topic(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, 8)
    start = begin(broker, topic)
    end = stream_of(broker, subscribe=topic).latestOffset(start, ReadAllAvailable())
    recreate_topic(broker, topic)
    sent = send(broker, topic, 20, first=1000)

    with pytest.raises(DataLossError, match=WORDS):
        stream_of(broker, subscribe=topic).partitions(start, end)

    passing = stream_of(broker, subscribe=topic, failOnDataLoss="false")
    assert stream_bodies(passing, start, end) == []
    assert sorted(followed(passing, end)[0]) == sent


def test_a_missing_topic_is_loss_and_may_come_back(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, 8)
    _, at = followed(stream_of(broker, subscribe=topic), begin(broker, topic))
    delete_topic(broker, topic)

    with pytest.raises(DataLossError, match=f"of {topic} on broker-a, .* no longer exists"):
        stream_of(broker, subscribe=topic).latestOffset(at, ReadAllAvailable())

    passing = stream_of(broker, subscribe=topic, failOnDataLoss="false")
    assert followed(passing, at) == ([], at)
    raw_remoting.create_topic(broker.port, topic, queues=2)
    sent = send(broker, topic, 8, first=1000)
    assert sorted(followed(passing, at)[0]) == sent


def test_a_topic_that_was_read_is_not_a_loss(broker: BrokerProcess, topic: str) -> None:
    sent = send(broker, topic, 9)
    found, at = followed(stream_of(broker, subscribe=topic), begin(broker, topic), ReadMaxRows(4))

    assert sorted(found) == sent
    assert followed(stream_of(broker, subscribe=topic), at) == ([], at)
    more = send(broker, topic, 5, first=100)
    assert sorted(followed(stream_of(broker, subscribe=topic), at)[0]) == more


def test_a_topic_without_messages_is_known_by_its_queues_start() -> None:
    queue, place = Queue("t", "b", 0), Place("t", "b")
    nobody: Any = None  # gets no queries

    marks = asyncio.run(find_marks(nobody, "g", {queue: 40}, {queue: (40, 40)}, {}))

    assert marks == {place: Mark(0, 40, None)}
    assert asyncio.run(recreated(nobody, "g", marks, {queue: (40, 90)})) == frozenset()
    assert asyncio.run(recreated(nobody, "g", marks, {queue: (0, 90)})) == {place}
    assert asyncio.run(find_marks(nobody, "g", {queue: 0}, {queue: (0, 0)}, {})) == {}


def test_a_marked_message_that_has_expired_shows_nothing() -> None:
    queue, place = Queue("t", "b", 0), Place("t", "b")
    marks = {place: Mark(0, 39, 1795251442000)}
    nobody: Any = None  # gets no queries

    assert asyncio.run(recreated(nobody, "g", marks, {queue: (40, 90)})) == frozenset()
    assert asyncio.run(recreated(nobody, "g", marks, {queue: (0, 39)})) == {place}
    assert asyncio.run(recreated(nobody, "g", marks, {})) == frozenset()


def test_progress_survives_a_checkpoint() -> None:
    progress = Progress(
        {Queue("t", "b", 0): 40}, {Place("t", "b"): Mark(0, 40, None)}, {Queue("t", "b", 1): 3}
    )

    document = progress.document()

    assert Progress.of(json.loads(json.dumps(document))) == progress
    assert document["marks"] == {"t": {"b": {"queue": 0, "offset": 40, "stored": None}}}
    with pytest.raises(ValueError, match="progress of version 3"):
        Progress.of({"version": 3})


def test_a_checkpoint_with_only_offsets_is_continued(broker: BrokerProcess, topic: str) -> None:
    sent = send(broker, topic, 10)
    at = {topic: {"broker-a": {"0": 2, "1": 2}}}

    assert sorted(followed(stream_of(broker, subscribe=topic), at)[0]) == sent[4:]


@pytest.mark.spark
def test_a_query_ends_with_an_explanation_instead_of_missing_messages(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    send(broker, topic, 24)
    stream = spark.readStream.format("rocketmq").options(
        namesrvAddr=broker.namesrv, subscribe=topic, startingOffsets="earliest"
    )
    writing = stream.load().select("body").writeStream.format("noop")
    writing = writing.option("checkpointLocation", str(tmp_path))
    drained(writing)
    recreate_topic(broker, topic)
    send(broker, topic, 60, first=1000)

    with pytest.raises(StreamingQueryException, match=f"DataLossError: The topic {topic} on"):
        drained(writing)


def begin(broker: BrokerProcess, topic: str) -> dict[str, Any]:
    return stream_of(broker, subscribe=topic, startingOffsets="earliest").initialOffset()
