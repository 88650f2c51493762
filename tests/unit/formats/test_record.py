"""The CommitLog record, against bytes that a real broker 4.9.7 wrote."""

from __future__ import annotations

import pytest

from broker_core.errors import CorruptRecordError
from broker_core.formats import record
from broker_core.message.ids import host_bytes

OP_MESSAGE = bytes.fromhex(
    "00000087 daa320a7 74dbdf21 00000000 00000000 0000000000000000 00000000000f7117 00000000"
    "000001a1fd531205 7f000001 00002e87 000001a1fd531209 7f000001 00002e87 00000000"
    "0000000000000000 00000001 30 1b"
    "524d515f5359535f5452414e535f4f505f48414c465f544f504943 0010 57414954017472756502544147530164"
)


def encode(born_host: bytes = host_bytes("127.0.0.1", 11911), body: bytes = b"0") -> bytes:
    buffer = bytearray(512)
    size = record.encode_into(
        buffer,
        0,
        topic=b"RMQ_SYS_TRANS_OP_HALF_TOPIC",
        queue_id=0,
        queue_offset=0,
        commit_log_offset=0xF7117,
        body=body,
        properties=b"WAIT\x01true\x02TAGS\x01d",
        flag=0,
        sys_flag=0,
        born_timestamp=1795251442181,
        born_host=born_host,
        store_timestamp=1795251442185,
        store_host=host_bytes("127.0.0.1", 11911),
    )
    return bytes(buffer[:size])


def test_the_real_broker_s_op_message_is_decoded() -> None:
    message = record.decode(OP_MESSAGE)

    assert message.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    assert message.commit_log_offset == 1011991
    assert message.born_timestamp == 1795251442181
    assert message.store_timestamp == 1795251442185
    assert message.born_host == message.store_host == "127.0.0.1:11911"
    assert message.body == b"0"
    assert message.properties == {"WAIT": "true", "TAGS": "d"}
    assert message.store_size == 135


def test_the_same_input_gives_the_real_broker_s_bytes() -> None:
    assert encode() == OP_MESSAGE


def test_an_ipv6_client_sets_its_flag_and_its_twelve_bytes() -> None:
    data = encode(host_bytes("::1", 5))
    message = record.decode(data)

    assert len(data) == len(OP_MESSAGE) + 12
    assert message.sys_flag == 0x10
    assert message.born_host == "[::1]:5"


def test_an_empty_body_has_no_checksum() -> None:
    assert record.decode(encode(body=b"")).body_crc == 0


def test_records_side_by_side_are_all_decoded() -> None:
    assert [m.body for m in record.decode_all(OP_MESSAGE * 3)] == [b"0"] * 3


@pytest.mark.parametrize("size", range(len(OP_MESSAGE)))
def test_a_cut_record_is_none(size: int) -> None:
    with pytest.raises(CorruptRecordError):
        record.decode(OP_MESSAGE[:size])


@pytest.mark.parametrize("size", range(len(OP_MESSAGE)))
def test_a_record_cut_by_zeros_is_none(size: int) -> None:
    torn = memoryview(OP_MESSAGE[:size].ljust(len(OP_MESSAGE), b"\0"))
    if OP_MESSAGE[size:].count(0) == len(OP_MESSAGE) - size:
        pytest.skip("nothing is missing")

    with pytest.raises(CorruptRecordError):
        record.examine(torn, 0, len(torn), 1011991, check_crc=True)


@pytest.mark.parametrize(
    ("position", "reason"),
    [(0, "size"), (4, "magic"), (28, "says it lies at"), (88, "checksum")],
)
def test_damage_is_named(position: int, reason: str) -> None:
    damaged = bytearray(OP_MESSAGE)
    damaged[position] ^= 0x40

    with pytest.raises(CorruptRecordError, match=reason):
        record.examine(memoryview(damaged), 0, len(damaged), 1011991, check_crc=True)


def test_zeros_are_nothing_written() -> None:
    with pytest.raises(CorruptRecordError, match="nothing written"):
        record.examine(memoryview(bytes(200)), 0, 200, 0, check_crc=True)


def test_a_blank_record_says_where_the_file_ends() -> None:
    buffer = bytearray(310)
    record.encode_blank(buffer, 0, 310)

    head = record.examine(memoryview(buffer), 0, 310, 1073741514, check_crc=True)

    assert head.is_blank
    assert head.size == 310
    assert buffer[:8] == bytes.fromhex("00000136 cbd43194")


def test_the_second_magic_has_a_topic_size_of_two_bytes() -> None:
    first = bytes(encode())
    topic_at = 89
    second = bytearray(first[:topic_at] + b"\0" + first[topic_at:])
    second[0:8] = (len(second)).to_bytes(4, "big") + record.MESSAGE_MAGIC_V2_BYTES

    assert record.decode(bytes(second)).topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC"
