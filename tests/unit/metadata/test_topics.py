from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core import config
from broker_core.errors import StoreError
from broker_core.message.topic_config import TopicConfig
from broker_core.metadata.document import Document
from broker_core.metadata.topics import Topics
from broker_core.storage import FileStorage
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path


def make_topics(directory: Path, **keys: str) -> Topics:
    configuration, errors = config.build({"brokerName": "broker-a", **keys})
    assert not errors
    topics = Topics(
        configuration.broker, 18, ManualClock(), Document(FileStorage(), directory / "topics.json")
    )
    topics.load()
    return topics


def test_the_topics_of_the_boot_are_there(tmp_path: Path) -> None:
    table = make_topics(tmp_path).table

    assert table["TBW102"].perm == 7
    assert table["TBW102"].write_queue_nums == 8
    assert table["SCHEDULE_TOPIC_XXXX"].write_queue_nums == 18
    assert table["DefaultCluster"].perm == 7
    assert table["broker-a"].write_queue_nums == 1
    assert "DefaultCluster_REPLY_TOPIC" in table
    assert "RMQ_SYS_TRACE_TOPIC" not in table


def test_without_automatic_creation_there_is_no_model(tmp_path: Path) -> None:
    topics = make_topics(tmp_path, autoCreateTopicEnable="false")

    assert topics.create_from_default("T", "TBW102", 4) is None


def test_a_topic_made_on_its_first_send_has_the_smaller_queue_count(tmp_path: Path) -> None:
    topics = make_topics(tmp_path)

    made = topics.create_from_default("T", "TBW102", 4)

    assert made is not None
    assert (made.write_queue_nums, made.read_queue_nums, made.perm) == (4, 4, 6)
    other = topics.create_from_default("U", "TBW102", 400)
    assert other is not None
    assert other.write_queue_nums == 8


def test_a_change_is_persisted_counted_and_told(tmp_path: Path) -> None:
    topics = make_topics(tmp_path)
    told: list[str] = []
    topics.on_change = told.append

    topics.put(TopicConfig(topic_name="T", perm=4))

    assert told == ["T"]
    assert topics.data_version.counter == 1
    again = make_topics(tmp_path)
    assert again.table["T"].perm == 4
    assert again.data_version == topics.data_version


def test_a_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    topics = make_topics(tmp_path)
    topics.put(TopicConfig(topic_name="T"))

    assert topics.delete("T")
    assert not topics.delete("T")
    assert make_topics(tmp_path).find("T") is None


def test_a_file_of_the_original_is_read(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(
        '{\n\t"dataVersion":{\n\t\t"counter":269,\n\t\t"timestamp":1795252759675\n\t},\n'
        '\t"topicConfigTable":{\n\t\t"TopicTest":{\n\t\t\t"attributes":{},\n\t\t\t"order":false,\n'
        '\t\t\t"perm":6,\n\t\t\t"readQueueNums":8,\n\t\t\t"topicFilterType":"SINGLE_TAG",\n'
        '\t\t\t"topicName":"TopicTest",\n\t\t\t"topicSysFlag":0,\n\t\t\t"writeQueueNums":8\n'
        "\t\t}\n\t}\n}"
    )

    topics = make_topics(tmp_path)

    assert topics.data_version.counter == 269
    assert topics.table["TopicTest"].read_queue_nums == 8


def test_a_file_with_nonsense_in_it_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text('{"topicConfigTable":{"T":{"perm":"many"}}}')

    with pytest.raises(StoreError, match=r"topics\.json"):
        make_topics(tmp_path)
