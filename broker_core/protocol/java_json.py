"""JSON as fastjson writes it, which isn't always valid JSON.

fastjson writes non-string keys as raw JSON: `{0:"addr"}`,
`{{"brokerName":"b","queueId":0,"topic":"T"}:3}`, and the second occurrence of an object as
`{"$ref":"$.path"}`. Java reads these forms and the quoted ones; Go's hand-written parsers need
exactly fastjson's bytes, so the writer here adds no blanks.

In Python every key is a `str`: `"0"` for a number, the compact JSON text for an object, so that
both dialects decode alike. The writer writes `int` and `ObjectKey` keys raw.

Invariant: `decode` reads everything that `encode` writes, with keys as text. Source: fastjson
1.2.69 (4.9.7), serializer/MapSerializer.java, ListSerializer.java.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T")

PIECES_MAX = 4_096
SCALARS = frozenset({str, int, bool, float})
DIALECT_BYTES_MAX = 64 * 1024
"""Limit for a request body that isn't plain JSON; decoding this many bytes takes 10 ms."""
DEPTH_MAX = 32
"""Maximum nesting depth of a body; RocketMQ's deepest has seven levels."""
REPEATED_MAX = 100_000
"""Maximum number of values that references may repeat: each can name a list of others, and so on.
"""

_encode_text = msgspec.json.Encoder().encode
_name_of = itemgetter(0)

_STRING = r'"(?:[^"\\]|\\.)*+"'
# Possessive quantifiers throughout: no backtracking, so the time is linear in the text.
_RAW_KEY = re.compile(
    rf"""
      (?P<before>[{{,]\s*+)(?P<key>-?\d++|\{{(?:{_STRING}|[^{{}}"])*+\}})(?P<colon>\s*+:)
    | {_STRING}
    """,
    re.VERBOSE | re.DOTALL,
)
_BLANKS = re.compile(rf"({_STRING})|\s++", re.DOTALL)
_REF_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]")


class ObjectKey(str):
    """An object as a map key: its compact JSON text, written without quotes."""

    __slots__ = ()


def message_queue_key(topic: str, broker_name: str, queue_id: int) -> ObjectKey:
    """Return a MessageQueue as a map key."""
    broker = _encode_text(broker_name).decode()
    return ObjectKey(
        f'{{"brokerName":{broker},"queueId":{queue_id},"topic":{_encode_text(topic).decode()}}}'
    )


def decode(data: bytes | bytearray | memoryview | str) -> Any:
    """Decode JSON or fastjson text; every key is text, and `$ref`s are resolved.

    Raises:
        ValueError: the text is neither, or is nested too deep.
    """
    try:
        value = _parse(data)
        _check_depth(value)
        if _holds(data, '"$ref"'):
            value = _Resolver(value).resolved()
    except RecursionError as error:
        raise ValueError(f"the JSON nests deeper than {DEPTH_MAX} levels") from error
    return value


def decode_as(data: bytes | bytearray | memoryview | str, type_: type[T]) -> T:
    """Decode text into a msgspec struct, as tolerantly as Java: quoted numbers, unknown keys.

    Raises:
        ValueError: the text isn't JSON, or a member has another type.
    """
    if not _holds(data, '"$ref"'):
        try:
            return msgspec.json.decode(data, type=type_, strict=False)
        except (ValueError, RecursionError):
            pass  # Perhaps fastjson's dialect; if not, the slow reader reports the error.
    return msgspec.convert(decode(data), type=type_, strict=False)


def decode_request(data: bytes, type_: type[T]) -> T:
    """Decode a request's body as `decode_as` does, but refuse a long body that isn't plain JSON.

    fastjson's dialect, `$ref`s and values of other types than the struct's take sixty times as long
    to decode. No client sends them in a long body.

    Raises:
        ValueError: as decode_as, or the body is too long.
    """
    if len(data) <= DIALECT_BYTES_MAX:
        return decode_as(data, type_)
    if _holds(data, '"$ref"'):
        raise ValueError(f"JSON with references may have {DIALECT_BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(data, type=type_, strict=False)
    except RecursionError as error:
        raise ValueError(f"the JSON nests deeper than {DEPTH_MAX} levels") from error


def _parse(data: bytes | bytearray | memoryview | str) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        text = data if isinstance(data, str) else str(data, "utf-8")
        return msgspec.json.decode(to_standard(text))


def _holds(data: bytes | bytearray | memoryview | str, text: str) -> bool:
    if isinstance(data, str):
        return text in data
    return text.encode() in bytes(data) if isinstance(data, memoryview) else text.encode() in data


def to_standard(text: str) -> str:
    """Return the text with its raw keys quoted and everything else unchanged."""
    return _RAW_KEY.sub(_quote, text)


def _quote(match: re.Match[str]) -> str:
    key = match["key"]
    if key is None:  # a string: skip it, as it may contain text like a key
        return match[0]
    if key[0] == "{":
        key = _BLANKS.sub(lambda found: found[1] or "", key)
        return f"{match['before']}{_encode_text(key).decode()}{match['colon']}"
    return f'{match["before"]}"{key}"{match["colon"]}'


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH_MAX):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"the JSON nests deeper than {DEPTH_MAX} levels")


class _Resolver:
    """Replaces each `$ref` with the object that it names."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[int, tuple[int, int]] = {}
        self._repeated = 0

    def resolved(self) -> Any:
        self._walk(self._root, [])
        self._measure(self._root, 0)
        return self._root

    def _measure(self, value: Any, depth: int) -> tuple[int, int]:
        """Return how many values a reader of this value visits, and how deep it nests.

        Raises:
            ValueError: too many values are repeated, or it nests too deep, as a cycle does.
        """
        if not isinstance(value, dict | list):
            return 1, 0
        found = self._known.get(id(value))
        if found is not None:
            self._repeated += found[0]
        elif depth < DEPTH_MAX:
            children = value.values() if isinstance(value, dict) else value
            measures = [self._measure(child, depth + 1) for child in children]
            found = (
                1 + sum(size for size, _ in measures),
                1 + max([0, *(deep for _, deep in measures)]),
            )
            self._known[id(value)] = found
        if found is None or depth + found[1] > DEPTH_MAX:
            raise ValueError(f"a reference makes the JSON nest deeper than {DEPTH_MAX} levels")
        if self._repeated > REPEATED_MAX:
            raise ValueError(f"references in the JSON repeat more than {REPEATED_MAX} values")
        return found

    def _walk(self, value: Any, parents: list[Any]) -> None:
        parents.append(value)
        items: Iterator[tuple[Any, Any]]
        if isinstance(value, dict):
            items = iter(list(value.items()))
        elif isinstance(value, list):
            items = iter(enumerate(value))
        else:
            items = iter(())
        for key, child in items:
            if _is_reference(child):
                value[key] = self._target(child["$ref"], parents)
            elif isinstance(child, dict | list):
                self._walk(child, parents)
        parents.pop()

    def _target(self, reference: object, parents: list[Any]) -> Any:
        # A reference may name only a value that precedes it and doesn't contain it: a cycle would
        # trap every later reader in a loop.
        if not isinstance(reference, str) or not reference.startswith("$."):
            raise ValueError(f"the reference {reference!r} in the JSON cannot be followed")
        target = self._root
        at = 1
        while at < len(reference):
            step = _REF_STEP.match(reference, at)
            if step is None:
                raise ValueError(f"the reference {reference!r} in the JSON cannot be followed")
            at = step.end()
            name = step[1] if step[1] is not None else step[3]
            try:
                target = target[int(step[2])] if step[2] is not None else target[name]
            except (KeyError, IndexError, TypeError) as error:
                raise ValueError(f"the reference {reference!r} leads nowhere") from error
        if any(target is parent for parent in parents) or _is_reference(target):
            raise ValueError(f"the reference {reference!r} leads back to itself")
        return target


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and "$ref" in value


def encode(value: Any) -> bytes:
    """Return value as fastjson's compact text: sorted keys, raw unless they are strings in Java."""
    out: list[str] = []
    _write(value, out)
    return "".join(out).encode()


def _write(value: Any, out: list[str]) -> None:
    if isinstance(value, dict):
        if _is_number_map(value):
            out.append(_number_map(value))
            return
        before = "{"
        for key, item in _sorted_items(value):
            out.append(before)
            out.append(_key(key))
            out.append(":")
            _write(item, out)
            before = ","
        out.append("}" if value else "{}")
    elif isinstance(value, list | tuple):
        before = "["
        for item in value:
            out.append(before)
            _write(item, out)
            before = ","
        out.append("]" if value else "[]")
    else:
        out.append(_scalar(value))


def encode_pretty(value: Any) -> bytes:
    """Return value as fastjson's pretty text, the format of the broker's configuration files.

    Tabs, one member per line, no blank after the colon, no line feed at the end. All entries of a
    map with raw keys are on its opening line, a list of numbers on one line. Structs are written as
    their members.
    """
    out: list[str] = []
    text = bytearray()
    _write_pretty(value, "\n", out, text)
    text += "".join(out).encode()
    return bytes(text)


def _write_pretty(value: Any, line: str, out: list[str], text: bytearray) -> None:
    """Append value; `line` is a line feed with the current line's indentation.

    The pieces in `out` are moved to `text` now and then: for a large table they would take ten
    times its size.
    """
    inner = line + "\t"
    if len(out) >= PIECES_MAX:
        text += "".join(out).encode()
        out.clear()
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        if not value:
            out.append("{}")
            return
        if _is_number_map(value):
            out.append(_number_map(value)[:-1])
            out.append(line + "}")
            return
        before = "{"
        for key, item in _sorted_items(value):
            begin = before if type(key) is not str else before + inner
            if type(item) in SCALARS:
                out.append(f"{begin}{_key(key)}:{_scalar(item)}")
            else:
                out.append(f"{begin}{_key(key)}:")
                _write_pretty(item, inner, out, text)
            before = ","
        out.append(line + "}")
    elif isinstance(value, list | tuple):
        if all(type(item) is int for item in value):
            out.append("[" + ",".join(map(str, value)) + "]")
            return
        before = "["
        for item in value:
            out.append(before + inner)
            _write_pretty(item, inner, out, text)
            before = ","
        out.append(line + "]")
    else:
        out.append(_scalar(value))


def _sorted_items(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """Return the members in order, without null values, as fastjson does."""
    found = [pair for pair in value.items() if pair[1] is not None]
    is_of_names = set(map(type, value)) == {str}
    return sorted(found, key=_name_of if is_of_names else _sort_key)


def _sort_key(pair: tuple[Any, Any]) -> tuple[int, int, str]:
    key = pair[0]
    return (0, key, "") if isinstance(key, int) else (1, 0, key)


def _is_number_map(value: Mapping[Any, Any]) -> bool:
    """Return whether all keys and values are plain ints, as in big tables of offsets by queue."""
    return set(map(type, value)) == {int} == set(map(type, value.values()))


def _number_map(value: dict[int, int]) -> str:
    # repr in C is ten times faster than writing each pair, and numbers contain no blanks.
    return repr(dict(sorted(value.items()))).replace(" ", "")


def _key(key: object) -> str:
    if isinstance(key, ObjectKey):
        return str(key)
    if isinstance(key, str):
        return _encode_text(key).decode()
    if type(key) is int:
        return str(key)
    raise TypeError(f"a {type(key).__name__} cannot be a key of Java's JSON")


def _scalar(value: object) -> str:
    return _encode_text(value).decode()
