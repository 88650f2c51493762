from __future__ import annotations

import logging

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.message.subscription import SubscriptionGroupConfig
from broker_core.protocol.codes import ResponseCode
from tests.unit.sending.conftest import Sending, make_sending


@pytest.mark.parametrize(
    ("times", "asked_max", "is_dead"),
    [(2, None, False), (3, None, True), (4, None, True), (3, 5, False), (5, 5, True), (0, 0, True)],
)
def test_a_message_is_dead_after_enough_tries(
    sending: Sending, times: int, asked_max: int | None, is_dead: bool
) -> None:
    group_config = SubscriptionGroupConfig(group_name="g", retry_max_times=3)

    assert sending.dead_letters.is_dead(group_config, times, asked_max) is is_dead


def test_a_dead_letter_topic_is_created_once_with_one_queue(sending: Sending) -> None:
    made = sending.dead_letters.topic_of("g")

    assert (made.topic_name, made.write_queue_nums) == ("%DLQ%g", 1)
    assert sending.dead_letters.topic_of("g") is made


def test_an_unknown_group_is_created_or_rejected() -> None:
    assert make_sending().dead_letters.require_group("g").group_name == "g"

    with pytest.raises(RequestRefusedError, match="subscription group not exist, g") as refused:
        make_sending(autoCreateSubscriptionGroup="false").dead_letters.require_group("g")
    assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_dead_letters_are_counted_by_group(
    sending: Sending, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(50):
        sending.dead_letters.note_put("g", "T", f"U{number}", 16)
    sending.dead_letters.note_put("h", None, None, 1)

    sending.clock.advance_ms(60_000)

    assert caplog.messages == [
        "dead letters stored group=g count=1 topic=T uniq_key=U0 reconsume_times=16",
        "dead letters stored group=h count=1 topic=None uniq_key=None reconsume_times=1",
        "dead letters stored group=g count=49 topic=T uniq_key=U49 reconsume_times=16",
    ]
