"""Header compression (RFC 7541): a decoder with a dynamic table; literals for answers.

Each connection has one decoder. It must process every field block of the connection in order,
including blocks of refused and malformed requests; otherwise its table differs from the peer's.

Our own field blocks use static table indexes and literals that aren't added to a table, so a block
is the same bytes on every connection.
"""

from __future__ import annotations

from typing import Protocol

from broker_core.errors import Http2ConnectionError
from broker_core.http2 import huffman
from broker_core.http2.codes import ErrorCode
from broker_core.http2.header_fields import PSEUDO, STATIC, Field, field

TABLE_BYTES = 4096
"""The default of SETTINGS_HEADER_TABLE_SIZE, which the broker keeps."""
INTEGER_MAX = (1 << 32) - 1

_INDEXED = 0x80
_WITH_INDEXING = 0x40
_TABLE_SIZE = 0x20
_STATIC_LENGTH = len(STATIC)
_NEWEST = _STATIC_LENGTH - 1
"""Index i of the dynamic table is element _NEWEST - i of a list that ends with the newest field."""


class BlockDecoder(Protocol):
    """The decoder interface that a connection uses: `HeaderDecoder` or its compiled version."""

    @property
    def malformed(self) -> str: ...
    @property
    def list_bytes(self) -> int: ...
    @property
    def list_bytes_max(self) -> int: ...
    def decode(self, block: bytes) -> dict[str, str]: ...


class HeaderDecoder:
    """Decodes the field blocks of one connection.

    The compiled version is `native/header_blocks.pxi`.

    Attributes:
        malformed: why the last block's message is malformed (RFC 9113, 8.1.1), or "".
        list_bytes: the size of the last block's fields (RFC 9113, 6.5.2).
    """

    __slots__ = ("_dynamic", "_size", "_size_max", "list_bytes", "list_bytes_max", "malformed")

    def __init__(self, list_bytes_max: int) -> None:
        """Drop fields above `list_bytes_max` and mark such a list malformed."""
        self.malformed = ""
        self.list_bytes = 0
        self.list_bytes_max = list_bytes_max
        self._dynamic: list[Field] = []
        self._size = 0
        self._size_max = TABLE_BYTES

    @property
    def table(self) -> list[tuple[str, str]]:
        """The dynamic table, with the newest field first."""
        return [(name, value) for name, value, _, _ in reversed(self._dynamic)]

    @property
    def table_bytes(self) -> int:
        """The dynamic table's size (RFC 7541, 4.1)."""
        return self._size

    def decode(self, block: bytes) -> dict[str, str]:
        """Return the fields of a block by name; values of a repeated name are joined by a comma.

        Raises:
            Http2ConnectionError: COMPRESSION_ERROR; the table no longer matches the peer's.
        """
        try:
            return self._decode(block)
        except IndexError:
            raise _wrong("a field block ends early or names a field that no table has") from None

    def _decode(self, block: bytes) -> dict[str, str]:
        headers: dict[str, str] = {}
        dynamic = self._dynamic
        malformed = ""
        list_bytes = pseudo = at = 0
        list_bytes_max = self.list_bytes_max
        end = len(block)
        while at < end:
            byte = block[at]
            at += 1
            if byte >= _INDEXED:
                index = byte & 0x7F
                if index == 0x7F:
                    index, at = _integer(block, at, 0x7F)
                if index >= _STATIC_LENGTH:
                    name, value, size, verdict = dynamic[_NEWEST - index]
                else:
                    name, value, size, verdict = STATIC[index]
                    if not index:
                        raise _wrong("a field block names index 0")
            elif byte & 0xE0 == _TABLE_SIZE:
                at = self._resize(block, at, is_first=not list_bytes)
                continue
            else:
                (name, value, size, verdict), at = self._literal(block, at, byte)
            list_bytes += size
            if list_bytes > list_bytes_max:
                malformed = malformed or f"the header list is larger than {list_bytes_max} bytes"
                continue
            if verdict:
                if verdict != PSEUDO:
                    malformed = malformed or verdict
                elif pseudo != len(headers):
                    malformed = malformed or f"{name} comes after an ordinary field"
                elif name in headers:
                    malformed = malformed or f"{name} comes twice"
                pseudo += 1
            elif name in headers:
                value = f"{headers[name]},{value}"
            headers[name] = value
        self.malformed = malformed
        self.list_bytes = list_bytes
        return headers

    def _literal(self, block: bytes, at: int, byte: int) -> tuple[Field, int]:
        """Return a literal field and the position after it."""
        is_kept = byte & _WITH_INDEXING
        mask = 0x3F if is_kept else 0x0F
        index = byte & mask
        if index == mask:
            index, at = _integer(block, at, mask)
        if not index:
            name, at = _string(block, at)
        elif index >= _STATIC_LENGTH:
            name = self._dynamic[_NEWEST - index][0]
        else:
            name = STATIC[index][0]
        value, at = _string(block, at)
        made = field(name, value)
        if is_kept:
            self._size += made[2]
            self._dynamic.append(made)
            if self._size > self._size_max:
                self._evict()
        return made, at

    def _resize(self, block: bytes, at: int, *, is_first: bool) -> int:
        """Apply a dynamic table size update (RFC 7541, 6.3)."""
        if not is_first:
            raise _wrong("a table size update comes after a field")
        size, after = block[at - 1] & 0x1F, at
        if size == 0x1F:
            size, after = _integer(block, at, 0x1F)
        if size > TABLE_BYTES:
            raise _wrong(f"a table size of {size} is above {TABLE_BYTES}")
        self._size_max = size
        self._evict()
        return after

    def _evict(self) -> None:
        """Remove the oldest fields until the table fits."""
        dynamic, size = self._dynamic, self._size
        count = 0
        while size > self._size_max:
            size -= dynamic[count][2]
            count += 1
        del dynamic[:count]
        self._size = size


def literal(name: str, value: str) -> bytes:
    """Return a field as a literal that isn't added to a table (RFC 7541, 6.2.2)."""
    return b"\0" + _length(len(name)) + name.encode("latin-1") + _text(value)


def indexed_field(index: int) -> bytes:
    """Return a reference to a field of the static table."""
    assert 0 < index < _STATIC_LENGTH
    return bytes((_INDEXED | index,))


def literal_of(index: int, value: str) -> bytes:
    """Return a literal that isn't added to a table, with a name from the static table."""
    assert 0 < index < _STATIC_LENGTH
    name = bytes((index,)) if index < 0x0F else bytes((0x0F, index - 0x0F))
    return name + _text(value)


def _text(value: str) -> bytes:
    return _length(len(value)) + value.encode("latin-1")


def _length(value: int) -> bytes:
    """Return the length of a string without Huffman coding."""
    if value < 0x7F:
        return bytes((value,))
    value -= 0x7F
    out = bytearray((0x7F,))
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(block: bytes, at: int, value: int) -> tuple[int, int]:
    """Return an integer whose prefix is full (RFC 7541, 5.1), and the position after it."""
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if value > INTEGER_MAX or shift > 28:
            raise _wrong("an integer in a field block is too large")
        if byte < 0x80:
            return value, at
        shift += 7


def _string(block: bytes, at: int) -> tuple[str, int]:
    """Return a string (RFC 7541, 5.2) and the position after it."""
    first = block[at]
    at += 1
    length = first & 0x7F
    if length == 0x7F:
        length, at = _integer(block, at, 0x7F)
    end = at + length
    raw = block[at:end]
    if len(raw) != length:
        raise _wrong("a field block ends within a string")
    return (huffman.decode(raw) if first >= 0x80 else raw.decode("latin-1")), end


def _wrong(reason: str) -> Http2ConnectionError:
    return Http2ConnectionError(ErrorCode.COMPRESSION_ERROR, reason)
