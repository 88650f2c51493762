"""Our codec and Google's read and write the same bytes, and reject the same ones."""

from __future__ import annotations

import math
import types
import typing
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings, strategies as st

from broker_core.errors import ProtobufError
from broker_core.grpc_messages import clients, enums, receiving, routing, sending, shared
from broker_core.grpc_messages.codec import ProtoMessage, decode, encode, fields_of
from broker_core.grpc_messages.wire_format import varint
from tools import protos

MODULES = (shared, routing, sending, receiving, clients)
OF_GOOGLE = {"Timestamp", "Duration"}
MESSAGES = {
    one.__name__: one
    for module in MODULES
    for one in vars(module).values()
    if isinstance(one, type) and issubclass(one, ProtoMessage) and one.__module__ == module.__name__
}
REQUESTS = [name for name in MESSAGES if name.endswith(("Request", "Response", "Command"))]


def theirs(name: str) -> Any:
    return protos.message_class(name, "google.protobuf" if name in OF_GOOGLE else protos.PACKAGE)


# The classes match the .proto files.


@pytest.mark.parametrize("name", MESSAGES)
def test_the_fields_match_the_proto_file(name: str) -> None:
    ours = {}
    for field, (described, of) in fields_of(MESSAGES[name]).items():
        ours[field] = (described.number, described.oneof, kind_of(of, described.bits))
    other = {}
    for field in theirs(name).DESCRIPTOR.fields:
        oneof = field.containing_oneof
        is_real = oneof is not None and not oneof.name.startswith("_")
        other[field.name] = (field.number, oneof.name if is_real else "", other_kind_of(field))

    assert ours == other


def kind_of(of: Any, bits: int) -> tuple[str, bool, bool]:
    """Return the type of one of our fields, whether it's repeated, and whether it's optional."""
    if typing.get_origin(of) is dict:
        return "map", True, False
    if typing.get_origin(of) is list:
        return kind_of(typing.get_args(of)[0], bits)[0], True, False
    is_optional = isinstance(of, types.UnionType)
    if is_optional:
        (of,) = (each for each in typing.get_args(of) if each is not type(None))
    name = of.__name__
    return f"int{bits}" if of is int else name, False, is_optional


def other_kind_of(field: Any) -> tuple[str, bool, bool]:
    kinds = {
        field.TYPE_STRING: "str",
        field.TYPE_BYTES: "bytes",
        field.TYPE_BOOL: "bool",
        field.TYPE_INT32: "int32",
        field.TYPE_ENUM: "int32",
        field.TYPE_INT64: "int64",
        field.TYPE_FLOAT: "float",
    }
    if field.type == field.TYPE_MESSAGE:
        of = field.message_type
        if of.GetOptions().map_entry:
            return "map", True, False
        return of.name, field.is_repeated, not field.is_repeated
    return kinds[field.type], field.is_repeated, field.has_presence


@pytest.mark.parametrize(
    "name", [one for one in vars(enums) if one[0].isupper() and one != "IntEnum"]
)
def test_the_numbers_match_the_proto_file(name: str) -> None:
    ours = {each.name: each.value for each in getattr(enums, name)}

    other = protos.pool().FindEnumTypeByName(f"{protos.PACKAGE}.{name}")
    assert ours == {each.name: each.number for each in other.values}


def test_every_message_of_a_served_call_is_defined() -> None:
    service = protos.pool().FindServiceByName(f"{protos.PACKAGE}.MessagingService")
    not_served = {
        *("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription")
    }

    expected = {
        each.name
        for method in service.methods
        if method.name not in not_served
        for each in (method.input_type, method.output_type)
    }

    assert expected <= MESSAGES.keys()


# Generated messages.


texts = st.text(max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def values(of: Any, bits: int) -> st.SearchStrategy[Any]:
    if typing.get_origin(of) is dict:
        return st.dictionaries(texts, texts, max_size=3)
    if typing.get_origin(of) is list:
        return st.lists(values(typing.get_args(of)[0], bits), max_size=3)
    if isinstance(of, types.UnionType):
        (of,) = (each for each in typing.get_args(of) if each is not type(None))
        return st.none() | values(of, bits)
    if of is int:
        return st.sampled_from([0, 1, -1, 127, 128]) | (INT64 if bits == 64 else INT32)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: texts,
        bytes: st.binary(max_size=40) | st.just(b"x" * 1_000),
        bool: st.booleans(),
        float: st.floats(width=32, allow_nan=False),
    }
    return plain[of] if of in plain else messages(of)


def messages(kind: type[ProtoMessage]) -> st.SearchStrategy[Any]:
    """Return messages of a kind; only the last field of a oneof is set."""

    def made(fields: dict[str, Any]) -> ProtoMessage:
        seen: set[str] = set()
        for name, (field, _) in reversed(fields_of(kind).items()):
            if field.oneof and fields[name] is not None:
                if field.oneof in seen:
                    fields[name] = None
                seen.add(field.oneof)
        return kind(**fields)

    return st.fixed_dictionaries(
        {name: values(of, field.bits) for name, (field, of) in fields_of(kind).items()}
    ).map(made)


@pytest.mark.parametrize("name", REQUESTS)
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_our_message_is_readable_by_the_original_and_vice_versa(
    name: str, data: st.DataObject
) -> None:
    message = data.draw(messages(MESSAGES[name]))

    written = encode(message)
    read = theirs(name).FromString(written)

    assert read.ByteSize() == len(written)
    assert decode(MESSAGES[name], read.SerializeToString()) == message
    assert decode(MESSAGES[name], written) == message


# Random bytes.


def agree(name: str, data: bytes) -> None:
    """Check that both reject the bytes, or both read the same from them."""
    try:
        other = theirs(name).FromString(data)
    except DecodeError:
        with pytest.raises(ProtobufError):
            decode(MESSAGES[name], data)
        return
    ours = decode(MESSAGES[name], data)
    other.DiscardUnknownFields()
    assert same(ours, decode(MESSAGES[name], other.SerializeToString()))


def same(one: Any, other: Any) -> bool:
    """Compare messages; NaN equals NaN."""
    return one == other or (
        isinstance(one, float) and isinstance(other, float) and math.isnan(one)
    ) or (
        isinstance(one, ProtoMessage)
        and all(same(getattr(one, name), getattr(other, name)) for name in fields_of(type(one)))
    )  # fmt: skip


numbers = st.integers(0, 40)
fixed32, fixed64 = (st.binary(min_size=size, max_size=size) for size in (4, 8))
varints = st.one_of(
    st.integers(0, 300), st.integers(0, 2**64 - 1), st.sampled_from([2**31, 2**32, 2**63])
).map(varint)
fields = st.deferred(lambda: st.one_of(
    st.builds(lambda n, v: varint(n << 3) + v, numbers, varints),
    st.builds(lambda n, v: varint(n << 3 | 2) + varint(len(v)) + v, numbers, bodies),
    st.builds(lambda n, v: varint(n << 3 | 5) + v, numbers, fixed32),
    st.builds(lambda n, v: varint(n << 3 | 1) + v, numbers, fixed64),
    st.builds(lambda n, v: varint(n << 3 | 3) + v + varint(n << 3 | 4), numbers, bodies),
    st.binary(max_size=6),
))  # fmt: skip
bodies: st.SearchStrategy[bytes] = st.one_of(
    st.binary(max_size=12), st.lists(fields, max_size=4).map(b"".join), texts.map(str.encode)
)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(REQUESTS), st.lists(fields, max_size=6))
def test_any_bytes_decode_the_same_in_both_or_in_neither(name: str, parts: list[bytes]) -> None:
    agree(name, b"".join(parts))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(REQUESTS))
def test_a_damaged_message_decodes_the_same_in_both_or_in_neither(
    data: st.DataObject, name: str
) -> None:
    written = bytearray(encode(data.draw(messages(MESSAGES[name]))))
    for at, byte in data.draw(
        st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)
    ):
        if written:
            written[at % len(written)] = byte
    cut = data.draw(st.integers(0, len(written)))

    agree(name, bytes(written))
    agree(name, bytes(written[:cut]))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x0a", "cut short"),
        (b"\x0a\x05abc", "cut short"),
        (b"\x12\x80", "cut short"),
        (b"\x12\x02\xff\xff", "not UTF-8"),
        (b"\x18" + b"\xff" * 11, "more than ten bytes"),
        (b"\x00\x01", "number 0"),
        (b"\xff\xff\xff\xff\xff\x01\x01", "more than 32 bits"),
        (b"\x1c", "wire type 4"),
        (b"\x1f", "wire type 7"),
        (b"\x1b\x24", "ends another"),
        (b"\x1b" * 200, "wire type 3"),
    ],
)
def test_an_invalid_message_is_one_declared_error(data: bytes, says: str) -> None:
    with pytest.raises(ProtobufError, match=says):
        decode(shared.Status, b"\x12\x00" + data)


def test_a_repeated_singular_message_is_merged() -> None:
    first = encode(sending.RecallMessageRequest(shared.Resource("space", "one")))
    second = encode(sending.RecallMessageRequest(shared.Resource(name="two")))

    found = decode(sending.RecallMessageRequest, first + second)

    assert found.topic == shared.Resource("space", "two")


def test_the_last_field_of_a_oneof_counts() -> None:
    first = encode(receiving.ReceiveMessageResponse(status=shared.Status(20000)))
    second = encode(receiving.ReceiveMessageResponse(message=shared.Message(body=b"x")))

    found = decode(receiving.ReceiveMessageResponse, first + second)

    assert found.status is None
    assert found.message is not None
    assert found.message.body == b"x"


def test_numbers_may_be_packed_or_separate() -> None:
    packed = b"\x2a\x02\x01\x02"
    single = b"\x28\x01\x28\x02"

    for data in (packed, single):
        assert decode(routing.MessageQueue, data).accept_message_types == [1, 2]
    assert encode(routing.MessageQueue(accept_message_types=[1, 2])) == packed
