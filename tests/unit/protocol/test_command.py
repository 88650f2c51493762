from __future__ import annotations

import msgspec
import pytest

from broker_core.errors import FrameError
from broker_core.protocol import command as commands
from broker_core.protocol.codes import BROKER_VERSION, ONEWAY_FLAG, ResponseCode
from broker_core.protocol.command import RemotingCommand, answer_template, framed


def a_request(serialize_type: int = 0) -> RemotingCommand:
    return RemotingCommand(
        10, 0, 77, 409, "JAVA", None, {"topic": "T"}, b"hi", serialize_type=serialize_type
    )


def decoded(frame: bytes) -> RemotingCommand:
    total = int.from_bytes(frame[:4], "big")
    assert total == len(frame) - 4
    header_to = 8 + int.from_bytes(frame[5:8], "big")
    return commands.decode(frame[4], frame[8:header_to], frame[header_to:])


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_an_answer_has_the_opaque_and_serializer_of_its_request(serialize_type: int) -> None:
    answer = a_request(serialize_type).answer(ResponseCode.SUCCESS, None, {"k": "v"}, b"body")

    back = decoded(answer.encode())

    assert back == answer
    assert back.is_response
    assert not back.is_oneway
    assert (back.opaque, back.serialize_type) == (77, serialize_type)
    assert (back.version, back.language) == (BROKER_VERSION, "PYTHON")
    assert (back.ext_fields, back.body) == ({"k": "v"}, b"body")


def test_a_java_frame_in_binary_is_written_byte_by_byte() -> None:
    # Printed by org.apache.rocketmq:rocketmq-remoting:4.9.8.
    command = RemotingCommand(
        40, ONEWAY_FLAG, 7, 409, "JAVA", None, {"consumerGroup": "g"}, serialize_type=1
    )

    assert command.encode() == bytes.fromhex(
        "0000002d 01000029 0028 00 0199 00000007 00000002 00000000 00000014"
        "000d 636f6e73756d657247726f7570 00000001 67"
    )


@pytest.mark.parametrize(
    "body", [[memoryview(b"ab"), b"cd"], (memoryview(b"abcd"),), memoryview(b"abcd"), b"abcd"]
)
def test_a_body_may_arrive_in_parts(body: bytes) -> None:
    frame = a_request().answer(0, body=body).encode()

    assert decoded(frame).body == b"abcd"


def test_views_are_released_with_the_frame() -> None:
    buffer = bytearray(b"abcd")
    view = memoryview(buffer)

    frame = a_request().answer(0, body=[view]).encode()
    view.release()

    buffer += b"resized only when no view is left"
    assert frame.endswith(b"abcd")


def test_the_fast_answer_equals_the_usual_one() -> None:
    fields = {"msgId": "1", "queueId": "订"}

    fast = framed(answer_template(msgspec.json.encode(fields)) % 77)

    assert decoded(fast) == a_request().answer(0, None, fields)
    assert fast == a_request().answer(0, None, fields).encode()


def test_a_third_serializer_is_a_frame_error() -> None:
    with pytest.raises(FrameError, match="serializer 2"):
        commands.decode(2, b"{}", b"")


def test_our_request_has_our_version() -> None:
    request = RemotingCommand.request(105, {"topic": "T"})

    assert (request.code, request.flag, request.version) == (105, 0, BROKER_VERSION)
