"""Check the checksums of many bodies together.

`zlib.crc32` holds the interpreter lock for data shorter than 5 KiB, so checking body by body in
another thread would gain nothing. Instead, bodies of similar size are copied into a table,
right-aligned after zeros, and one call checks the whole table. A CRC without its first and last
inversion is linear: leading zeros don't change it, and the CRC of the table is the exclusive or of
the CRCs of its rows, each advanced by the number of zeros that follow the row.

A record keeps 31 bits of its body's CRC. The missing bit is computed: each bit of a CRC is the
parity of the bits of the body that a mask selects, and the mask is the same for all bodies whose
ends are aligned.

A single wrong body is always found; several together are missed once in 2^31 cases.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from broker_core.formats.record import CRC_MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Words = NDArray[np.uint32]

BODY_SIZE_MAX = 2048
"""Longer bodies are checked one by one, because the table would cost more than the lock."""
ROWS_MIN = 64
"""Minimum number of bodies of one width for which a table pays off."""
_ALL = 0xFFFFFFFF
_TOP = 0x8000_0000
_ALIGNED = 8
WIDTH_MIN = 32


def widths() -> list[int]:
    """Return the widths of tables, each an eighth wider than the previous one."""
    found = [WIDTH_MIN]
    while found[-1] < BODY_SIZE_MAX:
        found.append(align(found[-1] + max(found[-1] // 8, 1)))
    return found


def align(size: int) -> int:
    """Return a size rounded up to the alignment of tables."""
    return size + -size % _ALIGNED


WIDTHS = np.array(widths(), np.int64)


def count_whole(data: bytearray, starts: Ints, ends: Ints, crcs: Ints) -> int:
    """Return the number of bodies before the first with a wrong CRC."""
    sizes = ends - starts
    classes = np.searchsorted(WIDTHS, sizes)
    classes[sizes > BODY_SIZE_MAX] = len(WIDTHS)
    singles = [np.flatnonzero(classes == len(WIDTHS))]
    for number in np.flatnonzero(np.bincount(classes)[: len(WIDTHS)]).tolist():
        members = np.flatnonzero(classes == number)
        first = int(sizes[members[0]])
        is_even = bool((sizes[members] == first).all())
        width = max(align(first), WIDTH_MIN) if is_even else int(WIDTHS[number])
        fits = ends[members] >= width
        if len(members) >= ROWS_MIN and not fits.all():
            singles.append(members[~fits])
            members = members[fits]
        places = starts[members], ends[members]
        if len(members) < ROWS_MIN or not are_whole(data, *places, width, crcs[members]):
            singles.append(members)
    rest = np.sort(np.concatenate(singles))
    with memoryview(data) as view:
        found = np.array(
            [
                crc32(view[start:end])
                for start, end in zip(starts[rest].tolist(), ends[rest].tolist(), strict=True)
            ],
            np.int64,
        )
    # An empty body has no CRC.
    is_wrong = (found & CRC_MASK != crcs[rest]) & (sizes[rest] > 0)
    return int(rest[is_wrong.argmax()]) if is_wrong.any() else len(starts)


def are_whole(data: bytearray, starts: Ints, ends: Ints, width: int, crcs: Ints) -> bool:
    """Return whether bodies of data, all at most `width` long, have the CRCs of their records.

    The data before the first body must be at least as long as the table is wider than that body.
    """
    sizes = ends - starts
    pieces = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    table = pieces[ends - width].view(np.uint8).reshape(len(starts), width)
    strange = width - int(sizes.min())
    if strange == width - int(sizes.max()):
        table[:, :strange] = 0
    else:
        table[:, :strange] *= np.arange(strange) >= (width - sizes)[:, None]
    found = crc32(table.data, _ALL) ^ _ALL
    marked = table.view(np.uint64) & _top_mask(width)
    tops = _parity(np.bitwise_xor.reduce(marked, axis=1))
    zeros = _crcs_of_zeros()[sizes]
    expected = (crcs.astype(np.uint32) ^ zeros) & np.uint32(CRC_MASK) | tops << np.uint32(31)
    return _of_table(expected, width) == found


def _parity(words: NDArray[np.uint64]) -> Words:
    for bits in (32, 16, 8, 4, 2, 1):
        words = words ^ words >> np.uint64(bits)
    return (words & np.uint64(1)).astype(np.uint32)


def _of_table(rows: Words, width: int) -> int:
    """Return the linear CRC of a table, given the CRCs of its rows."""
    level = 0
    while len(rows) > 1:
        if len(rows) % 2:
            # A row of zeros at the top doesn't change the CRC.
            rows = np.concatenate([np.zeros(1, np.uint32), rows])
        rows = _shift(rows[0::2], _tables(width, level)) ^ rows[1::2]
        level += 1
    return int(rows[0])


def _shift(words: Words, tables: NDArray[np.uint32]) -> Words:
    moved: Words = tables[0][words & np.uint32(0xFF)]
    for place in (1, 2, 3):
        moved = moved ^ tables[place][words >> np.uint32(8 * place) & np.uint32(0xFF)]
    return moved


@functools.lru_cache(1024)
def _tables(width: int, level: int) -> NDArray[np.uint32]:
    """Return four tables, one per byte, that advance a linear CRC by width * 2^level zeros."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if level:
        half = _tables(width, level - 1)
        columns = _shift(_shift(bits, half), half)
    else:
        zeros = bytes(width)
        moved = [crc32(zeros, bit ^ _ALL) ^ _ALL for bit in bits.tolist()]
        columns = np.array(moved, np.uint32)
    tables = np.zeros((4, 256), np.uint32)
    for place in range(4):
        for bit in range(8):
            size = 1 << bit
            tables[place, size : 2 * size] = tables[place, :size] ^ columns[8 * place + bit]
    return tables


@functools.cache
def _crcs_of_zeros() -> Words:
    """Return the CRCs of runs of zeros, by length."""
    crcs = [0]
    for _ in range(int(WIDTHS[-1])):
        crcs.append(crc32(b"\0", crcs[-1]))
    return np.array(crcs, np.uint32)


@functools.lru_cache(64)
def _top_mask(width: int) -> NDArray[np.uint64]:
    """Return the mask of a row's bits whose parity is the first bit of its linear CRC."""
    return np.ascontiguousarray(_longest_mask()[-width:]).view(np.uint64)


@functools.cache
def _longest_mask() -> NDArray[np.uint8]:
    size = int(WIDTHS[-1])
    mask = bytearray(size)
    for bit in range(8):
        word = crc32(bytes((1 << bit,)), _ALL) ^ _ALL
        for place in range(size - 1, -1, -1):
            if word & _TOP:
                mask[place] |= 1 << bit
            word = crc32(b"\0", word ^ _ALL) ^ _ALL
    return np.frombuffer(mask, np.uint8)
