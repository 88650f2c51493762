"""Codec: convert messages between objects and protobuf bytes.

A message is a class whose fields are annotated with their numbers and types::

    class Resource(ProtoMessage):
        resource_namespace: Annotated[str, Field(1)] = ""
        name: Annotated[str, Field(2)] = ""

`decode` and `encode` follow a plan derived from the annotations on first use. Unknown fields are
skipped. As in proto3, a field with its default value isn't written unless it may be None. The
compiled twin is `native/proto_messages.pxi`.
"""

from __future__ import annotations

import math
import struct
import types
import typing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from broker_core.errors import ProtobufError
from broker_core.grpc_messages.wire_format import (
    CUT_SHORT,
    FIXED32,
    LENGTH,
    VARINT,
    read_length,
    read_tag,
    read_varint,
    skip,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", bound="ProtoMessage")

STRING, BYTES, MESSAGE, MAP, INT32, INT64, BOOL, FLOAT, PACKED = range(9)
_FLOAT = struct.Struct("<f")
_INT32_BITS = 0xFFFF_FFFF
_BYTES = [bytes((number,)) for number in range(0x80)]


class Decode(Protocol):
    """Decodes a message of a given class."""

    def __call__(self, kind: type[T], data: bytes) -> T: ...


class Codec(NamedTuple):
    """Encodes and decodes: `PYTHON` or the compiled twin."""

    decode: Decode
    encode: Callable[[Any], bytes]


class ProtoMessage(msgspec.Struct):
    """A protobuf message; two messages are equal if their fields are."""


class Field(NamedTuple):
    """A field's number; `bits` for integers; `oneof` lists the fields that it excludes."""

    number: int
    bits: int = 32
    oneof: str = ""


class Read(NamedTuple):
    """How to read a field with a given tag."""

    name: str
    kind: int
    is_repeated: bool
    message: type[ProtoMessage] | None
    excludes: tuple[str, ...]


class Write(NamedTuple):
    """How to write a field."""

    name: str
    kind: int
    tag: bytes
    is_repeated: bool
    is_optional: bool


class Plan(NamedTuple):
    """How to read a message, by tag, and write it, by field number."""

    reads: dict[int, Read]
    writes: tuple[Write, ...]


def decode(kind: type[T], data: bytes) -> T:
    """Decode a message.

    Raises:
        ProtobufError: the bytes aren't a message of this class.
    """
    return _decode(kind, data, 0, len(data))


def encode(message: ProtoMessage) -> bytes:
    """Encode a message, fields in numerical order."""
    out: list[bytes] = []
    _encode(message, out)
    return b"".join(out)


PYTHON = Codec(decode, encode)


def fields_of(kind: type[ProtoMessage]) -> dict[str, tuple[Field, Any]]:
    """Return the number and the type of each field, by name."""
    found = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        of, annotation = typing.get_args(hint)
        assert isinstance(annotation, Field)
        found[name] = annotation, of
    return found


def _decode(kind: type[T], data: bytes, at: int, end: int) -> T:
    reads = plan_of(kind).reads
    values: dict[str, Any] = {}
    while at < end:
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = read_tag(data, at - 1, end)
        read = reads.get(tag)
        if read is None:
            at = skip(data, at, end, tag)
            continue
        name, field_kind, is_repeated, message, excludes = read
        value: Any
        if field_kind <= MAP:
            if at >= end:
                raise ProtobufError(CUT_SHORT)
            stop = at + 1 + data[at]
            at += 1
            if stop - at >= 0x80:
                at, stop = read_length(data, at - 1, end)
            elif stop > end:
                raise ProtobufError(CUT_SHORT)
            if field_kind == STRING:
                value = _text(data, at, stop)
            elif field_kind == BYTES:
                value = data[at:stop]
            elif field_kind == MESSAGE:
                assert message is not None
                value = _decode(message, data, at, stop)
                if not is_repeated and name in values:
                    value = _merged(values[name], value)
            else:
                key, text = _entry(data, at, stop)
                values.setdefault(name, {})[key] = text
                at = stop
                continue
            at = stop
        else:
            value, at = _number(field_kind, data, at, end)
        if is_repeated:
            known = values.setdefault(name, [])
            if field_kind == PACKED:
                known += value
            else:
                known.append(value)
            continue
        for other in excludes:
            values.pop(other, None)
        values[name] = value
    return kind(**values)


def _number(kind: int, data: bytes, at: int, end: int) -> tuple[Any, int]:
    if kind == FLOAT:
        if at + 4 > end:
            raise ProtobufError(CUT_SHORT)
        return _FLOAT.unpack_from(data, at)[0], at + 4
    if kind == PACKED:
        at, stop = read_length(data, at, end)
        numbers = []
        while at < stop:
            value, at = read_varint(data, at, stop)
            numbers.append(_signed(value & _INT32_BITS, 32))
        return numbers, at
    value, at = read_varint(data, at, end)
    if kind == BOOL:
        return value != 0, at
    return (_signed(value & _INT32_BITS, 32) if kind == INT32 else _signed(value, 64)), at


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def _text(data: bytes, at: int, end: int) -> str:
    try:
        return data[at:end].decode()
    except UnicodeDecodeError:
        raise ProtobufError("a text is not UTF-8") from None


def _entry(data: bytes, at: int, end: int) -> tuple[str, str]:
    """Return the key and value of a string map's entry."""
    key = value = ""
    while at < end:
        tag, at = read_tag(data, at, end)
        if tag == 1 << 3 | LENGTH:
            at, stop = read_length(data, at, end)
            key = _text(data, at, stop)
            at = stop
        elif tag == 2 << 3 | LENGTH:
            at, stop = read_length(data, at, end)
            value = _text(data, at, stop)
            at = stop
        else:
            at = skip(data, at, end, tag)
    return key, value


def _merged(first: ProtoMessage, second: ProtoMessage) -> ProtoMessage:
    """Merge two occurrences of a singular message field, as protobuf does."""
    return decode(type(first), encode(first) + encode(second))


def _encode(message: ProtoMessage, out: list[bytes]) -> None:
    for name, kind, tag, is_repeated, is_optional in plan_of(type(message)).writes:
        value = getattr(message, name)
        if value is None or (not value and not is_optional and not _is_minus_zero(value)):
            continue
        if is_repeated and kind != PACKED:
            for each in value.items() if kind == MAP else value:
                _encode_value(kind, tag, each, out)
        else:
            _encode_value(kind, tag, value, out)


def _encode_value(kind: int, tag: bytes, value: Any, out: list[bytes]) -> None:
    if kind == STRING:
        data = value.encode()
    elif kind == BYTES:
        data = value
    elif kind == MESSAGE:
        inner: list[bytes] = []
        _encode(value, inner)
        data = b"".join(inner)
    elif kind == MAP:
        key, text = (each.encode() for each in value)
        data = b"\x0a" + varint(len(key)) + key + b"\x12" + varint(len(text)) + text
    elif kind == PACKED:
        data = b"".join(map(varint, value))
    elif kind == FLOAT:
        out += (tag, _FLOAT.pack(value))
        return
    else:
        number = int(value)
        out += (tag, _BYTES[number] if 0 <= number < 0x80 else varint(number))
        return
    size = len(data)
    out += (tag, _BYTES[size] if size < 0x80 else varint(size), data)


def _is_minus_zero(value: Any) -> bool:
    """Return whether a value is -0.0, which isn't a float's default."""
    return type(value) is float and math.copysign(1.0, value) < 0


@lru_cache(None)
def plan_of(kind: type[ProtoMessage]) -> Plan:
    """Derive the plan for a message class."""
    reads: dict[int, Read] = {}
    writes = []
    described = fields_of(kind)
    for name, (field, of) in described.items():
        excludes = tuple(
            other
            for other, (its, _) in described.items()
            if field.oneof and its.oneof == field.oneof and other != name
        )
        is_optional = is_repeated = False
        if isinstance(of, types.UnionType):
            is_optional = True
            of = next(each for each in typing.get_args(of) if each is not type(None))
        origin = typing.get_origin(of)
        if origin is not None:
            is_repeated = True
            of = typing.get_args(of)[0]
        code, wire_type = _kind(of, field, is_map=origin is dict, is_repeated=is_repeated)
        message = of if code == MESSAGE else None
        read = Read(name, code, is_repeated, message, excludes)
        reads[field.number << 3 | wire_type] = read
        if code == PACKED:
            # A sender may write the numbers unpacked.
            reads[field.number << 3 | VARINT] = read._replace(kind=INT32)
        tag = varint(field.number << 3 | wire_type)
        writes.append((field.number, Write(name, code, tag, is_repeated, is_optional)))
    return Plan(reads, tuple(write for _, write in sorted(writes)))


def _kind(of: type, field: Field, *, is_map: bool, is_repeated: bool) -> tuple[int, int]:
    if is_map:
        return MAP, LENGTH
    if of is str:
        return STRING, LENGTH
    if of is bytes:
        return BYTES, LENGTH
    if issubclass(of, ProtoMessage):
        return MESSAGE, LENGTH
    if of is float:
        return FLOAT, FIXED32
    if of is bool:
        return BOOL, VARINT
    if is_repeated:
        return PACKED, LENGTH
    return (INT64 if field.bits == 64 else INT32), VARINT
