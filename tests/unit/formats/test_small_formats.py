"""Unit, index entry, checkpoint, names, compared with values from a real broker's files."""

from __future__ import annotations

import pytest

from broker_core.errors import CorruptRecordError
from broker_core.formats import batch, checkpoint, index_entry, paths
from broker_core.formats.cq_unit import UNIT
from broker_core.message.tags import tags_code, unsigned_hash


def test_the_op_messages_unit_equals_the_real_brokers() -> None:
    assert UNIT.pack(0xF7117, 135, tags_code("d")) == bytes.fromhex(
        "00000000000f7117 00000087 0000000000000064"
    )


def test_the_half_messages_index_entry_equals_the_real_brokers() -> None:
    key = "RMQ_SYS_TRANS_HALF_TOPIC#FD00000000000000000000000000000227D05FFD2B2768EB29C20000"
    hash_ = index_entry.key_hash(unsigned_hash(key))

    assert hash_ % 5_000_000 == 2986216
    assert index_entry.ENTRY.pack(hash_, 0xF6BDF, 473, 0) == bytes.fromhex(
        "7120f8a8 00000000000f6bdf 000001d9 00000000"
    )


def test_the_smallest_hash_becomes_0() -> None:
    assert index_entry.key_hash(unsigned_hash("polygenelubricants")) == 0


@pytest.mark.parametrize(("begin", "stored", "seconds"), [(0, 9999, 0), (5000, 6999, 1), (9, 0, 0)])
def test_seconds_are_truncated_and_never_negative(begin: int, stored: int, seconds: int) -> None:
    assert index_entry.seconds_since(begin, stored) == seconds


def test_the_default_index_file_has_420000040_bytes() -> None:
    assert index_entry.file_size(5_000_000, 20_000_000) == 420_000_040


def test_a_running_brokers_checkpoint_is_decoded() -> None:
    page = bytes.fromhex("000001a1fd57aa35 000001a1fd57aa35 0000000000000000").ljust(4096, b"\0")

    found = checkpoint.decode(page)

    assert found == (0x1A1FD57AA35, 0x1A1FD57AA35, 0, 0, 0)
    assert found.min_timestamp == 0x1A1FD57AA35 - 3000
    assert checkpoint.encode(found) == page


@pytest.mark.parametrize("page", [b"", b"\0" * 10])
def test_a_missing_checkpoint_has_no_offsets(page: bytes) -> None:
    assert checkpoint.decode(page).min_timestamp == 0


def test_a_files_name_is_its_offset_in_twenty_digits() -> None:
    assert paths.offset_file_name(1073741824) == "00000000001073741824"
    assert paths.parse_offset_file_name("00000000001073741824") == 1073741824
    assert paths.parse_offset_file_name("1073741824") is None
    assert paths.parse_offset_file_name("0000000000107374182x") is None


def test_an_index_files_name_is_a_time_to_the_millisecond() -> None:
    name = paths.index_file_name(1_795_252_759_675)

    assert len(name) == 17
    assert name.endswith("675")
    assert paths.is_index_file_name(name)


# Message(topic T, tag TagA, body "hi") built by the Java client.
JAVA_ITEM = bytes.fromhex(
    "0000002b 00000000 00000000 00000000 00000002 6869 0013"
    "57414954 01 74727565 02 54414753 01 54616741"
)


def test_a_java_clients_batch_is_decoded() -> None:
    items = list(batch.decode(JAVA_ITEM * 2))

    assert items == [(0, b"hi", b"WAIT\x01true\x02TAGS\x01TagA")] * 2


@pytest.mark.parametrize("size", range(1, len(JAVA_ITEM)))
def test_a_truncated_batch_is_rejected(size: int) -> None:
    with pytest.raises(CorruptRecordError):
        list(batch.decode(JAVA_ITEM[:size]))


@pytest.mark.parametrize(
    ("item", "tail", "joined"),
    [
        (b"", b"c\x01d", b"c\x01d"),
        (b"a\x01b", b"", b"a\x01b"),
        (b"a\x01b", b"c\x01d", b"a\x01b\x02c\x01d"),
        (b"a\x01b\x02", b"c\x01d", b"a\x01b\x02c\x01d"),
    ],
)
def test_item_and_batch_properties_are_joined_once(item: bytes, tail: bytes, joined: bytes) -> None:
    assert batch.joined_properties(item, tail) == joined
