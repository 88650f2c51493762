"""Reading records in columns equals `record.examine` for each record."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from broker_core.formats import record
from broker_core.formats.record_columns import RecordBuffer, RecordColumns, walk
from broker_core.message.ids import host_bytes

V4_HOST, V6_HOST = host_bytes("127.0.0.1", 10911), host_bytes("2001:db8::7", 10911)
BODY_SIZE_AT = record.FIXED_V4_SIZE - 4
# Written by RocketMQ 4.9.7: an op message of the transaction service.
OP_MESSAGE = bytes.fromhex(
    "00000087 daa320a7 74dbdf21 00000000 00000000 0000000000000000 00000000000f7117 00000000"
    "000001a1fd531205 7f000001 00002e87 000001a1fd531209 7f000001 00002e87 00000000"
    "0000000000000000 00000001 30 1b"
    "524d515f5359535f5452414e535f4f505f48414c465f544f504943 0010 57414954017472756502544147530164"
)


def encode(**fields: object) -> bytes:
    buffer = bytearray(4096)
    values: dict[str, object] = {
        "topic": b"orders",
        "queue_id": 3,
        "queue_offset": 2**33,
        "commit_log_offset": 2**40,
        "body": b"a body",
        "properties": b"TAGS\x01a",
        "flag": -1,
        "sys_flag": 4,
        "born_timestamp": 1_795_251_442_181,
        "born_host": V4_HOST,
        "store_timestamp": 1_795_251_442_185,
        "store_host": V4_HOST,
        "reconsume_times": 16,
        "prepared_transaction_offset": 2**41,
    }
    size = record.encode_into(buffer, 0, **{**values, **fields})  # type: ignore[arg-type]
    return bytes(buffer[:size])


def wide(topic: bytes) -> bytes:
    """Return a record of the second magic, whose topic size has two bytes."""
    narrow = encode(topic=b"", properties=b"")
    body_to = record.FIXED_V4_SIZE + len(b"a body")
    data = narrow[:body_to] + struct.pack(">h", len(topic)) + topic + struct.pack(">h", 0)
    return struct.pack(">ii", len(data), record.MESSAGE_MAGIC_V2) + data[8:]


def columns(data: bytes) -> RecordColumns:
    buffer = RecordBuffer(bytearray(data))
    return RecordColumns(buffer, walk(buffer, 0, len(data)).positions)


def test_a_real_brokers_record_can_be_read() -> None:
    rows = columns(OP_MESSAGE)

    assert len(rows) == 1
    assert rows.is_whole.all()
    assert {name: rows[name].tolist() for name in ("size", "commit_log_offset", "body_crc")} == {
        "size": [135],
        "commit_log_offset": [1_011_991],
        "body_crc": [0x74DBDF21],
    }
    assert OP_MESSAGE[rows["topic_from"][0] : rows["topic_to"][0]] == b"RMQ_SYS_TRANS_OP_HALF_TOPIC"
    assert OP_MESSAGE[rows["properties_from"][0] : rows["end"][0]] == b"WAIT\x01true\x02TAGS\x01d"


@pytest.mark.parametrize("born_host", [V4_HOST, V6_HOST])
@pytest.mark.parametrize("store_host", [V4_HOST, V6_HOST])
def test_hosts_of_either_size_shift_the_following_fields(
    born_host: bytes, store_host: bytes
) -> None:
    data = encode(born_host=born_host, store_host=store_host)
    rows = columns(data)

    assert rows["store_timestamp"].tolist() == [1_795_251_442_185]
    assert rows["reconsume_times"].tolist() == [16]
    assert rows["prepared_transaction_offset"].tolist() == [2**41]
    assert data[rows["born_host_from"][0] : rows["store_timestamp_at"][0]] == born_host
    assert data[rows["store_host_from"][0] : rows["store_host_to"][0]] == store_host
    assert data[rows["body_from"][0] : rows["body_to"][0]] == b"a body"


def test_both_magic_codes_exist_side_by_side() -> None:
    long_topic = b"%RETRY%" + b"g" * 150
    data = encode() + wide(long_topic) + encode(topic=b"t")
    rows = columns(data)

    assert rows.is_whole.all()
    topics = zip(rows["topic_from"].tolist(), rows["topic_to"].tolist(), strict=True)
    assert [data[start:end] for start, end in topics] == [b"orders", long_topic, b"t"]


@pytest.mark.parametrize("size", [0, record.OVERHEAD_V4 - 1, -5, 2**31 - 1])
def test_a_walk_ends_at_an_impossible_size(size: int) -> None:
    data = encode() + struct.pack(">ii", size, record.MESSAGE_MAGIC) + bytes(200)
    found = walk(RecordBuffer(bytearray(data)), 0, len(data))

    assert found.positions.tolist() == [0]
    assert found[1:] == (len(encode()), size, record.MESSAGE_MAGIC)


@pytest.mark.parametrize("magic", [record.BLANK_MAGIC, 0, 1])
def test_a_walk_ends_at_another_magic_code_wherever_its_size_leads(magic: int) -> None:
    one = encode()
    odd = struct.pack(">ii", 2 * len(one), magic) + one[8:]
    data = one + odd + one + one
    found = walk(RecordBuffer(bytearray(data)), 0, len(data))

    assert found.positions.tolist() == [0]
    assert found[1:] == (len(one), 2 * len(one), magic)


@pytest.mark.parametrize("left", [0, 7, 8, 90])
def test_a_walk_returns_the_words_after_the_last_whole_record(left: int) -> None:
    one = encode()
    data = one + one[:left]
    found = walk(RecordBuffer(bytearray(data)), 0, len(data))

    words = (len(one), record.MESSAGE_MAGIC) if left >= 8 else (0, 0)
    assert found.positions.tolist() == [0]
    assert found[1:] == (len(one), *words)


def test_a_walk_respects_its_limits() -> None:
    one = encode()
    buffer = RecordBuffer(bytearray(one * 4))

    found = walk(buffer, len(one), 3 * len(one) + 40)

    assert found.positions.tolist() == [len(one), 2 * len(one)]
    assert found.stopped_at == 3 * len(one)


@pytest.mark.parametrize("nested", [0, 1, 40, 1000])
def test_a_long_walk_skips_records_inside_bodies(nested: int) -> None:
    inner = encode()
    sizes = [len(encode(body=inner if number < nested else b"a body")) for number in range(1000)]
    data = b"".join(encode(body=inner if number < nested else b"a body") for number in range(1000))
    torn = data + inner[:-1]

    found = walk(RecordBuffer(bytearray(torn)), 0, len(torn))

    assert found.positions.tolist() == [0, *np.cumsum(sizes)[:-1].tolist()]
    assert found.stopped_at == len(data)


def test_an_empty_buffer_has_no_rows() -> None:
    rows = columns(b"")

    assert len(rows) == 0
    assert rows["store_timestamp"].tolist() == []


@pytest.mark.parametrize(
    ("at", "content"),
    [
        (BODY_SIZE_AT, struct.pack(">i", 7)),
        (BODY_SIZE_AT, struct.pack(">i", -1)),
        (BODY_SIZE_AT, struct.pack(">i", 2**31 - 1)),
        (record.FIXED_V4_SIZE + 6, b"\xff"),
        (record.SYS_FLAG_POSITION, struct.pack(">i", 0x30)),
        (record.FIXED_V4_SIZE + 13, struct.pack(">h", -5)),
    ],
    ids=["body", "negative body", "huge body", "topic", "hosts", "properties"],
)
def test_only_a_record_with_inconsistent_parts_is_incomplete(at: int, content: bytes) -> None:
    one = encode()
    odd = one[:at] + content + one[at + len(content) :]

    assert columns(one + odd + one).is_whole.tolist() == [True, False, True]


def test_rows_are_selected_by_mask_and_by_count() -> None:
    rows = columns(b"".join(encode(queue_id=number) for number in range(6)))
    rows["queue_offset"]  # a column that exists before the rows are deleted

    rows.keep(np.array([True, False, True, True, True, True]))
    rows.cut(4)
    rows.cut_at_first(rows["queue_id"] == 4)

    assert rows["queue_id"].tolist() == [0, 2, 3]
    assert len(rows) == len(rows.is_whole) == len(rows["queue_offset"]) == len(rows["body_to"]) == 3
