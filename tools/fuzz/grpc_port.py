"""Targets for the gRPC port: a connection's bytes, header compression, messages."""

from __future__ import annotations

import asyncio
import re

import pytest

from broker_core.errors import Http2ConnectionError, ProtobufError
from broker_core.grpc_messages import clients, codec, receiving, reflection, routing, sending
from broker_core.http2 import frames, hpack
from broker_core.http2.codes import CONTINUATION, DATA, HEADERS
from broker_core.http2.connection import Connection
from broker_core.http2.engine import PYTHON, Engine
from broker_core.http2.hpack import HeaderDecoder
from broker_core.http2.limits import Http2Limits
from tests.support.clock import ManualClock
from tests.support.http2_peer import COMPILED, NATIVE, Handlers, frames_of, wire_of
from tools.fuzz.target import Target

LIST_BYTES_MAX = 1 << 14
CUTS = 16
KINDS = (
    sending.SendMessageRequest,
    receiving.ReceiveMessageRequest,
    receiving.AckMessageRequest,
    clients.TelemetryCommand,
    routing.QueryRouteRequest,
    reflection.Request,
    routing.QueryRouteResponse,
)


class Sink(asyncio.Transport):
    """Accepts all writes, without a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close


def connection(data: bytes) -> None:
    """Bytes after the preface produce frames, and possibly close the connection."""
    written = _served(PYTHON, data)
    if COMPILED is not None:
        assert _served(COMPILED, data) == written


def _served(engine: Engine, data: bytes) -> bytes:
    """Return a connection's output; check that it agrees with its wire."""
    step = 1 + data[0] if data else 1
    data = frames.PREFACE + frames.settings({}) + data[1:]
    limits = Http2Limits(message_bytes_max=1 << 16)
    wire = wire_of(Handlers([], []).methods(), limits, ManualClock(), engine)
    peer = Connection(wire)
    sink = Sink()
    peer.connection_made(sink)
    step = max(step, len(data) // CUTS)
    for at in range(0, len(data), step):
        piece = data[at : at + step]
        peer.get_buffer(-1)[: len(piece)] = piece
        peer.buffer_updated(len(piece))
    ended: set[int] = set()
    for frame in frames_of(bytes(sink.written)):
        assert frame.stream_id not in ended or frame.kind not in (DATA, HEADERS, CONTINUATION)
        if frame.ends:
            ended.add(frame.stream_id)
    assert len(peer.requests.streams) == wire.streams
    peer.connection_lost(None)
    assert wire.streams == wire.buffered_bytes == wire.unsent_bytes == 0
    return bytes(sink.written)


def blocks(data: bytes) -> None:
    """Field blocks with length prefixes are decoded or end the connection."""
    decoder = HeaderDecoder(LIST_BYTES_MAX)
    twin = None if NATIVE is None else NATIVE.HeaderDecoder(LIST_BYTES_MAX)
    at, block = 0, b""
    try:
        while at < len(data):
            block = data[at + 1 : at + 1 + data[at]]
            at += 1 + len(block)
            headers = decoder.decode(block)
            assert sum(map(len, headers.values())) <= LIST_BYTES_MAX
            sizes = [len(name) + len(value) + 32 for name, value in decoder.table]
            assert decoder.table_bytes == sum(sizes) <= hpack.TABLE_BYTES
            if twin is not None:
                assert twin.decode(block) == headers
                assert twin.malformed == decoder.malformed
                assert twin.table == decoder.table
    except Http2ConnectionError as error:
        if twin is not None:
            with pytest.raises(Http2ConnectionError, match=re.escape(str(error))):
                twin.decode(block)


def messages(data: bytes) -> None:
    """A readable message is written so that it reads back equal."""
    kind = KINDS[data[0] % len(KINDS)] if data else KINDS[0]
    try:
        found = codec.decode(kind, data[1:])
    except ProtobufError:
        if NATIVE is not None:
            with pytest.raises(ProtobufError):
                NATIVE.decode_message(kind, data[1:])
        return
    again = codec.encode(found)
    # NaN isn't equal to itself, but its bytes are.
    assert codec.encode(codec.decode(kind, again)) == again
    if NATIVE is not None:
        assert NATIVE.encode_message(NATIVE.decode_message(kind, data[1:])) == again


TARGETS = (
    Target("protobuf", "messages of gRPC clients", messages, 1.5),
    Target("http2", "bytes of an HTTP/2 connection", connection),
    Target("hpack", "field blocks of an HTTP/2 connection", blocks),
)
