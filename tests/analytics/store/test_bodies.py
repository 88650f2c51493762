"""Bodies as their senders created them."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from analytics.store import bodies as bodies_module
from analytics.store.bodies import decompressed
from broker_core.message.sys_flag import MessageSysFlag

BODY = b"a body that was compressed" * 50


def packed(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(BODY)
    packed_body: bytes = sink.getvalue().to_pybytes()
    return packed_body


@pytest.mark.parametrize(
    ("flag", "stored"),
    [
        (MessageSysFlag.COMPRESSED, zlib.compress(BODY)),
        (MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_ZLIB, zlib.compress(BODY)),
        (MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_LZ4, packed("lz4")),
        (MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_ZSTD, packed("zstd")),
    ],
    ids=["unnamed", "zlib", "lz4", "zstd"],
)
def test_each_kind_of_compression_is_undone(flag: MessageSysFlag, stored: bytes) -> None:
    found, failed = decompressed(pa.array([b"plain", stored, None]), [0, int(flag), int(flag)])

    assert found.to_pylist() == [b"plain", BODY, None]
    assert failed == 0


@pytest.mark.parametrize(
    "stored",
    [b"", b"no zlib", zlib.compress(BODY)[:-3], zlib.compress(bytes(1001))],
    ids=["empty", "something else", "cut", "bomb"],
)
def test_undecodable_values_are_null_and_counted(
    stored: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies_module, "BODY_BYTES_MAX", 1000)

    found, failed = decompressed(pa.array([stored]), [int(MessageSysFlag.COMPRESSED)])

    assert (found.to_pylist(), failed) == ([None], 1)
