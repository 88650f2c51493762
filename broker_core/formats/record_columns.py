"""Records of a buffer as numpy columns.

Recovery and reports read records by the thousand. This module finds them by their sizes, one after
another, and reads each field of all of them at once; `record.examine` does the same for one record.

    found = walk(buffer, 0, len(buffer.bytes))
    rows = RecordColumns(buffer, found.positions)
    rows.keep(rows.is_whole)
    rows["queue_offset"], rows["body_from"], rows["body_to"]

Pure: no I/O. Any thread.

Invariant: a row is whole exactly if `record.examine` without checksums accepts a message at the log
offset that the record states.
Source: store/CommitLog.java (4.9.8), as formats/record.py.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from broker_core.formats.record import (
    BLANK,
    FIXED_V4_SIZE,
    HEAD_SIZE,
    MAGIC_POSITION,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    OVERHEAD_V4,
    POSITIONS,
    PROPERTIES_SIZE,
    TOPIC_SIZE_FIELD,
)
from broker_core.message.ids import HOST_V4_SIZE, HOST_V6_SIZE
from broker_core.message.sys_flag import BORNHOST_V6_FLAG, STOREHOST_V6_FLAG

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Truths = NDArray[np.bool_]

HEADS = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("commit_log_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
"""The fields before the first host, which are the only fields at fixed positions."""

_SIZE = struct.Struct(">i")
_TIMESTAMP_SIZE = 8
_HOSTS_V6_MORE = HOST_V6_SIZE - HOST_V4_SIZE
_AFTER_STORE_HOST = FIXED_V4_SIZE - HEAD_SIZE - 2 * HOST_V4_SIZE - _TIMESTAMP_SIZE
# Offsets before the body.
_RECONSUME_TIMES, _PREPARED_OFFSET, _BODY_SIZE = (
    FIXED_V4_SIZE - POSITIONS[name]
    for name in ("reconsume_times", "prepared_transaction_offset", "body_size")
)

# Step through this many records one by one; if they are small, search for the rest.
STEPPED_FIRST = 64
_SMALL_BYTES = 1024
_EDGES_MAX = 256
_MAGIC_BEGINS = MESSAGE_MAGIC >> 24 & 0xFF

assert MESSAGE_MAGIC_V2 >> 24 & 0xFF == _MAGIC_BEGINS
assert HEADS.itemsize == HEAD_SIZE
assert _AFTER_STORE_HOST == _RECONSUME_TIMES


def at_any_place(data: Any, kind: str | np.dtype[Any]) -> NDArray[Any]:
    """Return a view whose item n is the data at byte n of a buffer, read as a kind."""
    dtype = np.dtype(kind)
    count = max(0, len(data) - dtype.itemsize + 1)
    return np.ndarray((count,), dtype, data, strides=(1,))


class RecordBuffer:
    """Bytes that contain records, readable as big-endian numbers at any byte.

    All attributes are views, so later writes to the bytes show in them.
    """

    __slots__ = ("bytes", "data", "heads", "ints", "longs", "shorts")

    def __init__(self, data: bytearray | memoryview) -> None:
        self.data = memoryview(data)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self.data, np.uint8)
        self.heads = at_any_place(data, HEADS)
        self.shorts = at_any_place(data, ">i2")
        self.ints = at_any_place(data, ">i4")
        self.longs = at_any_place(data, ">i8")


class Walk(NamedTuple):
    """Consecutive records from a position on, and where the walk stopped.

    `size` and `magic` are the words at `stopped_at`, both 0 if fewer than 8 bytes are left there.
    """

    positions: Ints
    stopped_at: int
    size: int
    magic: int


def walk(buffer: RecordBuffer, position: int, limit: int) -> Walk:
    """Find the complete records in `[position, limit)`, each by the size of the previous one.

    Every size is at least the size of an empty record, and every magic code is a message's; nothing
    else is checked.
    """
    positions, at = _walk_records(buffer, position, limit, STEPPED_FIRST)
    if len(positions) == STEPPED_FIRST:
        is_small = at - position < STEPPED_FIRST * _SMALL_BYTES
        more = _search_records(buffer, at, limit) if is_small else None
        rest, at = more or _walk_records(buffer, at, limit)
        positions = np.concatenate([positions, rest])
    size, magic = BLANK.unpack_from(buffer.data, at) if limit - at >= BLANK.size else (0, 0)
    return Walk(positions, at, size, magic)


def _walk_records(
    buffer: RecordBuffer, position: int, limit: int, most: int | None = None
) -> tuple[Ints, int]:
    """Return the starts of at most `most` records, and the position of the next record."""
    data = buffer.data
    unpack = _SIZE.unpack_from
    found: list[int] = []
    append = found.append
    last = limit - OVERHEAD_V4
    at = position
    while at <= last and len(found) != most:
        size = unpack(data, at)[0]
        if size < OVERHEAD_V4:
            break
        append(at)
        at += size
    if at > limit:
        at = found.pop()
    positions = np.array(found, np.int64)
    # After the first invalid record the sizes lead anywhere, so check the magic codes.
    magics = buffer.ints[positions + MAGIC_POSITION]
    is_message = (magics == MESSAGE_MAGIC) | (magics == MESSAGE_MAGIC_V2)
    if not is_message.all():
        count = int(is_message.argmin())
        at = found[count]
        positions = positions[:count]
    return positions, at


def _search_records(buffer: RecordBuffer, position: int, limit: int) -> tuple[Ints, int] | None:
    """Return the same as `_walk_records`, or None if bodies contain many magic codes.

    This finds all magic codes at once and compares the sizes with the distances between them,
    which for small records is less work than stepping.
    """
    last = limit - OVERHEAD_V4
    places = buffer.bytes[position + MAGIC_POSITION : max(position, last + 1) + MAGIC_POSITION]
    starts = np.flatnonzero(places == _MAGIC_BEGINS) + position
    magics = buffer.ints[starts + MAGIC_POSITION]
    starts = starts[(magics == MESSAGE_MAGIC) | (magics == MESSAGE_MAGIC_V2)]
    sizes = buffer.ints[starts].astype(np.int64)
    ends = starts + sizes
    fits = (sizes >= OVERHEAD_V4) & (ends <= limit)
    # Positions where the next magic code doesn't belong to the next record.
    edges = np.flatnonzero(np.append(ends[:-1] != starts[1:], True) | ~fits)
    if len(edges) > _EDGES_MAX:
        return None
    parts: list[Ints] = []
    at = position
    while True:
        first = int(np.searchsorted(starts, at))
        if first >= len(starts) or starts[first] != at:
            break
        edge = int(edges[np.searchsorted(edges, first)])
        behind = edge + bool(fits[edge])
        parts.append(starts[first:behind])
        if not fits[edge]:
            at = int(starts[edge])
            break
        at = int(ends[edge])
    return np.concatenate(parts) if parts else np.zeros(0, np.int64), at


class RecordColumns:
    """Records of one buffer as columns of 64-bit numbers, read on first access.

    Columns: the fields of HEADS; store_timestamp, reconsume_times, prepared_transaction_offset;
    and the positions of parts in the buffer: position, end, born_host_from, store_timestamp_at (the
    end of the born host), store_host_from, store_host_to, body_from, body_to, topic_from, topic_to,
    properties_from (properties end with the record).

    Attributes:
        is_whole: whether the parts of each record add up to its size. Only then are the positions
            from body_to on, and the fields read there, valid.
    """

    def __init__(self, buffer: RecordBuffer, positions: Ints) -> None:
        """Create columns from positions as `walk` finds them: complete records, ascending."""
        self._buffer = buffer
        self._heads = buffer.heads[positions]
        self._columns: dict[str, Ints] = {"position": positions}
        self.is_whole: Truths = self._find_parts()

    def __len__(self) -> int:
        return len(self._columns["position"])

    def __getitem__(self, name: str) -> Ints:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._read(name)
        return column

    def keep(self, kept: Truths) -> None:
        """Keep the rows where `kept` is true."""
        if not kept.all():
            self._select(kept)

    def cut(self, count: int) -> None:
        """Keep the first rows."""
        if count < len(self):
            self._select(slice(count))

    def cut_at_first(self, wrong: Truths) -> None:
        """Keep the rows before the first wrong row."""
        if wrong.any():
            self.cut(int(wrong.argmax()))

    def _select(self, rows: Truths | slice) -> None:
        self._heads = self._heads[rows]
        self.is_whole = self.is_whole[rows]
        self._columns = {name: column[rows] for name, column in self._columns.items()}

    def _read(self, name: str) -> Ints:
        match name:
            case "store_timestamp":
                numbers = self._buffer.longs[self["store_timestamp_at"]]
            case "reconsume_times":
                numbers = self._buffer.ints[self["body_from"] - _RECONSUME_TIMES]
            case "prepared_transaction_offset":
                numbers = self._buffer.longs[self["body_from"] - _PREPARED_OFFSET]
            case "born_host_from":
                return self["position"] + HEAD_SIZE
            case "store_host_from":
                return self["store_timestamp_at"] + _TIMESTAMP_SIZE
            case "store_host_to":
                return self["body_from"] - _AFTER_STORE_HOST
            case _:
                numbers = self._heads[name]
        return numbers.astype(np.int64)

    def _find_parts(self) -> Truths:
        """Add the positions of the parts; return which rows' parts add up to the record's size."""
        buffer, columns = self._buffer, self._columns
        position, sys_flag = self["position"], self["sys_flag"]
        end = columns["end"] = position + self["size"]
        timestamp_at = position + (HEAD_SIZE + HOST_V4_SIZE)
        timestamp_at += _HOSTS_V6_MORE * ((sys_flag & BORNHOST_V6_FLAG) != 0)
        body_from = timestamp_at + (_TIMESTAMP_SIZE + HOST_V4_SIZE + _AFTER_STORE_HOST)
        body_from += _HOSTS_V6_MORE * ((sys_flag & STOREHOST_V6_FLAG) != 0)
        is_wide = self._heads["magic"] == MESSAGE_MAGIC_V2
        topic_field = TOPIC_SIZE_FIELD + is_wide
        text_room = end - topic_field - PROPERTIES_SIZE.size

        is_whole: Truths = body_from <= text_room
        at = self._where(is_whole, body_from - _BODY_SIZE)
        body_to = body_from + buffer.ints[at]
        is_whole &= (body_to >= body_from) & (body_to <= text_room)
        at = self._where(is_whole, body_to)
        topic_size = buffer.bytes[at].astype(np.int64)
        if is_wide.any():
            topic_size = np.where(is_wide, buffer.shorts[at], topic_size)
        topic_from = body_to + topic_field
        topic_to = topic_from + topic_size
        is_whole &= (topic_size >= 0) & (topic_to <= end - PROPERTIES_SIZE.size)
        at = self._where(is_whole, topic_to)
        properties_size = buffer.shorts[at].astype(np.int64)
        properties_from = topic_to + PROPERTIES_SIZE.size
        is_whole &= (properties_size >= 0) & (properties_from + properties_size == end)

        columns |= {
            "store_timestamp_at": timestamp_at,
            "body_from": body_from,
            "body_to": body_to,
            "topic_from": topic_from,
            "topic_to": topic_to,
            "properties_from": properties_from,
        }
        return is_whole

    def _where(self, is_sure: Truths, at: Ints) -> Ints:
        """Return `at`, with the start of the record wherever `at` isn't reliable."""
        return at if is_sure.all() else np.where(is_sure, at, self["position"])
