"""The frame header in RocketMQ's binary form (serializer type 1), big endian.

     0      2 3      5          9         13           17
    +------+-+------+----------+---------+------------+--------+---------+--------------+
    | code |L| vers.|  opaque  |  flag   | remark len | remark | ext len | ext entries  |
    +------+-+------+----------+---------+------------+--------+---------+--------------+
    entry: int16 key length, key, int32 value length, value      (ext len counts all entries' bytes)

Code and version have only 16 bits, so POP's codes (200050 and up) arrive as their low 16 bits.

Source: remoting/protocol/RocketMQSerializable.java (4.9.7).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from broker_core.errors import FrameError
from broker_core.protocol.codes import BROKER_VERSION, RESPONSE_FLAG, LanguageCode, RequestCode
from broker_core.protocol.json_header import (
    EXT_FIELDS_MAX,
    OUR_LANGUAGE,
    UNKNOWN_LANGUAGE,
    Header,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

FIXED = struct.Struct(">hBhii")
assert FIXED.size == 13
OPAQUE_POSITION, FLAG_POSITION = 5, 9
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")

KEY_BYTES_MAX = 2**15 - 1

_LANGUAGES = {language.value: language.name for language in LanguageCode}
_LANGUAGE_NUMBERS = {language.name: language.value for language in LanguageCode}

WHOLE_CODES = {
    (code - (code >> 16 << 16)): int(code)
    for code in RequestCode
    if code >= RequestCode.POP_MESSAGE
}
"""Request codes that need more than 16 bits, by their low 16 bits."""
assert WHOLE_CODES[3442] == RequestCode.POP_MESSAGE


def _signed16(value: int) -> int:
    """Return value cast to a Java short."""
    return ((value + 0x8000) & 0xFFFF) - 0x8000


def encode(header: Header) -> bytes:
    """Return the header's bytes; a code over 16 bits is truncated, as in RocketMQ."""
    remark = b"" if header.remark is None else header.remark.encode()
    entries = bytearray()
    for key, value in header.ext_fields.items():
        key_bytes = key.encode()
        value_bytes = value.encode()
        if len(key_bytes) > KEY_BYTES_MAX:
            raise FrameError(f"the name of an ext field has {len(key_bytes)} bytes")
        entries += INT16.pack(len(key_bytes))
        entries += key_bytes
        entries += INT32.pack(len(value_bytes))
        entries += value_bytes
    return b"".join(
        (
            FIXED.pack(
                _signed16(header.code),
                _LANGUAGE_NUMBERS.get(header.language, LanguageCode.OTHER),
                _signed16(header.version),
                header.opaque,
                header.flag,
            ),
            INT32.pack(len(remark)),
            remark,
            INT32.pack(len(entries)),
            entries,
        )
    )


def answer_parts(
    code: int, remark: str | None, constant: dict[str, str], names: Sequence[str]
) -> tuple[bytes, ...]:
    """Return an answer's header, split where its numbers and values go.

    Pieces: up to the opaque; from there to the total length of the entries; the constant entries
    and the first name; each further name. An int32 length and the value follow each name. For
    encoders that know their answer's shape; the JSON counterpart is `command.answer_template`.
    """
    empty = encode(Header(code, RESPONSE_FLAG, 0, BROKER_VERSION, OUR_LANGUAGE, remark))
    whole = encode(Header(code, RESPONSE_FLAG, 0, BROKER_VERSION, OUR_LANGUAGE, remark, constant))
    entries = whole[len(empty) :]
    first, *others = [INT16.pack(len(name)) + name.encode() for name in names]
    return empty[:OPAQUE_POSITION], empty[FLAG_POSITION : -INT32.size], entries + first, *others


def decode(data: bytes | memoryview) -> Header:
    """Decode a header, which must fill data exactly.

    Raises:
        FrameError: a length points outside, a text isn't UTF-8, or a limit is exceeded.
    """
    try:
        code, language, version, opaque, flag = FIXED.unpack_from(data)
        at = FIXED.size
        (remark_bytes,) = INT32.unpack_from(data, at)
        at += INT32.size
        remark_to = _end(data, at, remark_bytes)
        remark = str(data[at:remark_to], "utf-8") if remark_bytes else None
        (ext_bytes,) = INT32.unpack_from(data, remark_to)
        at = remark_to + INT32.size
        ext_fields = _decode_entries(data, at, _end(data, at, ext_bytes))
    except struct.error as error:
        raise FrameError("the binary header ends too early") from error
    except UnicodeDecodeError as error:
        raise FrameError("a text in the binary header is not UTF-8") from error
    if not flag & RESPONSE_FLAG:
        code = WHOLE_CODES.get(code, code)
    return Header(
        code=code,
        flag=flag,
        opaque=opaque,
        version=version,
        language=_LANGUAGES.get(language, UNKNOWN_LANGUAGE),
        remark=remark,
        ext_fields=ext_fields,
    )


def _end(data: bytes | memoryview, at: int, length: int) -> int:
    if length < 0 or at + length > len(data):
        raise FrameError(f"a length of {length} bytes points outside the binary header")
    return at + length


def _decode_entries(data: bytes | memoryview, at: int, to: int) -> dict[str, str]:
    """Return the entries in [at, to); if a key repeats, the last one wins."""
    ext_fields: dict[str, str] = {}
    entries = 0
    while at < to:
        entries += 1
        if entries > EXT_FIELDS_MAX:
            raise FrameError(f"the header has more than {EXT_FIELDS_MAX} ext fields")
        (key_bytes,) = INT16.unpack_from(data, at)
        at += INT16.size
        key_to = _end(data, at, key_bytes)
        key = str(data[at:key_to], "utf-8")
        (value_bytes,) = INT32.unpack_from(data, key_to)
        at = key_to + INT32.size
        value_to = _end(data, at, value_bytes)
        if value_to > to:
            raise FrameError("an ext field runs past the end of the ext fields")
        if key and value_bytes:  # Java reads an empty name or value as null
            ext_fields[key] = str(data[at:value_to], "utf-8")
        at = value_to
    return ext_fields
