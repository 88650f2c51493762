"""An independent reader of a store: it shares no code with the broker.

record  size 4, magic 4, crc 4, queue_id 4, flag 4, queue_offset 8, own offset 8, sys_flag 4,
        born 8, born host, stored 8, store host, reconsume times 4, prepared 8,
        body 4 + n, topic 1 + n, properties 2 + n
unit    offset in the log 8, size 4, tags code 8
blank   rest of the file 4, magic 4
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAD = struct.Struct(">IIIIIQQI")
UNIT = struct.Struct(">QIq")
RECORD_MAGIC, BLANK_MAGIC = 0xDAA320A7, 0xCBD43194
BORN_IS_V6, STORED_IS_V6 = 1 << 4, 1 << 5
CRC_BITS = 0x7FFFFFFF
DELAYED_TOPICS = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
"""Tags codes in these topics are delivery times."""
SHOWN_MAX = 10


class Whole(NamedTuple):
    """A record: all its bytes, and the message's body."""

    data: bytes
    body: bytes


class Record(NamedTuple):
    """The fields of a record that a unit must match."""

    topic: str
    queue_id: int
    queue_offset: int
    size: int
    tags_code: int


def problems(store: Path) -> list[str]:
    """Return format errors of the log, or mismatches with its queues; a few at most."""
    wrong: list[str] = []
    records = dict(_records(store / "commitlog", wrong))
    named: set[int] = set()
    for queue in sorted((store / "consumequeue").glob("*/*")):
        for queue_offset, (place, size, code) in _units(queue):
            one = records.get(place)
            unit = (queue.parent.name, int(queue.name), queue_offset, size)
            if one is None or one[:4] != unit:
                wrong.append(f"unit {unit} points at {one} at {place}")
            elif one.topic not in DELAYED_TOPICS and one.tags_code != code:
                wrong.append(
                    f"unit {unit} has tags code {code}, but its record has {one.tags_code}"
                )
            elif place in named:
                wrong.append(f"{one} has two units")
            named.add(place)
    wrong += [
        f"{one} at {place} has no unit" for place, one in records.items() if place not in named
    ]
    return wrong[:SHOWN_MAX]


def whole_records(store: Path) -> dict[int, Whole]:
    """Return each record by its offset, up to the first incomplete one."""
    found: dict[int, Whole] = {}
    for place, data in _pieces(store / "commitlog", []):
        if isinstance(_record(data, place), str):
            break
        found[place] = Whole(data, _body(data))
    return found


def _records(directory: Path, wrong: list[str]) -> Iterator[tuple[int, Record]]:
    """Yield the records' fields; the first invalid one is the last."""
    stored_before = 0
    for place, data in _pieces(directory, wrong):
        found = _record(data, place)
        if isinstance(found, str):
            wrong.append(f"record at {place}: {found}")
            return
        seen, stored = found
        if stored < stored_before:
            wrong.append(f"record at {place} has an earlier store time than its predecessor")
        stored_before = stored
        yield place, seen


def _pieces(directory: Path, wrong: list[str]) -> Iterator[tuple[int, bytes]]:
    """Yield the records from the start of the first file to the log's end, marked by zeros."""
    files = sorted(directory.iterdir())
    for file in files:
        data, at = file.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">II", data, at)
            if magic == BLANK_MAGIC:
                if size != len(data) - at:
                    wrong.append(
                        f"blank record of {size} bytes at {file.name}+{at} doesn't fill its file"
                    )
                break
            if size == 0:
                if file is not files[-1] or data.count(0, at) != len(data) - at:
                    wrong.append(f"data after the end of the log at {file.name}+{at}")
                break
            yield int(file.name) + at, data[at : at + size]
            at += size


def _record(data: bytes, place: int) -> tuple[Record, int] | str:
    """Return a record and its store time, or the error in it."""
    try:
        size, magic, crc, queue_id, _, queue_offset, own, sys_flag = HEAD.unpack_from(data)
        (stored,) = struct.unpack_from(">Q", data, _stored_at(sys_flag))
        body, at = _part(data, _body_at(sys_flag), 4)
        topic, at = _part(data, at, 1)
        properties, at = _part(data, at, 2)
    except struct.error:
        return "shorter than its parts"
    if magic != RECORD_MAGIC:
        return f"wrong magic {magic:#x}"
    if own != place:
        return f"wrong offset {own}"
    if at != size:
        return f"size {size}, but its parts have {at} bytes"
    if zlib.crc32(body) & CRC_BITS != crc:
        return "wrong CRC of the body"
    pairs = (pair.partition("\x01") for pair in properties.decode().split("\x02"))
    tags = {name: value for name, _, value in pairs}.get("TAGS", "")
    return Record(topic.decode(), queue_id, queue_offset, size, _java_hash(tags)), stored


def _stored_at(sys_flag: int) -> int:
    return HEAD.size + 8 + (20 if sys_flag & BORN_IS_V6 else 8)


def _body_at(sys_flag: int) -> int:
    return _stored_at(sys_flag) + 8 + (20 if sys_flag & STORED_IS_V6 else 8) + 4 + 8


def _body(data: bytes) -> bytes:
    """Return the body of a valid record."""
    *_, sys_flag = HEAD.unpack_from(data)
    return _part(data, _body_at(sys_flag), 4)[0]


def _part(data: bytes, at: int, length_size: int) -> tuple[bytes, int]:
    begin = at + length_size
    if begin > len(data):
        raise struct.error
    end = begin + int.from_bytes(data[at:begin], "big")
    return data[begin:end], end


def _java_hash(text: str) -> int:
    value = 0
    for unit in struct.unpack(f">{len(text.encode('utf-16-be')) // 2}H", text.encode("utf-16-be")):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _units(queue: Path) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Yield each unit with its queue offset, up to the first empty one."""
    for file in sorted(queue.iterdir()):
        data = file.read_bytes()
        for at in range(0, len(data) - UNIT.size + 1, UNIT.size):
            unit = UNIT.unpack_from(data, at)
            if unit[1] == 0:
                break
            yield (int(file.name) + at) // UNIT.size, unit
