"""The protobuf wire format: read and write varints, skip unknown fields.

A field is a tag (field number << 3 | wire type) and a value: 0 a varint, 1 eight bytes, 2 a length
and as many bytes, 3 and 4 the start and end of a group, 5 four bytes.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from broker_core.errors import ProtobufError

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)
GROUPS_MAX = 100
"""Maximum nesting depth of groups."""
_UINT64 = (1 << 64) - 1
_TAG_MAX = (1 << 32) - 1
CUT_SHORT = "it is cut short"


def varint(value: int) -> bytes:
    """Encode a number; negative numbers take 64 bits."""
    if value < 0:
        value += 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a 64-bit number and the position after it.

    Raises:
        ProtobufError: it has more than ten bytes, or extends past `end`.
    """
    value = shift = 0
    while True:
        if at >= end:
            raise ProtobufError(CUT_SHORT)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _UINT64, at
        shift += 7
        if shift > 63:
            raise ProtobufError("a varint has more than ten bytes")


def read_tag(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a tag and the position after it.

    Raises:
        ProtobufError: it is truncated or invalid.
    """
    tag, after = read_varint(data, at, end)
    if tag > _TAG_MAX or after - at > 5:
        raise ProtobufError("a tag has more than 32 bits")
    return tag, after


def read_length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the start and end of a length-delimited value.

    Raises:
        ProtobufError: it extends beyond `end`.
    """
    length, at = read_varint(data, at, end)
    if at + length > end:
        raise ProtobufError(CUT_SHORT)
    return at, at + length


def skip(data: bytes, at: int, end: int, tag: int, depth: int = 0) -> int:
    """Return the position after the value of an unknown field.

    Raises:
        ProtobufError: it is truncated, or its tag is wrong.
    """
    wire_type = tag & 7
    # Within a group any field number is allowed, as in Google's parser.
    if tag < 8 and not depth:
        raise ProtobufError("a field has number 0")
    if wire_type == VARINT:
        return read_varint(data, at, end)[1]
    if wire_type == LENGTH:
        return read_length(data, at, end)[1]
    if wire_type in (FIXED64, FIXED32):
        at += 8 if wire_type == FIXED64 else 4
        if at > end:
            raise ProtobufError(CUT_SHORT)
        return at
    if wire_type != START_GROUP or depth == GROUPS_MAX:
        raise ProtobufError(f"a field has wire type {wire_type}")
    while True:
        inner, at = read_tag(data, at, end)
        if inner & 7 == END_GROUP:
            if inner >> 3 != tag >> 3:
                raise ProtobufError("a group ends another")
            return at
        at = skip(data, at, end, inner, depth + 1)
