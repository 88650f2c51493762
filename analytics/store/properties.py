"""Properties of many records at once: the map, the tags, the keys, the unique key.

The separators are found in all texts together; a key or a value is then a piece of the same buffer.

Pure: no I/O. Any thread.

Invariant: equals `broker_core.message.properties.decode` of each text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.message import names, properties

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MAP_TYPE = pa.map_(pa.string(), pa.string())
KEYS_TYPE = pa.list_(pa.string())
# As long as they are so few, whether a pair repeats is marked instead of sorted for.
CELLS_MAX = 1 << 24
_BETWEEN_PAIRS = ord(properties.PROPERTY_SEPARATOR)
_BETWEEN_NAME_AND_VALUE = ord(properties.NAME_VALUE_SEPARATOR)


class Properties:
    """The properties of the records of one batch, in their order."""

    def __init__(self, texts: pa.Array) -> None:
        """Take one binary value for each record."""
        self._count = len(texts)
        self._rows, names_from, names_to, ends, data = _pairs(texts)
        self._names = pieces(data, names_from, names_to)
        self._values = as_text(pieces(data, names_to + 1, ends))
        encoded = self._names.dictionary_encode()
        self._codes: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self._distinct: list[bytes] = encoded.dictionary.to_pylist()
        self._drop_repeated()

    def as_map(self) -> pa.Array:
        """Return a map for each record, empty for one without properties."""
        offsets = np.zeros(self._count + 1, dtype=np.int32)
        np.cumsum(np.bincount(self._rows, minlength=self._count), out=offsets[1:])
        return pa.MapArray.from_arrays(pa.array(offsets), as_text(self._names), self._values)

    def value(self, name: str) -> pa.Array:
        """Return the value of one property for each record, null where it is not set."""
        places = np.full(self._count, -1, dtype=np.int64)
        if name.encode() in self._distinct:
            found = np.flatnonzero(self._codes == self._distinct.index(name.encode()))
            places[self._rows[found]] = found
        return self._values.take(pa.array(places, mask=places < 0))

    def keys(self) -> pa.Array:
        """Return the list of keys of each record, null where it has none."""
        texts = pc.ascii_trim_whitespace(self.value(names.PROPERTY_KEYS))
        texts = pc.if_else(pc.equal(texts, ""), None, texts)
        return pc.ascii_split_whitespace(texts).cast(KEYS_TYPE)

    def _drop_repeated(self) -> None:
        """Keep the last of several pairs of one record with one name."""
        both = self._rows * max(1, len(self._distinct)) + self._codes
        cells = self._count * len(self._distinct)
        if cells <= CELLS_MAX:
            is_there = np.zeros(cells, dtype=bool)
            is_there[both] = True
            if np.count_nonzero(is_there) == len(both):
                return
        _, last_from_end = np.unique(both[::-1], return_index=True)
        if len(last_from_end) == len(both):
            return
        kept = np.sort(len(both) - 1 - last_from_end)
        self._rows, self._codes = self._rows[kept], self._codes[kept]
        self._names, self._values = self._names.take(kept), self._values.take(kept)


def pieces(data: NDArray[np.uint8] | memoryview, starts: Ints, ends: Ints) -> pa.Array:
    """Return the bytes between each start and end, which ascend, as binary values.

    The buffer is seen as one Arrow array whose values are, in turn, a piece and the gap before the
    next; taking every second copies each piece once, in C++.
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


def as_text(values: pa.Array) -> pa.Array:
    """Return binary values as text; bytes that are no UTF-8 become replacement characters."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [
                None if value is None else value.decode("utf-8", "replace")
                for value in values.to_pylist()
            ],
            type=pa.string(),
        )


def _pairs(texts: pa.Array) -> tuple[Ints, Ints, Ints, Ints, NDArray[np.uint8]]:
    """Return of each pair with a name and a value: record, name from and to, value's end."""
    none = np.zeros(0, dtype=np.int64)
    if not len(texts):
        return none, none, none, none, np.zeros(0, dtype=np.uint8)
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(texts) + 1, 4 * texts.offset)
    offsets = offsets.astype(np.int64)
    if data_buffer is None or offsets[0] == offsets[-1]:
        return none, none, none, none, np.zeros(0, dtype=np.uint8)
    data = np.frombuffer(data_buffer, np.uint8)[: offsets[-1]]
    within = data[offsets[0] :]
    between = np.flatnonzero(within == _BETWEEN_PAIRS) + offsets[0]
    equals = np.flatnonzero(within == _BETWEEN_NAME_AND_VALUE) + offsets[0]
    is_empty = offsets[:-1] == offsets[1:]
    # Two ascending runs each, which a stable sort merges.
    starts = np.sort(np.concatenate([offsets[:-1][~is_empty], between + 1]), kind="stable")
    ends = np.sort(np.concatenate([between, offsets[1:][~is_empty]]), kind="stable")
    at = np.searchsorted(equals, starts)
    equal = np.where(at < len(equals), np.append(equals, -1)[np.minimum(at, len(equals))], -1)
    kept = (equal > starts) & (equal < ends - 1)
    starts, ends, equal = starts[kept], ends[kept], equal[kept]
    rows = np.searchsorted(offsets, starts, side="right") - 1
    return rows, starts, equal, ends, data
