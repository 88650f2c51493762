"""Points as bytes: repeated rows are referenced, the others are packed, then zlib compresses all.

::

    version u8 | columns u16 | slots u16 | first u64 | columns x (code u8, part u16)
    then zlib of: for each of the 3 x columns rows a tag u8, and
        CONSTANT  i64
        SAME      u16, the row that it equals
        PACKED    i64 base | width u8 | low bytes of all slots, then the next higher bytes, ...
        STEPS     the same, of the differences from slot to slot (the first is that from base)

All numbers are little-endian. A row's unknown slots repeat the numbers of the slot before, which
packs well; their weight of 0 marks them as unknown.
"""

from __future__ import annotations

import functools
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from console.observe.history.metrics import Column
from console.observe.history.points import MAX, MISSING, SUM, WEIGHT, Points

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

VERSION = 1
LEVEL = 6
CONSTANT, SAME, PACKED, STEPS = range(4)
COLUMNS_CACHED = 1_000
"""Most subjects of a kind have the same columns."""
_HEAD = struct.Struct("<BHHq")
_COLUMN = struct.Struct("<BH")
_BASE = struct.Struct("<q")
_REFERENCE = struct.Struct("<H")


class CodecError(ValueError):
    """The bytes aren't valid points; the text says why."""


def encode(points: Points) -> bytes:
    """Return the points as bytes, without unknown slots at either end."""
    known = np.flatnonzero(points.table[WEIGHT].any(axis=0))
    low, high = (int(known[0]), int(known[-1]) + 1) if len(known) else (0, 0)
    table = points.table[:, :, low:high]
    head = _HEAD.pack(VERSION, len(points.columns), high - low, points.first + low)
    columns = _columns(points.columns)
    unknown = table[WEIGHT] == 0
    if unknown.any():
        table = table.copy()
        table[MAX][unknown] = 0
        table[SUM][unknown] = 0
        # Fill the holes: position of the last known slot at or before each.
        last = np.maximum.accumulate(np.where(unknown, 0, np.arange(table.shape[2])), axis=1)
        for which in (SUM, MAX):
            table[which] = np.take_along_axis(table[which], last, axis=1)
    rows = table.reshape(-1, table.shape[2]) if high > low else table.reshape(0, 0)
    return head + columns + zlib.compress(_rows(rows), LEVEL)


@functools.lru_cache(COLUMNS_CACHED)
def _columns(columns: tuple[Column, ...]) -> bytes:
    return b"".join(_COLUMN.pack(*column) for column in columns)


@functools.lru_cache(COLUMNS_CACHED)
def _columns_of(data: bytes) -> tuple[Column, ...]:
    return tuple(Column(*each) for each in _COLUMN.iter_unpack(data))


def _rows(rows: Ints) -> bytes:
    """Return all rows, computing the ranges of all of them at once."""
    if not len(rows):
        return b""
    lows, highs = rows.min(axis=1).tolist(), rows.max(axis=1).tolist()
    seen: dict[object, int] = {}
    parts = []
    for index, (low, high) in enumerate(zip(lows, highs, strict=True)):
        is_constant = low == high
        same = seen.setdefault(low if is_constant else rows[index].tobytes(), index)
        if same != index:
            parts.append(b"\x01" + _REFERENCE.pack(same))
        elif is_constant:
            parts.append(b"\x00" + _BASE.pack(low))
        else:
            parts.append(_row(rows[index], low, high))
    return b"".join(parts)


def _row(row: Ints, low: int, high: int) -> bytes:
    steps = row[1:] - row[:-1]
    step_low, step_high = int(steps.min()), int(steps.max())
    # Noise packs better as values, growing figures as steps, so compare their ranges.
    if step_high - step_low < high - low:
        every = np.empty_like(row)
        every[0] = step_low
        every[1:] = steps
        base = _BASE.pack(int(row[0]) - step_low)
        return (
            b"\x03" + base + _BASE.pack(step_low) + _planes(every - step_low, step_high - step_low)
        )
    return b"\x02" + _BASE.pack(low) + _planes(row - low, high - low)


def _planes(values: Ints, span: int) -> bytes:
    width = max(1, (span.bit_length() + 7) // 8)
    planes = values.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    return bytes((width,)) + planes.T.tobytes()


def decode(data: bytes) -> Points:
    """Return the points.

    Raises:
        CodecError: the bytes weren't produced by `encode`.
    """
    try:
        version, column_count, slots, first = _HEAD.unpack_from(data)
        if version != VERSION:
            raise CodecError(f"version {version} is unknown")
        at = _HEAD.size
        end = at + column_count * _COLUMN.size
        columns = _columns_of(data[at:end])
        if len(columns) != column_count:
            raise CodecError("columns are missing")
        body = zlib.decompress(data[end:])
        table = np.empty((3 * column_count, slots), dtype=np.int64)
        if slots:
            _fill(table, body)
    except (struct.error, zlib.error, ValueError, IndexError) as error:
        raise CodecError(f"a block can't be read: {error}") from error
    table = table.reshape(3, column_count, slots)
    unknown = table[WEIGHT] == 0
    table[SUM][unknown] = 0
    table[MAX][unknown] = MISSING
    return Points(first, columns, table)


def _fill(table: Ints, body: bytes) -> None:
    at = 0
    slots = table.shape[1]
    for index in range(len(table)):
        tag = body[at]
        at += 1
        if tag == SAME:
            (same,) = _REFERENCE.unpack_from(body, at)
            if same >= index:
                raise CodecError(f"row {index} equals row {same}")
            table[index] = table[same]
            at += _REFERENCE.size
            continue
        (base,) = _BASE.unpack_from(body, at)
        at += _BASE.size
        if tag == CONSTANT:
            table[index] = base
            continue
        step = 0
        if tag == STEPS:
            (step,) = _BASE.unpack_from(body, at)
            at += _BASE.size
        elif tag != PACKED:
            raise CodecError(f"row {index} has tag {tag}")
        width = body[at]
        if not 1 <= width <= 8:
            raise CodecError(f"row {index} is {width} bytes wide")
        at += 1
        planes = np.zeros((slots, 8), dtype=np.uint8)
        flat = np.frombuffer(body, np.uint8, width * slots, at)
        planes[:, :width] = flat.reshape(width, slots).T
        at += width * slots
        values = planes.view("<i8").reshape(-1)
        table[index] = np.cumsum(values + step) + base if tag == STEPS else values + base
