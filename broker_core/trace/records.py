"""Records: those of a pull's answer that a sample wants, found without decoding the others."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">i16xq")
UNIQ_KEY = b"UNIQ_KEY\x01"
SEPARATOR = b"\x02"


def queue_offsets(records: memoryview) -> Iterator[int]:
    """Yield the queue offsets of records side by side, up to the first that is none."""
    at = 0
    while at + _HEAD.size <= len(records):
        size, queue_offset = _HEAD.unpack_from(records, at)
        if size < _HEAD.size:
            return
        yield queue_offset
        at += size


def sampled(records: memoryview, one_of: int) -> Iterator[memoryview]:
    """Yield the records, of those side by side, that one of so many is by their unique keys.

    Those as well whose key is not found at once: whoever decodes them decides by their ids.
    """
    data = bytes(records)
    at = 0
    while at < len(data):
        (size,) = SIZE.unpack_from(data, at)
        end = at + size
        # Properties come last; a body that holds the same bytes lies before them.
        begin = data.rfind(UNIQ_KEY, at, end)
        key = None
        # Another property or their length stands before it, else it is part of something else.
        if begin > at and (
            data[begin - 1] == SEPARATOR[0]
            or int.from_bytes(data[begin - 2 : begin], "big") == end - begin
        ):
            begin += len(UNIQ_KEY)
            stop = data.find(SEPARATOR, begin, end)
            key = data[begin : end if stop < 0 else stop]
        if key is None or crc32(key) % one_of == 0:
            yield records[at:end]
        at = end
