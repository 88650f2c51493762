"""Writes sample stores quickly: millions of records of one size, with their queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from broker_core.formats import cq_unit, paths, record
from broker_core.formats.record_columns import HEADS
from broker_core.message.ids import host_bytes
from broker_core.message.tags import tags_code

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

FILE_BYTES = 256 * 1024 * 1024
BODY_BYTES = 256
TOPICS = 20
QUEUES = 8
UNITS_A_FILE = 10_000
KEYS = 50_000
LATENCY_MS_MAX = 50
DAYS = 4
DAY_MS = 86_400_000
_HOST = host_bytes("127.0.0.1", 10911)
_STORED_AT = record.HEAD_SIZE + len(_HOST)
_TOPIC, _KEY, _UNIQ_KEY = b"bench-00", b"order-00000", b"7F0000010A2B18B4AAC2000000000000"
_TAGS = b"paid"
_PROPERTIES = b"UNIQ_KEY\x01%s\x02KEYS\x01%s\x02TAGS\x01%s\x02WAIT\x01true" % (
    *(_UNIQ_KEY, _KEY),
    _TAGS,
)


def write_log(store: Path, messages: int, last_ms: int) -> int:
    """Write a store whose log covers the DAYS before a time; return the bytes of its records."""
    places = paths.StorePaths.of(str(store), "")
    directory = places.commit_log
    directory.mkdir(parents=True)
    template = _template()
    size = len(template)
    a_file = (FILE_BYTES - record.BLANK_SIZE_MIN) // size
    all_numbers = np.arange(messages)
    all_offsets = all_numbers // a_file * FILE_BYTES + all_numbers % a_file * size
    _write_queues(places.consume_queue, all_offsets, size)
    for first in range(0, messages, a_file):
        numbers = all_numbers[first : first + a_file]
        file_from = first // a_file * FILE_BYTES
        offsets = all_offsets[numbers]
        stored = last_ms - (messages - 1 - numbers) * (DAYS * DAY_MS) // messages
        content = bytearray(FILE_BYTES)
        filled = len(numbers) * size
        content[:filled] = _records(template, numbers, offsets, stored).tobytes()
        if first + a_file < messages:
            record.encode_blank(content, filled, FILE_BYTES - filled)
        (directory / paths.offset_file_name(file_from)).write_bytes(content)
    return messages * size


def uniq_key(number: int) -> str:
    """Return the unique key of the message with a number."""
    return f"{_UNIQ_KEY[:-12].decode()}{number:012d}"


def _write_queues(directory: Path, offsets: Ints, size: int) -> None:
    """Write the units of each queue; messages go to the queues in turn."""
    for number in range(min(TOPICS * QUEUES, len(offsets))):
        of_queue = offsets[number :: TOPICS * QUEUES]
        units = np.zeros(-(-len(of_queue) // UNITS_A_FILE) * UNITS_A_FILE, dtype=cq_unit.UNITS)
        written = units[: len(of_queue)]
        written["offset"], written["size"] = of_queue, size
        written["tags_code"] = tags_code(_TAGS.decode())
        topic = f"{_TOPIC[:-2].decode()}{number % TOPICS:02d}"
        queue = directory / topic / str(number // TOPICS)
        queue.mkdir(parents=True)
        for first in range(0, len(units), UNITS_A_FILE):
            content = units[first : first + UNITS_A_FILE].tobytes()
            name = paths.offset_file_name(first * cq_unit.UNIT_SIZE)
            (queue / name).write_bytes(content)


def _template() -> Bytes:
    room = bytearray(4096)
    size = record.encode_into(
        room,
        0,
        topic=_TOPIC,
        queue_id=0,
        queue_offset=0,
        commit_log_offset=0,
        body=bytes(range(256)) * (BODY_BYTES // 256),
        properties=_PROPERTIES,
        flag=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=_HOST,
        store_timestamp=0,
        store_host=_HOST,
    )
    return np.frombuffer(bytes(room[:size]), np.uint8)


def _records(template: Bytes, numbers: Ints, offsets: Ints, stored: Ints) -> Bytes:
    rows = np.tile(template, (len(numbers), 1))
    whole = template.tobytes()
    fields: Any = HEADS.fields
    born = stored - numbers * 7919 % LATENCY_MS_MAX
    queue_offsets = numbers // (TOPICS * QUEUES)
    for name, values in {
        "queue_id": numbers // TOPICS % QUEUES,
        "queue_offset": queue_offsets,
        "commit_log_offset": offsets,
        "born_timestamp": born,
    }.items():
        kind, at = fields[name][:2]
        rows[:, at : at + kind.itemsize] = _as_bytes(values, kind)
    rows[:, _STORED_AT : _STORED_AT + 8] = _as_bytes(stored, np.dtype(">i8"))
    for text, digits, values in (
        (_TOPIC, 2, numbers % TOPICS),
        (_KEY, 5, numbers * 31 % KEYS),
        (_UNIQ_KEY, 12, numbers),
    ):
        end = whole.index(text) + len(text)
        for place in range(digits):
            rows[:, end - 1 - place] = values // 10**place % 10 + ord("0")
    return rows


def _as_bytes(values: Ints, kind: np.dtype[Any]) -> Bytes:
    return values.astype(kind).view(np.uint8).reshape(len(values), kind.itemsize)
