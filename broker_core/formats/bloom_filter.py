"""Bloom filter of consumer filters: the bits of a message's bitmap that represent a group.

A bitmap has 112 bits with the default error rate and number of consumers; bit p is bit p % 8 of
byte p // 8. A group sets three bits, computed from one MurmurHash3 (x64, 128 bits, seed 0) of
"group#topic": h1 is the low half of the hash's first 64 bits, h2 the high half, and position i
(from 1) is h1 + i * h2 in 32 bits, inverted when negative, modulo the number of bits.

Source: filter/util/BloomFilter.java (4.9.7), com.google.common.hash.Murmur3_128HashFunction.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MASK32 = (1 << 32) - 1
_MASK64 = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_BLOCK = struct.Struct("<QQ")


class BloomFilter:
    """The bitmap size and each group's bits. Any thread; holds no state.

    Attributes:
        bit_num: number of bits in a bitmap, a multiple of 8.
        hash_num: number of bits that a group sets.
    """

    def __init__(self, error_rate: int, consumers: int) -> None:
        """Size bitmaps for an error rate in percent (1 to 99) and a number of consumers."""
        rate = error_rate / 100
        # The logarithms and their order match Java's: different rounding would give another size.
        self.hash_num = math.ceil(math.log(rate) / math.log(0.5))
        doubling = math.log(1 / rate) / math.log(2)
        bits = math.ceil(consumers * doubling * (math.log(math.e) / math.log(2)))
        self.bit_num = 8 * math.ceil(bits / 8)

    def positions(self, consumer_group: str, topic: str) -> list[int]:
        """Return the bits of a group's filter on a topic; some may be equal."""
        hash64 = murmur3_128(f"{consumer_group}#{topic}".encode()) & _MASK64
        low, high = hash64 & _MASK32, hash64 >> 32
        positions = []
        for i in range(1, self.hash_num + 1):
            combined = (low + i * high) & _MASK32
            if combined >> 31:
                combined ^= _MASK32
            positions.append(combined % self.bit_num)
        return positions

    def bit_map(self, positions: Iterable[int]) -> bytes:
        """Return a bitmap with these bits set."""
        bits = 0
        for position in positions:
            bits |= 1 << position
        return bits.to_bytes(self.bit_num // 8, "little")


def murmur3_128(data: bytes) -> int:
    """Return the hash; its first half is in the low 64 bits."""
    h1 = h2 = 0
    whole = len(data) & ~15
    for k1, k2 in _BLOCK.iter_unpack(data[:whole]):
        h1 ^= _mix_first(k1)
        h1 = (_rotate(h1, 27) + h2) & _MASK64
        h1 = (h1 * 5 + 0x52DCE729) & _MASK64
        h2 ^= _mix_second(k2)
        h2 = (_rotate(h2, 31) + h1) & _MASK64
        h2 = (h2 * 5 + 0x38495AB5) & _MASK64
    if whole != len(data):
        k1, k2 = _BLOCK.unpack(data[whole:].ljust(16, b"\0"))
        h1 ^= _mix_first(k1)
        h2 ^= _mix_second(k2)
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK64
    h2 = (h2 + h1) & _MASK64
    h1, h2 = _final(h1), _final(h2)
    h1 = (h1 + h2) & _MASK64
    h2 = (h2 + h1) & _MASK64
    return h2 << 64 | h1


def _mix_first(k1: int) -> int:
    return _rotate(k1 * _C1 & _MASK64, 31) * _C2 & _MASK64


def _mix_second(k2: int) -> int:
    return _rotate(k2 * _C2 & _MASK64, 33) * _C1 & _MASK64


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK64


def _final(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK64
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK64
    return value ^ value >> 33
