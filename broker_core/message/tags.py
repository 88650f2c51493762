"""Java's String.hashCode, the basis of tags codes and index keys.

Source: store/MessageExtBrokerInner.java tagsString2tagsCode (4.9.8).
"""

from __future__ import annotations

from functools import lru_cache
from operator import mul

TAGS_CACHED_MAX = 4096
TAIL_LENGTH = 4
POWERS_MAX = 256
_TAIL_POWER: int = 31**TAIL_LENGTH
# 31^(255) .. 31^0, modulo 2^32: the factors for the last n characters are the last n entries.
_POWERS = tuple(pow(31, n, 1 << 32) for n in range(POWERS_MAX - 1, -1, -1))


def utf16_units(text: str) -> bytes | tuple[int, ...]:
    """Return a string's characters as Java sees them: UTF-16 code units."""
    if text.isascii():
        return text.encode()
    data = text.encode("utf-16-be", "surrogatepass")
    return tuple(memoryview(data).cast("B")[i] << 8 | data[i + 1] for i in range(0, len(data), 2))


def unsigned_hash(text: str, seed: int = 0) -> int:
    """Return a text's hash modulo 2^32, continued from the hash `seed` of the text before it."""
    units = utf16_units(text)
    length = len(units)
    if length < POWERS_MAX:
        # One pass in C takes a tenth of the time of a loop.
        head = seed * _POWERS[-1 - length] if seed else 0
        return (head + sum(map(mul, units, _POWERS[-length:]))) & 0xFFFFFFFF if length else seed
    value = seed
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value


def signed(value: int) -> int:
    """Return 32 bits as Java's int."""
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def java_hash(text: str) -> int:
    """Return String.hashCode(): a signed 32-bit integer."""
    return signed(unsigned_hash(text))


@lru_cache(maxsize=TAGS_CACHED_MAX)
def tags_code(tags: str | None) -> int:
    """Return the code in a ConsumeQueue unit; 0 without tags."""
    return java_hash(tags) if tags else 0


@lru_cache(maxsize=TAGS_CACHED_MAX)
def _head_hash(text: str) -> int:
    return unsigned_hash(text)


def index_hash(seed: int, key: str) -> int:
    """Return `unsigned_hash(key, seed)`, fast for consecutive keys.

    Keys that a client creates in sequence differ only in their last characters; the hash of the
    rest is cached.
    """
    length = len(key)
    if length <= TAIL_LENGTH or length >= POWERS_MAX or not key.isascii():
        return unsigned_hash(key, seed)
    a, b, c, d = key[-TAIL_LENGTH:].encode()
    tail: int = ((a * 31 + b) * 31 + c) * 31 + d
    head = _head_hash(key[:-TAIL_LENGTH]) * _TAIL_POWER
    return (seed * _POWERS[-1 - length] + head + tail) & 0xFFFFFFFF
