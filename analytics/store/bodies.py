"""Decompresses bodies by the algorithm that sys_flag names.

Pure: no I/O. Thread-safe.

Source: common/compression/CompressorFactory.java (5.3.3): zlib, LZ4 frames, Zstandard; messages of
4.9 use zlib without naming it.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pyarrow as pa

from broker_core.message.sys_flag import COMPRESSED_FLAG, COMPRESSION_MASK, MessageSysFlag

if TYPE_CHECKING:
    from collections.abc import Sequence

# Real bodies are smaller before compression (maxMessageSize defaults to 4 MiB); larger is a bomb.
BODY_BYTES_MAX = 64 * 1024 * 1024
_ARROW_CODECS = {
    MessageSysFlag.COMPRESSION_LZ4.value: "lz4",
    MessageSysFlag.COMPRESSION_ZSTD.value: "zstd",
}


def decompressed(bodies: pa.Array, flags: Sequence[int]) -> tuple[pa.Array, int]:
    """Return the bodies, and the number that couldn't be decompressed and are null."""
    compressed = [index for index, flag in enumerate(flags) if flag & COMPRESSED_FLAG]
    if not compressed:
        return bodies, 0
    values: list[bytes | None] = bodies.to_pylist()
    failed = 0
    for index in compressed:
        value = values[index]
        if value is not None:
            values[index] = _inflated(value, flags[index] & COMPRESSION_MASK)
            failed += values[index] is None
    return pa.array(values, type=pa.binary()), failed


def _inflated(body: bytes, kind: int) -> bytes | None:
    """Return a decompressed body, or None if it isn't valid or is too large."""
    codec = _ARROW_CODECS.get(kind)
    try:
        if codec is None:
            inflater = zlib.decompressobj()
            found = inflater.decompress(body, BODY_BYTES_MAX + 1)
            is_whole = inflater.eof
        else:
            with pa.input_stream(pa.BufferReader(body), compression=codec) as stream:
                found = stream.read(BODY_BYTES_MAX + 1)
            is_whole = True
    except (zlib.error, OSError, pa.ArrowException):
        return None
    return found if is_whole and len(found) <= BODY_BYTES_MAX else None
