"""The compiled parts of gRPC do what their Python twins do, errors included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hpack as library
import pytest
from hypothesis import given, settings, strategies as st

from broker_core.errors import Http2ConnectionError, ProtobufError
from broker_core.grpc_messages import codec, shared
from broker_core.http2 import hpack
from broker_core.http2.hpack import HeaderDecoder
from broker_core.native.loading import load_grpc
from tests.unit.grpc_messages.test_codec import MESSAGES, REQUESTS, fields as proto_fields, messages

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
    """Return all that a decoder says about a block."""
    try:
        headers = list(decoder.decode(block).items())
    except Http2ConnectionError as error:
        return error.code, str(error), decoder.table
    return headers, decoder.malformed, decoder.list_bytes, decoder.table, decoder.table_bytes


@settings(max_examples=500, deadline=None)
@given(st.lists(st.lists(blocks, max_size=4).map(b"".join), max_size=8))
def test_both_read_the_same_from_any_blocks(connection: list[bytes]) -> None:
    python, compiled = HeaderDecoder(LIST_BYTES_MAX), NATIVE.HeaderDecoder(LIST_BYTES_MAX)

    for block in connection:
        assert outcome(compiled, block) == outcome(python, block)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.tuples(names, values), max_size=12), st.booleans()), max_size=8)
)
def test_both_read_the_same_from_the_blocks_of_another_library(
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
    """Check that both read the same, which may hold NaN, or both refuse with the same words."""
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


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(REQUESTS))
def test_both_read_the_same_from_damaged_messages(data: st.DataObject, name: str) -> None:
    written = bytearray(codec.encode(data.draw(messages(MESSAGES[name]))))
    changes = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)
    for at, byte in data.draw(changes):
        if written:
            written[at % len(written)] = byte

    both(MESSAGES[name], bytes(written))
    both(MESSAGES[name], bytes(written[: data.draw(st.integers(0, len(written)))]))


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
def test_a_field_of_another_type_is_an_error_and_nothing_worse(message: object) -> None:
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
