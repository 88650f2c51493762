from __future__ import annotations

import pytest

from broker_core.protocol.codes import V4_9_3, V4_9_4
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.signature import Credentials, signature_of, signed_content

SECRET = "12345678"


def a_request(body: bytes = b"hello", version: int = V4_9_4, **fields: str) -> RemotingCommand:
    request = RemotingCommand.request(10, fields, body)
    request.version = version
    return request


def test_the_signature_equals_the_java_clients() -> None:
    request = a_request(topic="TopicTest", queueId="1", consumerGroup="g")

    Credentials("RocketMQ", SECRET).sign(request)

    assert signed_content(request) == b"RocketMQg1TopicTesthello"
    assert request.ext_fields == {
        "topic": "TopicTest",
        "queueId": "1",
        "consumerGroup": "g",
        "AccessKey": "RocketMQ",
        "Signature": "gDRLxP35PD6fyWkcmOfCCW3uFB0=",
    }


def test_a_security_token_is_also_signed() -> None:
    request = a_request(topic="T")

    Credentials("RocketMQ", SECRET, "token").sign(request)

    assert request.ext_fields["SecurityToken"] == "token"
    assert signed_content(request) == b"RocketMQtokenThello"


def test_signing_again_gives_the_same_signature() -> None:
    request = a_request(topic="T")
    credentials = Credentials("RocketMQ", SECRET)
    credentials.sign(request)
    first = dict(request.ext_fields)

    credentials.sign(request)

    assert request.ext_fields == first


def test_signing_leaves_the_callers_table_alone() -> None:
    fields = {"topic": "T"}
    request = RemotingCommand.request(10, fields)

    Credentials("RocketMQ", SECRET).sign(request)

    assert fields == {"topic": "T"}


@pytest.mark.parametrize(("version", "content"), [(V4_9_3, b"key"), (V4_9_4, b"truekey")])
def test_old_clients_add_the_unique_key_mark_after_signing(version: int, content: bytes) -> None:
    request = a_request(b"", version, key="key", _UNIQUE_KEY_QUERY="true")

    assert signed_content(request) == content


def test_text_and_body_of_any_kind_can_be_signed() -> None:
    request = a_request(b"\xff\x00", topic="订单\ud800")

    assert signature_of(signed_content(request), "密钥1234567")


def test_a_secret_is_not_in_the_text_of_credentials() -> None:
    assert SECRET not in repr(Credentials("RocketMQ", SECRET, SECRET))
