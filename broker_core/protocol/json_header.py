"""The frame header as JSON, the default form of all Java and Go clients.

    {"code":11,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,
     "serializeTypeCurrentRPC":"JSON","version":407}

Keys can be in any order, unknown keys are skipped, and `remark` is absent when null. All values of
`extFields` are strings: Go rejects anything else, so the writer's types allow nothing else.

Source: remoting/protocol/RemotingCommand.java, RemotingSerializable.java (4.9.7).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from broker_core.errors import FrameError
from broker_core.protocol.codes import LanguageCode

EXT_FIELDS_MAX = 256
"""Maximum number of ext fields in a header; no RocketMQ request has more than thirty."""
TEXTS_MAX = 2 * EXT_FIELDS_MAX + 32
"""Maximum number of JSON strings in a header: names and values of ext fields, and its own."""
INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1

OUR_LANGUAGE = LanguageCode.PYTHON.name
UNKNOWN_LANGUAGE = LanguageCode.OTHER.name

Int32 = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]
ExtFields = Annotated[dict[str, str], msgspec.Meta(max_length=EXT_FIELDS_MAX)]


class Header(msgspec.Struct, gc=False):
    """The seven fields of a header, from either form.

    A msgspec struct, so that the JSON decoder fills the object passed to handlers: a dict or a
    second object in between would cost more than the decoding.
    """

    code: Int32 = 0
    flag: Int32 = 0
    opaque: Int32 = 0
    version: Int32 = 0
    language: str = UNKNOWN_LANGUAGE
    remark: str | None = None
    ext_fields: ExtFields = msgspec.field(default_factory=dict, name="extFields")


_encode_json = msgspec.json.Encoder().encode

_PLAIN = (
    b'{"code":%d,"flag":%d,"language":"PYTHON","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}'
)
_WITH_EXT = (
    b'{"code":%d,"extFields":%b,"flag":%d,"language":"PYTHON","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}'
)
_WHOLE = (
    b'{"code":%d,"extFields":%b,"flag":%d,"language":%b,"opaque":%d,"remark":%b,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}'
)


def encode(header: Header) -> bytes:
    """Return the header's JSON, with keys in the order of Java's writer."""
    ext_fields = header.ext_fields
    if header.remark is None and header.language == OUR_LANGUAGE:
        if not ext_fields:
            return _PLAIN % (header.code, header.flag, header.opaque, header.version)
        return _WITH_EXT % (
            header.code,
            _encode_json(ext_fields),
            header.flag,
            header.opaque,
            header.version,
        )
    return _WHOLE % (
        header.code,
        _encode_json(ext_fields),
        header.flag,
        _encode_json(header.language),
        header.opaque,
        _encode_json(header.remark),
        header.version,
    )


def refuse_many_texts(data: memoryview) -> None:
    """Refuse a header with more JSON strings than ext fields could have, before it is decoded.

    In JSON, an unescaped quotation mark begins or ends a string, so their number limits how many
    strings a decoder can find.

    Raises:
        FrameError: there are too many.
    """
    text = bytes(data)
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    texts = text.count(b'"') // 2
    if texts > TEXTS_MAX:
        raise FrameError(f"the header holds {texts} texts, more than {TEXTS_MAX}")


def decode_leniently(data: bytes | memoryview) -> Header:
    """Decode a header that Java's reader accepts although no common client writes it.

    That is: numbers and booleans as ext values, quoted numbers, nulls, the language as a number.

    Raises:
        FrameError: Java's reader would not accept it either, or a limit is exceeded.
    """
    try:
        fields: object = msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the header is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise FrameError("the header is not a JSON object")
    remark = fields.get("remark")
    return Header(
        code=_int32(fields, "code"),
        flag=_int32(fields, "flag"),
        opaque=_int32(fields, "opaque"),
        version=_int32(fields, "version"),
        language=_language(fields.get("language")),
        remark=None if remark is None else _text(remark),
        ext_fields=_ext_fields(fields.get("extFields")),
    )


def _int32(fields: dict[str, Any], key: str) -> int:
    value = fields.get(key)
    if value is None:
        return 0
    if isinstance(value, str) and len(value) <= len(str(INT32_MIN)):
        try:
            value = int(value)
        except ValueError:
            value = None
    if type(value) is not int or not INT32_MIN <= value <= INT32_MAX:
        raise FrameError(f"the header's {key} is not a 32-bit number")
    return value


def _language(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and 0 <= value <= max(LanguageCode):
        return LanguageCode(value).name
    return UNKNOWN_LANGUAGE


def _ext_fields(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FrameError("the header's extFields is not a JSON object")
    if len(value) > EXT_FIELDS_MAX:
        raise FrameError(f"the header has {len(value)} ext fields, more than {EXT_FIELDS_MAX}")
    return {key: _text(item) for key, item in value.items() if item is not None}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return _encode_json(value).decode()
