"""Bulk operations of the decoder on all records of a buffer, in two implementations.

The compiled implementation (`broker_core/native/records.pyx`) is used if it was built. The other
uses numpy and Arrow and works everywhere, for example where only the wheel for Spark is installed.
`TREBUCHET_NATIVE=0` selects the numpy implementation.

Pure: no I/O. Thread-safe.

Invariant: both implementations return the same result for any bytes. If a record's parts don't add
up, only its head is read.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from broker_core.formats import record, record_columns
from broker_core.formats.record_columns import RecordBuffer, RecordColumns, Walk
from broker_core.message import properties

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.native.loading import NativeRecords

    Ints = NDArray[np.int64]
    Truths = NDArray[np.bool_]
    Bytes = NDArray[np.uint8]

# Up to this many properties per record are found in one pass, more in two.
PAIRS_EXPECTED = 8
# Up to this many cells, repeated pairs are found by marking instead of sorting.
CELLS_MAX = 1 << 24
_BETWEEN_PAIRS = ord(properties.PROPERTY_SEPARATOR)
_BETWEEN_NAME_AND_VALUE = ord(properties.NAME_VALUE_SEPARATOR)


class Columns(Protocol):
    """Records as columns: see `record_columns.RecordColumns`."""

    is_whole: Truths

    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> Ints: ...
    def keep(self, kept: Truths) -> None: ...


class Pairs(NamedTuple):
    """The non-empty properties of some records, the last of each name in a record.

    For each property: its record's number, where in `data` its name begins and ends, and where its
    value ends; `codes` are indices of the names in `distinct`.
    """

    data: Bytes
    rows: Ints
    names_from: Ints
    names_to: Ints
    ends: Ints
    codes: Ints
    distinct: list[bytes]

    def select(self, kept: Truths) -> Pairs:
        """Return the pairs for which `kept` is true."""
        columns = (self.rows, self.names_from, self.names_to, self.ends, self.codes)
        rows, names_from, names_to, ends, codes = (column[kept] for column in columns)
        return Pairs(self.data, rows, names_from, names_to, ends, codes, self.distinct)


class Bulk(Protocol):
    """One implementation. Starts and ends are ascending buffer positions, without overlap."""

    def walk(self, buffer: RecordBuffer, position: int, limit: int) -> Walk:
        """Return the result of `record_columns.walk`."""

    def columns(self, buffer: RecordBuffer, positions: Ints) -> Columns:
        """Return complete records, found by a walk, as columns."""

    def pieces(self, data: Bytes, starts: Ints, ends: Ints) -> pa.Array:
        """Return the bytes between each start and end as binary values."""

    def encoded(self, data: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, list[bytes]]:
        """Return the distinct byte strings between starts and ends, and an index into them for
        each.
        """

    def pairs(self, data: Bytes, starts: Ints, ends: Ints) -> Pairs:
        """Return the properties in the texts between each start and end."""

    def wrong_checksums(self, data: Bytes, starts: Ints, ends: Ints, stated: Ints) -> list[int]:
        """Return the indices of the bodies whose checksum is wrong."""


class NumpyBulk:
    """The implementation that needs only numpy and Arrow."""

    def walk(self, buffer: RecordBuffer, position: int, limit: int) -> Walk:
        return record_columns.walk(buffer, position, limit)

    def columns(self, buffer: RecordBuffer, positions: Ints) -> Columns:
        return RecordColumns(buffer, positions)

    def pieces(self, data: Bytes, starts: Ints, ends: Ints) -> pa.Array:
        """See `Bulk`.

        The buffer becomes one Arrow array whose values are alternately a piece and the gap after
        it; taking every second value copies each piece once, in C++.
        """
        count = len(starts)
        if not count:
            return pa.array([], type=pa.binary())
        offsets = np.empty(2 * count, dtype=np.int32)
        offsets[0::2] = starts
        offsets[1::2] = ends
        both = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))

    def encoded(self, data: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, list[bytes]]:
        found = self.pieces(data, starts, ends).dictionary_encode()
        codes = found.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, found.dictionary.to_pylist()

    def pairs(self, data: Bytes, starts: Ints, ends: Ints) -> Pairs:
        texts = self.pieces(data, starts, ends)
        _, offsets_buffer, data_buffer = texts.buffers()
        none = np.zeros(0, dtype=np.int64)
        if data_buffer is None or not data_buffer.size:
            return Pairs(np.zeros(0, dtype=np.uint8), none, none, none, none, none, [])
        within = np.frombuffer(data_buffer, np.uint8)
        offsets = np.frombuffer(offsets_buffer, np.int32, len(texts) + 1).astype(np.int64)
        columns = _pairs(within[: offsets[-1]], offsets)
        _, names_from, names_to, _ = columns
        found = Pairs(within, *columns, *self.encoded(within, names_from, names_to))
        return _without_repeated(found, len(texts))

    def wrong_checksums(self, data: Bytes, starts: Ints, ends: Ints, stated: Ints) -> list[int]:
        # Each step of this chain is C: a Python loop would cost more per body than its checksum.
        bodies = map(data.data.__getitem__, map(slice, starts.tolist(), ends.tolist()))
        computed = np.fromiter(map(zlib.crc32, bodies), np.int64, len(starts))
        is_wrong = (computed & record.CRC_MASK != stated) & (starts < ends)
        wrong: list[int] = np.flatnonzero(is_wrong).tolist()
        return wrong


class CompiledBulk:
    """The compiled implementation, which creates no object per record and releases the GIL."""

    def __init__(self, native: NativeRecords) -> None:
        self._native = native

    def walk(self, buffer: RecordBuffer, position: int, limit: int) -> Walk:
        found = np.empty((limit - position) // record.OVERHEAD_V4, dtype=np.int64)
        count, at = self._native.walk(buffer.data, position, limit, found)
        is_there = limit - at >= record.BLANK.size
        size, magic = record.BLANK.unpack_from(buffer.data, at) if is_there else (0, 0)
        return Walk(found[:count], at, size, magic)

    def columns(self, buffer: RecordBuffer, positions: Ints) -> Columns:
        return _CompiledColumns(self._native, buffer, positions)

    def pieces(self, data: Bytes, starts: Ints, ends: Ints) -> pa.Array:
        offsets = np.empty(len(starts) + 1, dtype=np.int32)
        copied = np.empty(int((ends - starts).sum()), dtype=np.uint8)
        self._native.gather(data.data, starts, ends, offsets, copied)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(copied)]
        return pa.Array.from_buffers(pa.binary(), len(starts), buffers)

    def encoded(self, data: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, list[bytes]]:
        codes, firsts = np.empty((2, len(starts)), dtype=np.int64)
        count = self._native.encode(data.data, starts, ends, codes, firsts)
        distinct = [
            data[start:end].tobytes()
            for start, end in zip(
                starts[firsts[:count]].tolist(), ends[firsts[:count]].tolist(), strict=True
            )
        ]
        return codes, distinct

    def pairs(self, data: Bytes, starts: Ints, ends: Ints) -> Pairs:
        columns = np.empty((4, PAIRS_EXPECTED * len(starts)), dtype=np.int64)
        count = self._native.pairs(data.data, starts, ends, *columns)
        if count > columns.shape[1]:
            columns = np.empty((4, count), dtype=np.int64)
            self._native.pairs(data.data, starts, ends, *columns)
        rows, names_from, names_to, value_ends = columns[:, :count]
        codes, distinct = self.encoded(data, names_from, names_to)
        found = Pairs(data, rows, names_from, names_to, value_ends, codes, distinct)
        kept = np.empty(count, dtype=np.bool_)
        if self._native.last_of_each(rows, codes, len(distinct), kept.view(np.uint8)):
            return found.select(kept)
        return found

    def wrong_checksums(self, data: Bytes, starts: Ints, ends: Ints, stated: Ints) -> list[int]:
        wrong = np.empty(len(starts), dtype=np.bool_)
        if not self._native.wrong_checksums(data.data, starts, ends, stated, wrong.view(np.uint8)):
            return []
        indices: list[int] = np.flatnonzero(wrong).tolist()
        return indices


class _CompiledColumns:
    """All columns of records, read in one pass; dropped rows stay in memory."""

    def __init__(self, native: NativeRecords, buffer: RecordBuffer, positions: Ints) -> None:
        self.is_whole: Truths = np.empty(len(positions), dtype=np.bool_)
        self._numbers = {name: number for number, name in enumerate(native.COLUMNS)}
        self._all = np.empty((len(native.COLUMNS), len(positions)), dtype=np.int64)
        self._kept: Ints | None = None
        self._found: dict[str, Ints] = {}
        native.read(buffer.data, positions, self._all, self.is_whole.view(np.uint8))

    def __len__(self) -> int:
        return len(self.is_whole)

    def __getitem__(self, name: str) -> Ints:
        column: Ints = self._all[self._numbers[name]]
        if self._kept is None:
            return column
        if name not in self._found:
            self._found[name] = column[self._kept]
        return self._found[name]

    def keep(self, kept: Truths) -> None:
        """Keep the rows where `kept` is true."""
        if kept.all():
            return
        self._kept = np.flatnonzero(kept) if self._kept is None else self._kept[kept]
        self.is_whole = self.is_whole[kept]
        self._found.clear()


@lru_cache
def chosen() -> Bulk:
    """Return the compiled implementation if it is built and enabled, otherwise NumpyBulk."""
    try:
        from broker_core.native.loading import load_records
    except ImportError:  # pragma: no cover - the wheel for Spark has no compiled code
        return NumpyBulk()
    native = load_records()
    return NumpyBulk() if native is None else CompiledBulk(native)


def _pairs(data: Bytes, offsets: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return record, name start, name end and value end of each non-empty pair."""
    between = np.flatnonzero(data == _BETWEEN_PAIRS)
    equals = np.flatnonzero(data == _BETWEEN_NAME_AND_VALUE)
    is_empty = offsets[:-1] == offsets[1:]
    # Two ascending runs each, which a stable sort merges.
    starts = np.sort(np.concatenate([offsets[:-1][~is_empty], between + 1]), kind="stable")
    ends = np.sort(np.concatenate([between, offsets[1:][~is_empty]]), kind="stable")
    at = np.searchsorted(equals, starts)
    equal = np.where(at < len(equals), np.append(equals, -1)[np.minimum(at, len(equals))], -1)
    kept = (equal > starts) & (equal < ends - 1)
    starts, ends, equal = starts[kept], ends[kept], equal[kept]
    rows = np.searchsorted(offsets, starts, side="right") - 1
    return rows, starts, equal, ends


def _without_repeated(pairs: Pairs, count: int) -> Pairs:
    """Return the last of several pairs with the same record and name."""
    both = pairs.rows * max(1, len(pairs.distinct)) + pairs.codes
    cells = count * len(pairs.distinct)
    if cells <= CELLS_MAX:
        is_there = np.zeros(cells, dtype=bool)
        is_there[both] = True
        if np.count_nonzero(is_there) == len(both):
            return pairs
    _, last_from_end = np.unique(both[::-1], return_index=True)
    if len(last_from_end) == len(both):
        return pairs
    kept = np.zeros(len(both), dtype=bool)
    kept[len(both) - 1 - last_from_end] = True
    return pairs.select(kept)
