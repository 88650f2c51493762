"""Bodies as their senders made them: undone by the kind of compression that sys_flag names.

A bound stands before each kind, since a body of some bytes can hold gigabytes. Source:
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
"""What RFC 8878 asks decoders to bear; a frame may name gigabytes."""
ZSTD_STEP_BYTES = 256
"""So few packed bytes are 8 MiB at most: a block of 4 bytes may stand for 128 KiB."""


def unpacked(raw: memoryview, sys_flag: int, bytes_max: int) -> tuple[bytes | None, bool]:
    """Return a body's beginning, and whether there is more of it.

    None: compressed in a way that is not read here, or broken.
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
    # Bits of no kind are those of clients that know one kind only.
    0: of_zlib,
    int(MessageSysFlag.COMPRESSION_ZLIB): of_zlib,
    int(MessageSysFlag.COMPRESSION_LZ4): of_lz4,
    int(MessageSysFlag.COMPRESSION_ZSTD): of_zstd,
}
