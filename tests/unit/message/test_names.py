"""Valid names."""

from __future__ import annotations

import pytest

from broker_core.message import names


@pytest.mark.parametrize(
    "topic", ["a", "%RETRY%group", "A-b_9|x", "t" * 127, "%RETRY%" + "g" * 248]
)
def test_a_legal_topic_has_no_error(topic: str) -> None:
    assert names.check_topic(topic) is None


@pytest.mark.parametrize(
    "topic", ["", " ", "../../x", "a/b", "a\0b", "a.b", "ü", "a\n", "t" * 128, "%DLQ%" + "g" * 251]
)
def test_an_illegal_topic_is_reported(topic: str) -> None:
    assert names.check_topic(topic)


def test_a_group_name_may_have_at_most_255_characters() -> None:
    assert names.check_group("g" * 255) is None
    assert names.check_group("g" * 256)


def test_clients_cannot_send_to_half_and_schedule_topics() -> None:
    assert names.is_not_allowed_send_topic("RMQ_SYS_TRANS_HALF_TOPIC")
    assert names.is_not_allowed_send_topic("SCHEDULE_TOPIC_XXXX")
    assert not names.is_not_allowed_send_topic("RMQ_SYS_TRACE_TOPIC")


@pytest.mark.parametrize(
    ("resource", "namespace"),
    [
        ("T", ""),
        ("", ""),
        ("ns%T", "ns"),
        ("%RETRY%ns%group", "ns"),
        ("%DLQ%ns%group", "ns"),
        ("%RETRY%group", ""),
        ("%T", ""),
        ("rmq_sys_a%b", ""),
        ("CID_RMQ_SYS_a%b", ""),
    ],
)
def test_a_namespace_precedes_the_name(resource: str, namespace: str) -> None:
    assert names.namespace_of(resource) == namespace
