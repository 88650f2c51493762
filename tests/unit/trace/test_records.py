"""The records of a sample, found by both twins."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from broker_core.formats import record
from broker_core.message import properties
from broker_core.native import loading
from broker_core.trace.records import sample_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))
TWINS = [each for each in (sample_records, loading.load().sample_records) if each is not None]


def a_record(text: str, body: bytes = b"body") -> bytes:
    buffer = bytearray(4096)
    size = record.encode_into(
        buffer,
        0,
        topic=b"T",
        queue_id=0,
        queue_offset=0,
        commit_log_offset=0,
        body=body,
        properties=text.encode(),
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=HOST,
        store_timestamp=1,
        store_host=HOST,
        reconsume_times=0,
    )
    return bytes(buffer[:size])


@pytest.mark.parametrize("twin", TWINS)
def test_a_sample_is_found_wherever_its_key_is(
    twin: Callable[[memoryview, int], Iterable[memoryview]],
) -> None:
    keys = [f"key {number}" for number in range(200)]
    tables = [
        {"UNIQ_KEY": key, "a": "b"} if number % 2 else {"a": "b", "UNIQ_KEY": key}
        for number, key in enumerate(keys)
    ]
    # Text in the body that looks like a key doesn't count.
    body = b"\x02UNIQ_KEY\x01key 0\x02"
    records = [a_record(properties.encode(table), body) for table in tables]

    found = [bytes(each) for each in twin(memoryview(b"".join(records)), 10)]

    assert found == [
        each for each, key in zip(records, keys, strict=True) if crc32(key.encode()) % 10 == 0
    ]
    assert 5 < len(found) < 50


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("text", ["", "a\x01b\x02", "MY_UNIQ_KEY\x01key\x02"])
def test_a_record_without_a_key_is_left_to_its_decoder(
    twin: Callable[[memoryview, int], Iterable[memoryview]], text: str
) -> None:
    records = memoryview(a_record(text, b""))

    assert [bytes(each) for each in twin(records, 1_000_000)] == [bytes(records)]
