"""Find the sampled records in a pull's answer without decoding the others."""

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
    """Yield the queue offsets of adjacent records, up to the first invalid record."""
    at = 0
    while at + _HEAD.size <= len(records):
        size, queue_offset = _HEAD.unpack_from(records, at)
        if size < _HEAD.size:
            return
        yield queue_offset
        at += size


def sample_records(records: memoryview, sample: int) -> Iterator[memoryview]:
    """Yield the adjacent records whose unique key is in a sample of one in `sample`.

    Records without an obvious key are also yielded; after decoding, the caller decides by their
    IDs.
    """
    data = bytes(records)
    at = 0
    while at < len(data):
        (size,) = SIZE.unpack_from(data, at)
        end = at + size
        # Properties are last, so a body with the same bytes can't be found first.
        begin = data.rfind(UNIQ_KEY, at, end)
        key = None
        # The name must follow another property or the length field; otherwise it is part of a
        # value.
        if begin > at and (
            data[begin - 1] == SEPARATOR[0]
            or int.from_bytes(data[begin - 2 : begin], "big") == end - begin
        ):
            begin += len(UNIQ_KEY)
            stop = data.find(SEPARATOR, begin, end)
            key = data[begin : end if stop < 0 else stop]
        if key is None or crc32(key) % sample == 0:
            yield records[at:end]
        at = end
