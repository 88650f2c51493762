"""Properties of many records at once: the map, the tags, the keys, the unique key.

Pure: no I/O. Thread-safe.

Invariant: equals `message.properties.decode` of each text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.message import names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from analytics.store.bulk import Bulk

    Ints = NDArray[np.int64]

MAP_TYPE = pa.map_(pa.string(), pa.string())
KEYS_TYPE = pa.list_(pa.string())


class Properties:
    """The properties of the records of one batch, in order."""

    def __init__(self, bulk: Bulk, data: NDArray[np.uint8], starts: Ints, ends: Ints) -> None:
        """Set the start and end of each record's text."""
        self._count = len(starts)
        self._bulk = bulk
        self._pairs = bulk.pairs(data, starts, ends)

    def as_map(self) -> pa.Array:
        """Return a map for each record, empty without properties."""
        pairs = self._pairs
        offsets = np.zeros(self._count + 1, dtype=np.int32)
        np.cumsum(np.bincount(pairs.rows, minlength=self._count), out=offsets[1:])
        names_of = self._bulk.pieces(pairs.data, pairs.names_from, pairs.names_to)
        values = self._bulk.pieces(pairs.data, pairs.names_to + 1, pairs.ends)
        return pa.MapArray.from_arrays(pa.array(offsets), as_text(names_of), as_text(values))

    def value(self, name: str) -> pa.Array:
        """Return the value of one property for each record, null if it isn't set."""
        pairs = self._pairs
        if name.encode() not in pairs.distinct:
            return pa.nulls(self._count, pa.string())
        found = np.flatnonzero(pairs.codes == pairs.distinct.index(name.encode()))
        texts = as_text(self._bulk.pieces(pairs.data, pairs.names_to[found] + 1, pairs.ends[found]))
        if len(found) == self._count:
            return texts
        places = np.full(self._count, -1, dtype=np.int64)
        places[pairs.rows[found]] = np.arange(len(found))
        return texts.take(pa.array(places, mask=places < 0))

    def keys(self) -> pa.Array:
        """Return the list of keys of each record, null without keys."""
        texts = self.value(names.PROPERTY_KEYS)
        if not texts.null_count and not _has_whitespace(texts):
            # The usual case: each record has one key.
            offsets = pa.array(np.arange(len(texts) + 1, dtype=np.int32))
            return pa.ListArray.from_arrays(offsets, texts).cast(KEYS_TYPE)
        texts = pc.ascii_trim_whitespace(texts)
        texts = pc.if_else(pc.equal(texts, ""), None, texts)
        return pc.ascii_split_whitespace(texts).cast(KEYS_TYPE)


def _has_whitespace(texts: pa.Array) -> bool:
    """Return whether any text has an ASCII white space byte; there must be no nulls."""
    _, _, data = texts.buffers()
    found = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    # Tab to carriage return, and space; bytes below tab wrap around.
    return bool(((found - ord("\t") < 5) | (found == ord(" "))).any())


def as_text(values: pa.Array) -> pa.Array:
    """Return binary values as text; invalid UTF-8 becomes replacement characters."""
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
