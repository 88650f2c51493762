from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from broker_core.config.loading import build
from broker_core.errors import StoreError
from broker_core.message.topic_config import FLAG_UNIT, FLAG_UNIT_SUB, TopicConfig
from broker_core.metadata.document import Document
from broker_core.metadata.topics import Topics
from broker_core.storage import FileStorage
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path


def make_topics(directory: Path, **keys: str) -> Topics:
    configuration, errors = build({"brokerName": "broker-a", **keys})
    assert not errors
    topics = Topics(
        configuration.broker, ManualClock(), Document(FileStorage(), directory / "topics.json")
    )
    topics.load()
    return topics


def test_the_topics_created_at_boot_are_present(tmp_path: Path) -> None:
    table = make_topics(tmp_path).table

    found = {name: (one.write_queue_nums, one.perm) for name, one in table.items()}
    assert found == {
        "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
        "OFFSET_MOVED_EVENT": (1, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "broker-a": (1, 7),
    }
    assert all(one.read_queue_nums == one.write_queue_nums for one in table.values())
    assert all(one.topic_sys_flag == 0 and not one.order for one in table.values())


def test_without_automatic_creation_there_is_no_model(tmp_path: Path) -> None:
    topics = make_topics(tmp_path, autoCreateTopicEnable="false")

    assert topics.create_from_default("T", "TBW102", 4) is None


def test_a_topic_created_on_its_first_send_has_the_smaller_queue_count(tmp_path: Path) -> None:
    topics = make_topics(tmp_path)

    made = topics.create_from_default("T", "TBW102", 4)

    assert made is not None
    assert (made.write_queue_nums, made.read_queue_nums, made.perm) == (4, 4, 6)
    other = topics.create_from_default("U", "TBW102", 400)
    assert other is not None
    assert other.write_queue_nums == 8


def test_a_topic_created_on_its_first_send_inherits_its_models_filter_type(tmp_path: Path) -> None:
    topics = make_topics(tmp_path)
    topics.put(msgspec.structs.replace(topics.table["TBW102"], topic_filter_type="MULTI_TAG"))

    made = topics.create_from_default("T", "TBW102", 4)

    assert made is not None
    assert made.topic_filter_type == "MULTI_TAG"
    assert topics.table["TBW102"].perm == 7


def test_a_created_topic_has_the_given_flags(tmp_path: Path) -> None:
    topics = make_topics(tmp_path)

    made = topics.create_from_default("T", "TBW102", 4, FLAG_UNIT)
    retry = topics.create_retry("%RETRY%g", 1, FLAG_UNIT_SUB)

    assert made is not None
    assert (made.topic_sys_flag, retry.topic_sys_flag) == (1, 2)
    assert topics.create_retry("%RETRY%g", 1).topic_sys_flag == 2


def test_a_change_is_persisted_counted_and_announced(tmp_path: Path) -> None:
    topics = make_topics(tmp_path)
    reports: list[str] = []
    topics.on_change = reports.append

    topics.put(TopicConfig(topic_name="T", perm=4))

    assert reports == ["T"]
    assert topics.data_version.counter == 1
    topics.writer.write_now()
    again = make_topics(tmp_path)
    assert again.table["T"].perm == 4
    assert again.data_version == topics.data_version


def test_a_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    topics = make_topics(tmp_path)
    topics.put(TopicConfig(topic_name="T"))
    topics.writer.write_now()

    assert topics.delete("T")
    assert not topics.delete("T")
    topics.writer.write_now()
    assert make_topics(tmp_path).find("T") is None


def test_a_file_of_the_original_can_be_read(tmp_path: Path) -> None:
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


def test_a_file_with_invalid_content_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text('{"topicConfigTable":{"T":{"perm":"many"}}}')

    with pytest.raises(StoreError, match=r"topics\.json"):
        make_topics(tmp_path)
