"""The compiled parts of gRPC behave like their Python twins, errors included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hpack as library
import pytest
from hypothesis import given, settings, strategies as st

from broker_core.errors import Http2ConnectionError, ProtobufError
from broker_core.grpc_messages import codec, shared
from broker_core.http2 import frames, hpack
from broker_core.http2.call import Call
from broker_core.http2.connection import Connection
from broker_core.http2.engine import PYTHON, Engine
from broker_core.http2.frames import headers
from broker_core.http2.hpack import HeaderDecoder
from broker_core.http2.limits import Http2Limits
from broker_core.native.loading import load_grpc
from tests.support.clock import ManualClock
from tests.support.http2_peer import (
    CHAT,
    COMPILED,
    ECHO,
    LATER,
    REPEAT,
    Handlers,
    block_of,
    data_frame,
    request,
    wire_of,
)
from tests.unit.grpc_messages.test_codec import MESSAGES, REQUESTS, fields as proto_fields, messages
from tools.fuzz.grpc_port import Sink

if TYPE_CHECKING:
    from broker_core.native.loading import NativeGrpc, NativeHeaderDecoder

NATIVE: Any = load_grpc()
LIST_BYTES_MAX = 2_000

pytestmark = pytest.mark.skipif(
    NATIVE is None, reason="nothing compiled: python -m broker_core.native.build"
)

names = st.one_of(
    st.sampled_from(
        ["te", "a", ":path", ":method", "x-mq-client-id", "connection", "upgrade", "Upper", ""]
    ),
    st.text(st.characters(max_codepoint=255), max_size=20),
)
values = st.one_of(
    st.sampled_from(["trailers", "x" * 600, " a", "a\n", "\t", ""]),
    st.text(st.characters(max_codepoint=255), max_size=30),
)
blocks = st.one_of(
    st.binary(max_size=40),
    st.lists(st.integers(0x80, 0xFF), max_size=30).map(bytes),
    st.builds(lambda n, v: b"\x40" + hpack.literal(n, v)[1:], names, values),
    st.builds(hpack.literal, names, values),
    st.sampled_from([b"\x20", b"\x3f\x45", b"\x3f\xe1\x1f", b"\x3f\xe2\x1f", b"\x20\x3f\xe1\x1f"]),
)


def outcome(decoder: HeaderDecoder | NativeHeaderDecoder, block: bytes) -> tuple[Any, ...]:
    """Return a decoder's complete result for a block."""
    try:
        headers = list(decoder.decode(block).items())
    except Http2ConnectionError as error:
        return error.code, str(error), decoder.table
    return headers, decoder.malformed, decoder.list_bytes, decoder.table, decoder.table_bytes


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(blocks, max_size=4).map(b"".join), max_size=8))
def test_both_read_the_same_from_any_blocks(connection: list[bytes]) -> None:
    python, compiled = HeaderDecoder(LIST_BYTES_MAX), NATIVE.HeaderDecoder(LIST_BYTES_MAX)

    for block in connection:
        assert outcome(compiled, block) == outcome(python, block)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.tuples(names, values), max_size=12), st.booleans()), max_size=8)
)
def test_both_read_the_same_from_another_librarys_blocks(
    connection: list[tuple[list[tuple[str, str]], bool]],
) -> None:
    encoder = library.Encoder()
    python, compiled = HeaderDecoder(LIST_BYTES_MAX), NATIVE.HeaderDecoder(LIST_BYTES_MAX)

    for listed, is_huffman in connection:
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in listed]
        block = encoder.encode(raw, huffman=is_huffman)
        assert outcome(compiled, block) == outcome(python, block)


@pytest.mark.parametrize("name", REQUESTS)
@settings(max_examples=10, deadline=None)
@given(st.data())
def test_both_write_and_read_the_same_messages(name: str, data: st.DataObject) -> None:
    message = data.draw(messages(MESSAGES[name]))

    written = codec.encode(message)

    assert NATIVE.encode_message(message) == written
    assert NATIVE.decode_message(MESSAGES[name], written) == message


def both(kind: type[codec.ProtoMessage], data: bytes) -> None:
    """Check that both read the same, possibly with NaN, or reject with the same message."""
    try:
        message = codec.decode(kind, data)
    except ProtobufError as error:
        with pytest.raises(ProtobufError) as caught:
            NATIVE.decode_message(kind, data)
        assert str(caught.value) == str(error)  # noqa: PT017
    else:
        assert repr(NATIVE.decode_message(kind, data)) == repr(message)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(REQUESTS), st.lists(proto_fields, max_size=6))
def test_both_read_the_same_from_any_bytes(name: str, parts: list[bytes]) -> None:
    both(MESSAGES[name], b"".join(parts))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(REQUESTS))
def test_both_read_the_same_from_damaged_messages(data: st.DataObject, name: str) -> None:
    written = bytearray(codec.encode(data.draw(messages(MESSAGES[name]))))
    changes = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)
    for at, byte in data.draw(changes):
        if written:
            written[at % len(written)] = byte

    both(MESSAGES[name], bytes(written))
    both(MESSAGES[name], bytes(written[: data.draw(st.integers(0, len(written)))]))


# The frame loop.


def run(engine: Engine, data: bytes, where: list[int]) -> tuple[Any, ...]:
    """Return a connection's output for data in pieces, and its state afterwards."""
    clock = ManualClock()
    handlers = Handlers([], [])
    wire = wire_of(handlers.methods(), Http2Limits(streams_max=6), clock, engine)
    connection = Connection(wire)
    sink = Sink()
    connection.connection_made(sink)
    data = frames.PREFACE + frames.settings({}) + data
    at = 0
    for cut in [*sorted(each % (len(data) + 1) for each in where), len(data)]:
        piece = data[at:cut]
        at = max(at, cut)
        if piece:
            connection.get_buffer(-1)[: len(piece)] = piece
            connection.buffer_updated(len(piece))
    requests, outbox = connection.requests, connection.outbox
    return (
        bytes(sink.written),
        (sink.is_closed, connection.is_stopped, wire.streams, wire.buffered_bytes),
        (requests.last_stream_id, outbox.sent_bytes, outbox.unsent_bytes),
        connection.receive_window if not connection.is_stopped else None,
        {stream: state_of(call) for stream, call in requests.streams.items()},
        [call.stream_id for call in handlers.waiting],
        [call.stream_id for call in handlers.cancelled],
    )


def state_of(call: Call) -> dict[str, Any]:
    """Return the comparable fields of a call."""
    kinds = (int, float, str, bytes, dict, type(None))
    fields = {name: getattr(call, name) for name in Call.__slots__}
    fields["route"] = call.route.path
    return {name: value for name, value in fields.items() if isinstance(value, kinds)}


timeouts = st.sampled_from(["3S", "100m", "99999999H", "1n", "1 S", "", "5", "123456789S", "7u"])
extra = st.lists(
    st.one_of(
        st.tuples(st.just("grpc-timeout"), timeouts),
        st.tuples(st.just("grpc-encoding"), st.sampled_from(["identity", "gzip"])),
        st.tuples(st.just("content-length"), st.sampled_from(["10", "x"])),
        st.tuples(st.just("x-mq-client-id"), values),
    ),
    max_size=2,
)
paths = st.sampled_from([ECHO, LATER, REPEAT, CHAT, "/none", ""])
streams = st.sampled_from([1, 3, 5, 7, 9, 11, 2])
calls = st.builds(
    lambda stream, path, more, message, method: (
        headers(stream, block_of(*request(path, method=method), *more), ends=False)
        + data_frame(stream, message)
    ),
    streams,
    paths,
    extra,
    st.binary(max_size=30),
    st.sampled_from(["POST", "POST", "POST", "GET"]),
)
anything = st.one_of(
    calls,
    calls,
    st.builds(
        frames.frame, st.integers(0, 11), st.integers(0, 255), streams, st.binary(max_size=40)
    ),
    st.builds(data_frame, streams, st.binary(max_size=30), ends=st.booleans()),
    st.builds(lambda s, p: headers(s, block_of(*request(p)), ends=True), streams, paths),
    st.builds(lambda s, p: headers(s, block_of(*request(p)), ends=False), streams, paths),
    st.builds(frames.window_update, st.sampled_from([0, 1, 3]), st.integers(0, 1 << 31)),
    st.builds(
        frames.settings, st.dictionaries(st.integers(3, 6), st.integers(0, 70_000), max_size=2)
    ),
    st.builds(frames.rst_stream, streams, st.integers(0, 9)),
)


@settings(max_examples=250, deadline=None)
@given(st.lists(anything, max_size=14), st.lists(st.integers(0, 3_000), max_size=5))
def test_both_engines_serve_the_same(pieces: list[bytes], where: list[int]) -> None:
    assert COMPILED is not None
    data = b"".join(pieces)

    assert run(COMPILED, data, where) == run(PYTHON, data, where)


def test_a_long_message_is_written_whole() -> None:
    body = bytes(range(256)) * 20_000
    message = shared.Message(user_properties={"k" * 300: "v" * 70_000}, body=body)

    written = NATIVE.encode_message(message)

    assert written == codec.encode(message)
    assert NATIVE.decode_message(shared.Message, written) == message


@pytest.mark.parametrize(
    "message",
    [
        shared.Message(body=memoryview(b"no bytes")),  # type: ignore[arg-type]
        shared.Message(user_properties=[("no", "dict")]),  # type: ignore[arg-type]
        shared.SystemProperties(keys=("no", "list")),  # type: ignore[arg-type]
        shared.Resource(name=b"no text"),  # type: ignore[arg-type]
        shared.Status(code="no number"),  # type: ignore[arg-type]
    ],
)
def test_a_field_of_another_type_is_only_an_error(message: object) -> None:
    with pytest.raises((TypeError, AttributeError, ValueError)):
        NATIVE.encode_message(message)


def test_many_messages_leave_no_memory_behind(native: NativeGrpc) -> None:
    import tracemalloc

    message = shared.Message(
        shared.Resource("", "t"), {"a": "b"}, shared.SystemProperties("x"), b"b"
    )
    data = codec.encode(message)
    native.decode_message(shared.Message, data)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(10_000):
            native.encode_message(native.decode_message(shared.Message, data))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert after - before < 10_000


@pytest.fixture
def native() -> Any:
    return NATIVE
