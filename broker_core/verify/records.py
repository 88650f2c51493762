"""Parse log records without sharing code with the store."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, NamedTuple

from broker_core.formats.record import CRC_MASK

if TYPE_CHECKING:
    import mmap

GUARD_SIZE = 20
_GUARD = re.compile(rb"__CRC32#\x01([0-9]{10})\x02")


class Record(NamedTuple):
    """The record fields that the checks need."""

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    properties: dict[str, str]


def parse(record: bytes, offset: int, topic_size_bytes: int) -> Record:
    """Parse a record field by field.

    Raises:
        ValueError: the record contradicts itself; the text says how.
        IndexError: a field extends past the record's end.
    """
    sys_flag = integer(record, 36, 4)
    store_timestamp_at = 48 + (20 if sys_flag & 0x10 else 8)
    reconsume_at = store_timestamp_at + 8 + (20 if sys_flag & 0x20 else 8)
    body_at = reconsume_at + 16
    body_size = integer(record, body_at - 4, 4)
    topic_at = body_at + body_size + topic_size_bytes
    if body_size < 0 or topic_at > len(record):
        raise ValueError(f"body size {body_size} does not fit")
    topic_size = integer(record, body_at + body_size, topic_size_bytes)
    properties_at = topic_at + topic_size + 2
    if topic_size < 1 or properties_at > len(record):
        raise ValueError(f"topic size {topic_size} does not fit")
    if properties_at + integer(record, properties_at - 2, 2) != len(record):
        raise ValueError("the sizes of its parts do not add up to its size")
    if integer(record, 28, 8) != offset:
        raise ValueError(f"its offset field says {integer(record, 28, 8)}")
    body = record[body_at : body_at + body_size]
    if body and zlib.crc32(body) & CRC_MASK != integer(record, 8, 4):
        raise ValueError("the checksum of its body is wrong")
    guard = _GUARD.fullmatch(record[-GUARD_SIZE:])
    if guard and int(guard[1][::-1]) != zlib.crc32(record[:-GUARD_SIZE]) & CRC_MASK:
        raise ValueError("the checksum of the record is wrong")
    pairs = (pair.partition("\x01") for pair in record[properties_at:].decode().split("\x02"))
    return Record(
        offset,
        len(record),
        record[topic_at : topic_at + topic_size].decode(),
        integer(record, 12, 4),
        integer(record, 20, 8),
        sys_flag,
        integer(record, store_timestamp_at, 8),
        {key: value for key, _, value in pairs if key and value},
    )


def integer(data: mmap.mmap | bytes, position: int, size: int) -> int:
    part = data[position : position + size]
    if len(part) < size:
        raise IndexError(f"the record ends within the field at {position}")
    return int.from_bytes(part, "big", signed=True)


def java_hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be")
    for at in range(0, len(data), 2):
        value = (value * 31 + (data[at] << 8) + data[at + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def index_hash(text: str) -> int:
    value = abs(java_hash(text))
    return 0 if value >> 31 else value
