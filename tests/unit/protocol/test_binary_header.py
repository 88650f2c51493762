from __future__ import annotations

import pytest

from broker_core.errors import FrameError
from broker_core.protocol import binary_header
from broker_core.protocol.codes import BROKER_VERSION, RequestCode
from broker_core.protocol.json_header import EXT_FIELDS_MAX, Header

# Printed by org.apache.rocketmq:rocketmq-remoting:4.9.8: code 40, oneway, opaque 7.
NOTIFY_CONSUMER_IDS_CHANGED = bytes.fromhex(
    "0028 00 0199 00000007 00000002 00000000 00000014000d 636f6e73756d657247726f7570 00000001 67"
)


def test_the_header_of_a_java_client_is_read() -> None:
    header = binary_header.decode(NOTIFY_CONSUMER_IDS_CHANGED)

    assert header == Header(40, 2, 7, 409, "JAVA", None, {"consumerGroup": "g"})


def test_the_header_of_a_java_client_is_written() -> None:
    header = Header(40, 2, 7, 409, "JAVA", None, {"consumerGroup": "g"})

    assert binary_header.encode(header) == NOTIFY_CONSUMER_IDS_CHANGED


def test_pop_codes_are_restored_from_their_low_half() -> None:
    header = Header(RequestCode.POP_MESSAGE, 0, 0, 479, "JAVA")

    data = binary_header.encode(header)

    assert data[:2] == bytes.fromhex("0d72")
    assert binary_header.decode(data).code == RequestCode.POP_MESSAGE
    assert {
        **{3442 + n: 200050 + n for n in range(7)},
        3543: 200151,
    } == binary_header.WHOLE_CODES


def test_a_response_code_is_not_mistaken_for_a_pop_code() -> None:
    assert binary_header.decode(binary_header.encode(Header(3442, 1))).code == 3442


def test_the_last_value_of_a_repeated_key_counts() -> None:
    entry = bytes.fromhex("0001 61 00000001")
    entries = entry + b"1" + entry + b"2"
    data = NOTIFY_CONSUMER_IDS_CHANGED[:17] + len(entries).to_bytes(4, "big") + entries

    assert binary_header.decode(data).ext_fields == {"a": "2"}


def test_an_empty_value_is_no_value() -> None:
    entries = bytes.fromhex("0001 61 00000000 0000 00000001 62")
    data = NOTIFY_CONSUMER_IDS_CHANGED[:17] + len(entries).to_bytes(4, "big") + entries

    assert binary_header.decode(data).ext_fields == {}


@pytest.mark.parametrize("cut", range(len(NOTIFY_CONSUMER_IDS_CHANGED)))
def test_a_header_truncated_anywhere_is_a_frame_error(cut: int) -> None:
    with pytest.raises(FrameError):
        binary_header.decode(NOTIFY_CONSUMER_IDS_CHANGED[:cut])


@pytest.mark.parametrize(("at", "value"), [(13, -1), (13, 2**31 - 1), (17, -1), (17, 21)])
def test_a_length_beyond_the_frame_is_a_frame_error(at: int, value: int) -> None:
    data = bytearray(NOTIFY_CONSUMER_IDS_CHANGED)
    data[at : at + 4] = value.to_bytes(4, "big", signed=True)

    with pytest.raises(FrameError):
        binary_header.decode(bytes(data))


def test_one_ext_field_too_many_is_rejected() -> None:
    def header(count: int) -> bytes:
        return binary_header.encode(Header(ext_fields={f"k{n}": "v" for n in range(count)}))

    assert len(binary_header.decode(header(EXT_FIELDS_MAX)).ext_fields) == EXT_FIELDS_MAX
    with pytest.raises(FrameError):
        binary_header.decode(header(EXT_FIELDS_MAX + 1))


@pytest.mark.parametrize("remark", [None, "NO_MATCHED_MESSAGE", "größe"])
@pytest.mark.parametrize("constant", [{}, {"MSG_REGION": "größe", "TRACE_ON": ""}])
def test_an_answers_parts_are_its_header_without_numbers_and_values(
    remark: str | None, constant: dict[str, str]
) -> None:
    values = {"msgId": "7F0000", "queueId": "3", "queueOffset": "-1"}
    header = Header(20, 1, -7, BROKER_VERSION, "PYTHON", remark, constant | values)

    parts = binary_header.answer_parts(20, remark, constant, tuple(values))

    entries = b"".join(
        part + len(value).to_bytes(4, "big") + value.encode()
        for part, value in zip(parts[2:], values.values(), strict=True)
    )
    opaque = (-7).to_bytes(4, "big", signed=True)
    joined = parts[0] + opaque + parts[1] + len(entries).to_bytes(4, "big") + entries
    assert joined == binary_header.encode(header)
