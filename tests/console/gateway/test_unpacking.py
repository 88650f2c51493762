"""Compression of bodies: each kind is decompressed, to a limit, and broken data isn't guessed."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest
import zstandard

from broker_core.message.sys_flag import MessageSysFlag
from console.gateway.requests.unpacking import unpacked

PACKED = int(MessageSysFlag.COMPRESSED)
ZLIB = PACKED | int(MessageSysFlag.COMPRESSION_ZLIB)
LZ4 = PACKED | int(MessageSysFlag.COMPRESSION_LZ4)
ZSTD = PACKED | int(MessageSysFlag.COMPRESSION_ZSTD)
TEXT = b'{"order": 4711}' * 5_000


def packed(kind: int, body: bytes) -> memoryview:
    """Compress a body with a different library than the console's."""
    if kind in (PACKED, ZLIB):
        return memoryview(zlib.compress(body))
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4" if kind == LZ4 else "zstd") as stream:
        stream.write(body)
    return memoryview(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("kind", [PACKED, ZLIB, LZ4, ZSTD])
@pytest.mark.parametrize("body", [b"", b"x", TEXT])
def test_each_kind_of_compression_is_undone(kind: int, body: bytes) -> None:
    assert unpacked(packed(kind, body), kind, len(TEXT)) == (body, False)


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
def test_decompression_stops_at_the_limit(kind: int) -> None:
    bomb = packed(kind, bytes(64 << 20))
    assert len(bomb) < 1 << 20

    body, is_cut = unpacked(bomb, kind, 1_000)

    assert (body, is_cut) == (bytes(1_000), True)


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
def test_broken_entries_are_ignored_and_truncated_ones_cut(kind: int) -> None:
    assert unpacked(memoryview(b"not packed at all"), kind, 1_000) == (None, False)

    body, is_cut = unpacked(packed(kind, TEXT)[:-5], kind, len(TEXT))
    assert is_cut
    assert body is not None
    assert TEXT.startswith(body)


def test_no_memory_is_reserved_for_a_window_of_gigabytes() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = compressor.compress(TEXT) + compressor.flush()

    assert unpacked(memoryview(frame), ZSTD, 1_000) == (None, False)


def test_an_unknown_kind_is_ignored() -> None:
    assert unpacked(memoryview(b"x"), PACKED | 0x700, 1_000) == (None, False)
    assert unpacked(memoryview(b"plain"), 0, 3) == (b"pla", True)
