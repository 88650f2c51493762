from __future__ import annotations

import dataclasses

import pytest

from broker_core.formats import record
from broker_core.transaction import op

GOLDEN = bytes.fromhex(
    "00000087daa320a774dbdf2100000000000000000000000000000000"
    "00000000000f711700000000000001a1fd5312057f00000100002e87"
    "000001a1fd5312097f00000100002e8700000000000000000000000000000001"
    "301b524d515f5359535f5452414e535f4f505f48414c465f544f504943"
    "0010574149540174727565025441475301" + "64"
)
"""An op message for half message 0, from a real broker 4.9.7."""


def test_the_real_brokers_op_message_can_be_read() -> None:
    message = record.decode(GOLDEN)

    assert message.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    assert op.half_queue_offsets(message) == [0]


def test_our_broker_answers_the_same() -> None:
    message = record.decode(GOLDEN)

    assert op.body_of(0) == message.body
    assert GOLDEN.endswith(op.properties_text(None).encode())


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"17", [17]),
        (b"3,4,5,", [3, 4, 5]),
        (b"9223372036854775807", [2**63 - 1]),
        (b"9" * 20, []),
        (b"", []),
        (b"-1", []),
        (b"x", []),
    ],
)
def test_the_body_names_one_half_message_or_several(body: bytes, offsets: list[int]) -> None:
    message = dataclasses.replace(record.decode(GOLDEN), body=body)

    assert op.half_queue_offsets(message) == offsets


def test_another_tag_handles_nothing() -> None:
    message = dataclasses.replace(record.decode(GOLDEN), properties={"TAGS": "x"})

    assert op.half_queue_offsets(message) == []


def test_the_native_turn_writes_the_real_brokers_op_messages() -> None:
    message = record.decode(GOLDEN)
    commits = op.PlainCommits.of(lambda: 5)

    assert commits.op_topic == message.topic
    assert GOLDEN.endswith(commits.op_properties)
    assert commits.op_tag == b"d"
    assert commits.half_topic == b"RMQ_SYS_TRANS_HALF_TOPIC"
    assert commits.steady_ms() == 5


@pytest.mark.parametrize(("uniq_key", "is_one"), [("U", True), ("", False), ("U V", False)])
def test_an_empty_or_ambiguous_key_is_invalid(uniq_key: str, is_one: bool) -> None:
    assert op.is_key(uniq_key) is is_one
