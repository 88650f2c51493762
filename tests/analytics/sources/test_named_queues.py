"""An option with an unknown topic, broker or queue is rejected by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from analytics.errors import DataLossError, ReportError
from analytics.schemas import MESSAGES
from analytics.sources import commitlog
from tests.analytics.sources.clusters import reader_of, send, stream_of
from tests.analytics.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

# TOPIC represents an existing topic with two queues on broker-a.
UNKNOWN = [
    ({"TOPIC": {"broker-b": [0]}}, "the broker broker-b, which has no queue of TOPIC; .* broker-a"),
    ({"TOPIC": {"broker-a": [0, 2]}}, "queue 2 of TOPIC on broker-a, which doesn't exist; .* 0, 1"),
]


def offsets(named: dict[str, Any]) -> dict[str, Any]:
    return {
        topic: {broker: dict.fromkeys(map(str, ids), 0) for broker, ids in brokers.items()}
        for topic, brokers in named.items()
    }


@pytest.mark.parametrize(("named", "sentence"), UNKNOWN)
@pytest.mark.parametrize(
    "option",
    [
        "assign",
        "startingOffsets",
        "endingOffsets",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
    ],
)
def test_an_unknown_broker_or_queue_is_rejected_by_its_name(
    broker: BrokerProcess, topic: str, option: str, named: dict[str, Any], sentence: str
) -> None:
    send(broker, topic, 2)
    value = named if option == "assign" else offsets(named)
    given = {option: json.dumps(value).replace("TOPIC", topic)}
    if option != "assign":
        given["subscribe"] = topic

    with pytest.raises(ReportError, match=f"{option} names {sentence.replace('TOPIC', topic)}"):
        reader_of(broker, **given).partitions()
    if not option.startswith("ending"):
        with pytest.raises(ReportError, match=f"{option} names {sentence.replace('TOPIC', topic)}"):
            stream_of(broker, **given).initialOffset()


@pytest.mark.parametrize("way", ["subscribe", "subscribePattern"])
def test_offsets_of_an_unread_topic_are_rejected(
    broker: BrokerProcess, topic: str, way: str
) -> None:
    starting = json.dumps({"nowhere": {"broker-a": {"0": 0}}})

    with pytest.raises(
        ReportError, match=f"startingOffsets names the topic nowhere, which isn't read; .* {topic}"
    ):
        reader_of(broker, **{way: topic}, startingOffsets=starting).partitions()


@pytest.mark.parametrize(
    "given", [{"subscribe": "nowhere"}, {"assign": json.dumps({"nowhere": {"broker-a": [0]}})}]
)
def test_an_unknown_topic_is_rejected(broker: BrokerProcess, given: dict[str, Any]) -> None:
    with pytest.raises(ReportError, match="has no topic nowhere"):
        reader_of(broker, **given).partitions()
    with pytest.raises(ReportError, match="has no topic nowhere"):
        stream_of(broker, **given).initialOffset()


def test_an_end_offset_that_the_queue_has_not_reached_is_loss(
    broker: BrokerProcess, topic: str
) -> None:
    send(broker, topic, 4)
    ending = json.dumps({topic: {"broker-a": {"0": 500}}})

    with pytest.raises(DataLossError, match="ends at 2, before the offset 500 that the options"):
        reader_of(broker, subscribe=topic, endingOffsets=ending).partitions()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return StoreBuilder(tmp_path / "store").put_many(30).write()


def frame_of(store: Path, **options: object) -> commitlog.CommitLogReader:
    given = {name: str(value) for name, value in options.items()}
    return commitlog.CommitLogReader(
        commitlog.parse_options({"path": str(store), **given}), MESSAGES
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topic": "ordres"}, "has no topic ordres"),
        ({"topic": "orders,ordres"}, "has no topic ordres"),
        ({"queue": 3}, "has no queue 3 of any topic; the highest queue id is 2"),
        ({"topic": "orders", "queue": "0,7"}, "has no queue 7 of orders"),
    ],
)
def test_a_store_without_the_topic_or_queue_rejects_it(
    store: Path, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ReportError, match=sentence):
        frame_of(store, **options).partitions()
    stream = commitlog.CommitLogStreamReader(
        commitlog.parse_options(
            {"path": str(store), **{name: str(value) for name, value in options.items()}}
        ),
        MESSAGES,
    )
    with pytest.raises(ReportError, match=sentence):
        stream.initialOffset()


def test_a_topic_without_messages_or_with_only_old_ones_exists(store: Path) -> None:
    config = store / "config"
    config.mkdir()
    table = {"empty": {"topicName": "empty", "readQueueNums": 4, "writeQueueNums": 8}}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    (store / "deletedTopics.json").write_text(json.dumps({"deletedBefore": {"old": 900}}))

    assert frame_of(store, topic="empty", queue=7).partitions()
    assert frame_of(store, topic="old").partitions()
    assert frame_of(store, topic="RMQ_SYS_TRACE_TOPIC").partitions()
    with pytest.raises(ReportError, match="has no queue 8 of empty"):
        frame_of(store, topic="empty", queue=8).partitions()


def test_a_copy_of_only_the_log_has_no_topics(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path).put_many(30)
    root = builder.write(queues=False)

    assert frame_of(root, topic="nowhere").partitions()
