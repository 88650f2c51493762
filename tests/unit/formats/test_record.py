"""The CommitLog record, compared with bytes of a real broker 4.9.7."""

from __future__ import annotations

import pytest

from broker_core.errors import CorruptRecordError
from broker_core.formats import record
from broker_core.message import properties as message_properties
from broker_core.message.ids import host_bytes

OP_MESSAGE = bytes.fromhex(
    "00000087 daa320a7 74dbdf21 00000000 00000000 0000000000000000 00000000000f7117 00000000"
    "000001a1fd531205 7f000001 00002e87 000001a1fd531209 7f000001 00002e87 00000000"
    "0000000000000000 00000001 30 1b"
    "524d515f5359535f5452414e535f4f505f48414c465f544f504943 0010 57414954017472756502544147530164"
)

GUARDED_5_3_3 = {
    "a single message": bytes.fromhex(
        "000000f1daa320a73610a68600000000000000070000000000000000000000000000000000000000"
        "000001a1fd5312057f0000010000e146000001a1fea497097f000001000051af0000000000000000"
        "000000000000000568656c6c6f06676f6c64656e008b4d53475f524547494f4e0144656661756c74"
        "526567696f6e02554e49515f4b455901304130413041304130303030303030303030303030303030"
        "303030303030304102434c55535445520144656661756c74436c757374657202544147530154024b"
        "455953016b310254524143455f4f4e0174727565025f5f4352433332230134363538373335373131"
        "02"
    ),
    "one of a batch": bytes.fromhex(
        "000000c9daa320a711ca8a660000000000000003000000000000000300000000000002c000000000"
        "000001a1fd5312057f0000010000e146000001a1fea4973d7f000001000051af0000000000000000"
        "000000000000000374776f06676f6c64656e0065544147530162024d53475f524547494f4e014465"
        "6661756c74526567696f6e02554e49515f4b455901304202434c55535445520144656661756c7443"
        "6c75737465720254524143455f4f4e0174727565025f5f4352433332230138373636303438323731"
        "02"
    ),
}
"""Written by a broker 5.3.3 with enabledAppendPropCRC=true."""


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


def test_the_real_brokers_op_message_is_decoded() -> None:
    message = record.decode(OP_MESSAGE)

    assert message.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    assert message.commit_log_offset == 1011991
    assert message.born_timestamp == 1795251442181
    assert message.store_timestamp == 1795251442185
    assert message.born_host == message.store_host == "127.0.0.1:11911"
    assert message.body == b"0"
    assert message.properties == {"WAIT": "true", "TAGS": "d"}
    assert message.store_size == 135


def test_the_same_input_gives_the_real_brokers_bytes() -> None:
    assert encode() == OP_MESSAGE


def test_an_ipv6_client_sets_its_flag_and_its_twelve_bytes() -> None:
    data = encode(host_bytes("::1", 5))
    message = record.decode(data)

    assert len(data) == len(OP_MESSAGE) + 12
    assert message.sys_flag == 0x10
    assert message.born_host == "[::1]:5"


def test_an_empty_body_has_no_checksum() -> None:
    assert record.decode(encode(body=b"")).body_crc == 0


def test_adjacent_records_are_all_decoded() -> None:
    assert [m.body for m in record.decode_all(OP_MESSAGE * 3)] == [b"0"] * 3


def test_a_summary_agrees_with_the_whole_message() -> None:
    records = OP_MESSAGE * 3

    assert list(record.summarize_all(memoryview(records))) == [
        record.RecordSummary(
            message.properties,
            message.queue_offset,
            message.commit_log_offset,
            message.store_timestamp,
            message.store_size,
            len(message.body),
            message.reconsume_times,
        )
        for message in record.decode_all(records)
    ]
    with pytest.raises(CorruptRecordError):
        list(record.summarize_all(memoryview(records[:-1])))


@pytest.mark.parametrize("size", range(len(OP_MESSAGE)))
def test_a_truncated_record_is_invalid(size: int) -> None:
    with pytest.raises(CorruptRecordError):
        record.decode(OP_MESSAGE[:size])


@pytest.mark.parametrize("size", range(len(OP_MESSAGE)))
def test_a_record_cut_by_zeros_is_invalid(size: int) -> None:
    torn = memoryview(OP_MESSAGE[:size].ljust(len(OP_MESSAGE), b"\0"))
    if OP_MESSAGE[size:].count(0) == len(OP_MESSAGE) - size:
        pytest.skip("nothing is missing")

    with pytest.raises(CorruptRecordError):
        record.examine(torn, 0, len(torn), 1011991, check_crc=True)


@pytest.mark.parametrize(
    ("position", "reason"),
    [(0, "size"), (4, "magic"), (28, "offset field says"), (88, "checksum")],
)
def test_damage_is_named(position: int, reason: str) -> None:
    damaged = bytearray(OP_MESSAGE)
    damaged[position] ^= 0x40

    with pytest.raises(CorruptRecordError, match=reason):
        record.examine(memoryview(damaged), 0, len(damaged), 1011991, check_crc=True)


def test_zeros_mean_nothing_was_written() -> None:
    with pytest.raises(CorruptRecordError, match="nothing written"):
        record.examine(memoryview(bytes(200)), 0, 200, 0, check_crc=True)


def test_a_blank_record_marks_the_end_of_its_file() -> None:
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


@pytest.mark.parametrize("data", GUARDED_5_3_3.values(), ids=list(GUARDED_5_3_3))
def test_a_records_checksum_matches_broker_5_3_3(data: bytes) -> None:
    ours = bytearray(data[: -record.CRC_ROOM_SIZE] + record.CRC_ROOM)

    record.guard(ours, 0, len(ours))

    assert ours == data


def test_a_guarded_record_of_a_broker_5_3_3_is_written_with_the_same_bytes() -> None:
    data = GUARDED_5_3_3["a single message"]
    message = record.decode(data)
    properties = dict(message.properties)
    del properties["__CRC32#"]
    text = message_properties.encode(properties)
    buffer = bytearray(len(data))
    tail = b"\x06golden\0\x8b" + record.with_crc_room(text)
    buffer[-len(message.body + tail) :] = message.body + tail

    record.GUARDED[8, 8].pack_into(
        buffer,
        0,
        len(data),
        record.MESSAGE_MAGIC,
        record.body_crc(message.body),
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.commit_log_offset,
        message.sys_flag,
        message.born_timestamp,
        data[48:56],
        message.store_timestamp,
        data[64:72],
        message.reconsume_times,
        message.prepared_transaction_offset,
        len(message.body),
    )

    assert buffer == data


@pytest.mark.parametrize("data", GUARDED_5_3_3.values(), ids=list(GUARDED_5_3_3))
def test_every_flipped_bit_of_a_guarded_record_is_detected(data: bytes) -> None:
    offset = record.decode(data).commit_log_offset
    seen = 0
    for bit in range(len(data) * 8):
        hurt = bytearray(data)
        hurt[bit // 8] ^= 1 << bit % 8
        try:
            head = record.examine(
                memoryview(hurt), 0, len(hurt), offset, check_crc=True, is_guarded=True
            )
        except CorruptRecordError:
            seen += 1
        else:
            # A record doesn't look like the blank at the end of a file.
            assert head.is_blank
            seen += head.size != len(data)

    assert seen == len(data) * 8


def test_a_record_without_the_checksum_needs_none() -> None:
    head = record.examine(
        memoryview(OP_MESSAGE), 0, len(OP_MESSAGE), None, check_crc=True, is_guarded=True
    )

    assert head.size == len(OP_MESSAGE)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("", b""),
        ("TAGS\x01d", b"TAGS\x01d\x02"),
        ("TAGS\x01d\x02", b"TAGS\x01d\x02"),
        ("__CRC32#\x011234567890\x02TAGS\x01d", b"TAGS\x01d\x02"),
        ("TAGS\x01d\x02__CRC32#\x011234567890\x02", b"TAGS\x01d\x02"),
    ],
)
def test_the_space_for_the_checksum_comes_last_and_once(given: str, stored: bytes) -> None:
    assert record.with_crc_room(given) == stored + b"__CRC32#\x010000000000\x02"
