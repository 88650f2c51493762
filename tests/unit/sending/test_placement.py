from __future__ import annotations

import logging

import msgspec
import pytest

from broker_core.errors import RequestRefusedError
from broker_core.message.data_version import DataVersion
from broker_core.message.sys_flag import MULTI_TAGS_FLAG
from broker_core.message.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from broker_core.protocol.codes import ResponseCode
from broker_core.sending.placement import QUEUE_NUMS_DEFAULT, Destination, require_writable
from tests.unit.sending.conftest import Sending, make_sending

PRODUCER = "10.0.0.9:5000"


def destination(
    topic: str,
    queue_id: int = 0,
    default_topic: str | None = "TBW102",
    queue_nums: int | None = None,
    *,
    is_unit: bool = False,
) -> Destination:
    return Destination(topic, queue_id, default_topic, queue_nums, PRODUCER, is_unit)


def add(
    sending: Sending, topic: str, *, write: int = 4, read: int = 4, order: bool = False
) -> None:
    sending.topics.put(
        TopicConfig(
            topic_name=topic,
            read_queue_nums=read,
            write_queue_nums=write,
            perm=PERM_READ | PERM_WRITE,
            order=order,
        )
    )


def refusal(sending: Sending, request: Destination) -> RequestRefusedError:
    with pytest.raises(RequestRefusedError) as refused:
        sending.placement.place(request)
    return refused.value


@pytest.mark.parametrize(
    ("topic", "queue_id", "is_plain"),
    [
        ("T", 0, True),
        ("T", 3, True),
        ("T", 4, False),
        ("T", -1, False),
        ("unknown", 0, False),
        ("", 0, False),
        ("%RETRY%g", 0, False),
        ("SCHEDULE_TOPIC_XXXX", 0, False),
    ],
)
def test_a_known_queue_of_a_plain_topic_needs_no_further_check(
    sending: Sending, topic: str, queue_id: int, is_plain: bool
) -> None:
    add(sending, "T")
    add(sending, "%RETRY%g")

    assert (0 <= queue_id < sending.placement.plain_queues[topic]) is is_plain


def test_plain_queues_follow_the_topic(sending: Sending) -> None:
    add(sending, "T")
    plain_queues = sending.placement.plain_queues
    assert plain_queues["T"] == 4

    sending.topics.put(msgspec.structs.replace(sending.topics.table["T"], write_queue_nums=2))
    assert plain_queues["T"] == 2

    sending.topics.follow(DataVersion(counter=7), {})
    assert plain_queues["T"] == 0


def test_a_deleted_topic_is_no_longer_plain(sending: Sending) -> None:
    add(sending, "T")
    assert sending.placement.plain_queues["T"] == 4

    sending.topics.delete("T")

    assert sending.placement.plain_queues["T"] == 0


def test_topics_named_by_strangers_use_no_space(sending: Sending) -> None:
    for number in range(10):
        assert sending.placement.plain_queues[f"unknown{number}"] == 0

    assert not list(sending.placement.plain_queues)


@pytest.mark.parametrize(
    "keys", [{"brokerPermission": "4"}, {"startAcceptSendRequestTimeStamp": "1"}]
)
def test_nothing_is_plain_if_more_than_the_topic_decides(keys: dict[str, str]) -> None:
    sending = make_sending(**keys)
    add(sending, "T")

    assert not sending.placement.plain_queues["T"]
    assert sending.placement.place(destination("T")) == 0


def test_a_topic_is_created_on_its_first_message(
    sending: Sending, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    assert sending.placement.place(destination("T", 3)) == 3

    assert sending.topics.table["T"].write_queue_nums == QUEUE_NUMS_DEFAULT
    assert f"send to an unknown topic topic=T count=1 producer={PRODUCER}" in caplog.messages


def test_the_producer_chooses_a_new_topics_queue_count(sending: Sending) -> None:
    sending.placement.place(destination("T", queue_nums=2))

    assert sending.topics.table["T"].write_queue_nums == 2


def test_a_retry_topic_is_created_whatever_the_default_topic_is(sending: Sending) -> None:
    assert sending.placement.place(destination("%RETRY%g", default_topic=None)) == 0

    assert sending.topics.table["%RETRY%g"].write_queue_nums == 1


def test_without_automatic_creation_an_unknown_topic_is_rejected() -> None:
    sending = make_sending(autoCreateTopicEnable="false")

    refused = refusal(sending, destination("T"))

    assert refused.code == ResponseCode.TOPIC_NOT_EXIST
    assert refused.remark == "topic[T] not exist, apply first please!"
    assert "T" not in sending.topics.table


def test_a_negative_queue_id_chooses_any_writable_queue(sending: Sending) -> None:
    add(sending, "T", write=3, read=8)

    chosen = {sending.placement.place(destination("T", -1)) for _ in range(200)}

    assert chosen == {0, 1, 2}


def test_a_read_only_queue_accepts_messages_that_name_it(sending: Sending) -> None:
    """As with RocketMQ: while a topic shrinks, producers still have its old queues."""
    add(sending, "T", write=2, read=4)

    assert sending.placement.place(destination("T", 3)) == 3


@pytest.mark.parametrize(("write", "queue_id"), [(4, 4), (0, -1)])
def test_a_missing_queue_is_rejected(sending: Sending, write: int, queue_id: int) -> None:
    add(sending, "T", write=write)

    refused = refusal(sending, destination("T", queue_id))

    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == (
        f"request queueId[{queue_id}] is illegal, topic T has {write} write queues, "
        f"Producer: {PRODUCER}"
    )


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("no/slash", ResponseCode.SYSTEM_ERROR),
        ("", ResponseCode.SYSTEM_ERROR),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION),
    ],
)
def test_a_topic_without_send_permission_is_rejected(
    sending: Sending, topic: str, code: ResponseCode
) -> None:
    assert refusal(sending, destination(topic)).code == code


def test_before_its_start_time_the_broker_accepts_nothing() -> None:
    sending = make_sending(startAcceptSendRequestTimeStamp=str(1 << 52))
    add(sending, "T")

    assert refusal(sending, destination("T")).remark == (
        f"broker unable to service, until {1 << 52} ms since epoch"
    )


def test_a_read_only_broker_rejects_ordered_topics() -> None:
    sending = make_sending(brokerPermission="4")
    add(sending, "ordered", order=True)
    add(sending, "T")

    assert sending.placement.place(destination("T")) == 0
    refused = refusal(sending, destination("ordered"))

    assert refused.code == ResponseCode.NO_PERMISSION
    assert refused.remark == "the broker[10.0.0.1] sending message is forbidden"


def test_a_changed_permission_takes_effect_with_the_next_read(sending: Sending) -> None:
    add(sending, "T")
    object.__setattr__(sending.config, "broker_permission", PERM_READ)

    sending.placement.reconfigure()

    assert not sending.placement.plain_queues["T"]
    with pytest.raises(RequestRefusedError):
        sending.placement.require_writable_broker()


def test_a_topic_without_the_write_bit_accepts_no_copies() -> None:
    require_writable(TopicConfig(topic_name="T", perm=PERM_WRITE))

    with pytest.raises(RequestRefusedError, match=r"the topic\[T\] sending message is forbidden"):
        require_writable(TopicConfig(topic_name="T", perm=PERM_READ))


@pytest.mark.parametrize(
    ("topic", "is_unit", "sys_flag"),
    [("T", True, 1), ("T", False, 0), ("%RETRY%g", True, 2), ("%RETRY%g", False, 0)],
)
def test_a_created_topic_belongs_to_its_producers_unit(
    sending: Sending, topic: str, is_unit: bool, sys_flag: int
) -> None:
    default_topic = "TBW102" if topic == "T" else None
    sending.placement.place(destination(topic, default_topic=default_topic, is_unit=is_unit))

    assert sending.topics.table[topic].topic_sys_flag == sys_flag


def test_messages_of_a_topic_with_several_tags_name_them(sending: Sending) -> None:
    add(sending, "T")
    assert sending.placement.sys_flag_of("T") == 0

    sending.topics.put(
        msgspec.structs.replace(sending.topics.table["T"], topic_filter_type="MULTI_TAG")
    )

    assert not sending.placement.plain_queues["T"]
    assert sending.placement.sys_flag_of("T") == MULTI_TAGS_FLAG
    assert sending.placement.sys_flag_of("unknown") == 0
