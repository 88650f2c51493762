"""Decompression of message bodies, by the compression type in sys_flag.

Each type has a limit, since a few bytes can expand to gigabytes. Source:
common/compression/CompressorFactory.java (5.3.3): zlib, LZ4 frames, Zstandard.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import lz4.frame
import zstandard

from broker_core.message.sys_flag import COMPRESSED_FLAG, COMPRESSION_MASK, MessageSysFlag

if TYPE_CHECKING:
    from collections.abc import Callable

ZSTD_WINDOW_BYTES_MAX = 8 << 20
"""The window size that RFC 8878 requires of decoders; frames can ask for gigabytes."""
ZSTD_STEP_BYTES = 256
"""Expands to 8 MiB at most, since a block of 4 bytes can stand for 128 KiB."""


def unpacked(raw: memoryview, sys_flag: int, bytes_max: int) -> tuple[bytes | None, bool]:
    """Return the start of a body, and whether there is more of it.

    None: the compression isn't supported, or the data is corrupt.
    """
    if not sys_flag & COMPRESSED_FLAG:
        return bytes(raw[:bytes_max]), len(raw) > bytes_max
    kind = KINDS.get(sys_flag & COMPRESSION_MASK)
    if kind is None:
        return None, False
    try:
        return kind(raw, bytes_max)
    except (zlib.error, zstandard.ZstdError, RuntimeError):
        return None, False


def of_zlib(raw: memoryview, bytes_max: int) -> tuple[bytes, bool]:
    inflater = zlib.decompressobj()
    body = inflater.decompress(raw, bytes_max)
    return body, bool(inflater.unconsumed_tail) or not inflater.eof


def of_lz4(raw: memoryview, bytes_max: int) -> tuple[bytes, bool]:
    frame = lz4.frame.LZ4FrameDecompressor()
    body: bytes = frame.decompress(raw, max_length=bytes_max)
    return body, not frame.eof


def of_zstd(raw: memoryview, bytes_max: int) -> tuple[bytes, bool]:
    frame = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX).decompressobj()
    found = bytearray()
    for at in range(0, len(raw), ZSTD_STEP_BYTES):
        found += frame.decompress(raw[at : at + ZSTD_STEP_BYTES])
        if len(found) > bytes_max or frame.eof:
            break
    return bytes(found[:bytes_max]), len(found) > bytes_max or not frame.eof


KINDS: dict[int, Callable[[memoryview, int], tuple[bytes, bool]]] = {
    # Clients that only support zlib don't set the type bits.
    0: of_zlib,
    int(MessageSysFlag.COMPRESSION_ZLIB): of_zlib,
    int(MessageSysFlag.COMPRESSION_LZ4): of_lz4,
    int(MessageSysFlag.COMPRESSION_ZSTD): of_zstd,
}
