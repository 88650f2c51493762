"""The ConsumeQueue extension unit: data that doesn't fit in a ConsumeQueue unit of 20 bytes.

Big-endian, units of variable size one after another, files of one size::

     0      2                10               18     20
    +------+----------------+----------------+------+--------------+
    | size |   tags code    | store timestamp| size | filter bitmap|
    +------+----------------+----------------+------+--------------+
      of all                                   of the bitmap, may be 0

A unit never crosses files and never extends into a file's last four bytes. If a unit doesn't fit,
size -1 marks the end and the unit is written to the next file. A ConsumeQueue unit with an
extension contains its address instead of the tags code: the extension's first byte, counted through
all files of the queue, plus -2^63. No tags code or time is that small.

Invariant: a unit with size <= 0 was never written.
Source: store/ConsumeQueueExt.java (4.9.7).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

HEAD = struct.Struct(">hqqh")
HEAD_SIZE = 20
UNIT_SIZE_MAX = 0x7FFF
ADDRESS_BASE = -(1 << 63)
ADDRESS_MAX = -(1 << 31) - 1
"""A greater value is a tags code, not an address."""
EXT_OFFSET_MAX = ADDRESS_MAX - ADDRESS_BASE
END_MARK = struct.pack(">h", -1)
END_SIZE = 4
HEADS = np.dtype(
    [("size", ">i2"), ("tags_code", ">i8"), ("store_timestamp", ">i8"), ("bit_map_size", ">i2")]
)

assert HEAD.size == HEAD_SIZE
assert HEADS.itemsize == HEAD_SIZE


class CqExtUnit(NamedTuple):
    """One unit; bit_map is empty if the unit has no bitmap."""

    tags_code: int
    store_timestamp: int
    bit_map: bytes

    @property
    def size(self) -> int:
        """Length in the file, in bytes."""
        return HEAD_SIZE + len(self.bit_map)


def encode(unit: CqExtUnit) -> bytes:
    """Return a unit's bytes; its size must be at most UNIT_SIZE_MAX."""
    tags_code, store_timestamp, bit_map = unit
    return HEAD.pack(unit.size, tags_code, store_timestamp, len(bit_map)) + bit_map


def decode(data: bytes | memoryview, position: int) -> CqExtUnit | None:
    """Return the unit at a position, or None if no unit starts there."""
    if position + HEAD_SIZE > len(data):
        return None
    size, tags_code, store_timestamp, bit_map_size = HEAD.unpack_from(data, position)
    if size != HEAD_SIZE + max(bit_map_size, 0) or position + size > len(data):
        return None
    return CqExtUnit(
        tags_code, store_timestamp, bytes(data[position + HEAD_SIZE : position + size])
    )
