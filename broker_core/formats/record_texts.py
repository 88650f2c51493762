r"""Topics and properties of many records, joined in one array.

The sizes between them are overwritten, so that every property is between two \x02::

    | margin | \x02 topic \xff \x02 properties | \x02 topic \xff \x02 properties | \x02 margin |

Looking up a property in all records is then one comparison of the words before the \x01 signs, and
hashing a thousand keys is one product for each length.

Pure: no I/O. Any thread.
Source: the layout is from formats/record.py, the hashes from message/tags.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.formats.record_columns import at_any_place
from broker_core.message.names import KEY_SEPARATOR
from broker_core.message.tags import index_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.formats.record_columns import RecordBuffer, RecordColumns

    Ints = NDArray[np.int64]

HASHED_BYTES_MAX = 255
"""Longer words are hashed one at a time."""
_BLANK = KEY_SEPARATOR.encode()
_MARGIN = 16
_WORD = np.dtype(">u8")
_POWERS = np.array([pow(31, n, 1 << 32) for n in range(HASHED_BYTES_MAX, -1, -1)], np.uint32)
_TOPIC_POWERS = np.array(
    [pow(0x100000001B3, n, 1 << 64) for n in range(HASHED_BYTES_MAX, -1, -1)], np.uint64
)


class Pieces(NamedTuple):
    """Pieces of the array: the row of each, its start and its size in bytes."""

    rows: Ints
    starts: Ints
    sizes: Ints

    def first_odd_row(self, count: int) -> int:
        """Return the first row with an empty piece or two pieces; `count` if every row has one
        piece.
        """
        is_odd = self.sizes == 0
        is_odd[1:] |= self.rows[1:] == self.rows[:-1]
        return min(count, int(self.rows[int(is_odd.argmax())])) if is_odd.any() else count


class RecordTexts:
    """The texts of complete records of magic V1. Call `find_properties` before `values`."""

    def __init__(self, buffer: RecordBuffer, rows: RecordColumns) -> None:
        sizes = rows["end"] - rows["body_to"]
        self._starts = np.cumsum(sizes) - sizes + _MARGIN
        end = _MARGIN + int(sizes.sum())
        self._data = bytearray(end + 1 + _MARGIN)
        self._bytes = np.frombuffer(self._data, np.uint8)
        self._bytes[:_MARGIN] = 0xFF
        self._bytes[end:] = 0xFF
        self._data[end] = 2
        for size in _distinct(sizes):
            chosen = np.flatnonzero(sizes == size)
            kind = np.dtype(f"V{size}")
            pieces = at_any_place(buffer.data, kind)[rows["body_to"][chosen]]
            at_any_place(self._data, kind)[self._starts[chosen]] = pieces
        self._topic_sizes = rows["topic_to"] - rows["topic_from"]
        properties_from = self._starts + self._topic_sizes + 3
        self._bytes[self._starts] = 2
        self._bytes[properties_from - 2] = 0xFF
        self._bytes[properties_from - 1] = 2
        self._equal_signs: Ints = self._starts
        self._ends: Ints = self._starts
        self._words: NDArray[np.uint64] = np.empty(0, np.uint64)

    def first_row_with_zeros(self) -> int:
        """Return the first row whose topic or properties contain zeros, else the number of rows."""
        at = self._data.find(0)
        return len(self._starts) if at < 0 else int(self._rows_of(np.array([at]))[0])

    def find_properties(self) -> None:
        """Find the signs between names and values, and the words before them."""
        self._equal_signs = np.flatnonzero(self._bytes == 1)
        self._ends = np.flatnonzero(self._bytes == 2)
        words = at_any_place(self._data, _WORD)[self._equal_signs - _WORD.itemsize]
        self._words = words.astype(np.uint64)

    def values(self, name: bytes) -> Pieces:
        """Return the values of a property."""
        # The last eight bytes of (separator, name) are compared at once, earlier ones one by one.
        word = b"\x02" + name
        tail = word[-_WORD.itemsize :]
        unused = np.uint64(8 * (_WORD.itemsize - len(tail)))
        is_named = self._words << unused == np.uint64(int.from_bytes(tail, "big")) << unused
        chosen = self._equal_signs[is_named]
        for back in range(_WORD.itemsize + 1, len(word) + 1):
            chosen = chosen[self._bytes[chosen - back] == word[-back]]
        starts = chosen + 1
        ends = self._ends[np.searchsorted(self._ends, chosen)]
        return Pieces(self._rows_of(chosen), starts, ends - starts)

    def words(self, pieces: Pieces) -> list[tuple[int, str]]:
        """Return (row, text) of each piece."""
        columns = (column.tolist() for column in pieces)
        return [
            (row, self._data[start : start + size].decode("utf-8", "replace"))
            for row, start, size in zip(*columns, strict=True)
        ]

    def split(self, values: Pieces) -> Pieces:
        """Return the words of values in row order; few values have more than one."""
        of_rows, starts, sizes = values
        blanks = np.flatnonzero(self._bytes == _BLANK[0])
        several = np.flatnonzero(
            np.searchsorted(blanks, starts) != np.searchsorted(blanks, starts + sizes)
        )
        if not len(several):
            return values
        single = np.ones(len(of_rows), bool)
        single[several] = False
        found: list[tuple[int, int, int]] = list(
            zip(*(column[single].tolist() for column in values), strict=True)
        )
        for at in several.tolist():
            row, start = int(of_rows[at]), int(starts[at])
            for word in bytes(self._data[start : start + int(sizes[at])]).split(_BLANK):
                if word:
                    found.append((row, start, len(word)))
                start += len(word) + 1
        table = np.array(sorted(found), np.int64).reshape(-1, 3)
        return Pieces(table[:, 0], table[:, 1], table[:, 2])

    def hashes(self, pieces: Pieces, seeds: Ints) -> Ints:
        """Return Java's hashes modulo 2^32 of each seed's text followed by the piece."""
        _, starts, sizes = pieces
        hashes = np.zeros(len(starts), np.int64)
        for size in _distinct(sizes):
            chosen = np.flatnonzero(sizes == size)
            is_plain: NDArray[np.bool_] = np.zeros(len(chosen), bool)
            if size <= HASHED_BYTES_MAX:
                units = self._gather(starts[chosen], size)
                if units.max(initial=0) < 128:
                    is_plain[:] = True
                else:
                    is_plain = units.max(axis=1) < 128
                tails = units.astype(np.uint32) @ _POWERS[HASHED_BYTES_MAX + 1 - size :]
                factor = _POWERS[HASHED_BYTES_MAX - size]
                # 32-bit overflow, as in Java.
                hashes[chosen] = seeds[chosen].astype(np.uint32) * factor + tails
            for at in chosen[~is_plain].tolist():
                word = self._data[starts[at] : starts[at] + size].decode("utf-8", "replace")
                hashes[at] = index_hash(int(seeds[at]), word)
        return hashes

    def topics(self) -> tuple[list[bytes], Ints]:
        """Return the distinct topics, and for each row the number of its topic.

        The number is -1 if the topic's hash equals another's, which practically never happens.
        """
        topics: list[bytes] = []
        numbers = np.zeros(len(self._starts), np.int64)
        for size in _distinct(self._topic_sizes):
            chosen = np.flatnonzero(self._topic_sizes == size)
            names = self._gather(self._starts[chosen] + 1, size)
            if (names == names[0]).all():
                numbers[chosen] = len(topics)
                topics.append(bytes(names[0]))
                continue
            powers = _TOPIC_POWERS[HASHED_BYTES_MAX + 1 - size :]
            _, firsts, which = np.unique(
                names.astype(np.uint64) @ powers, return_index=True, return_inverse=True
            )
            is_equal = np.all(names == names[firsts][which], axis=1)
            numbers[chosen] = np.where(is_equal, which + len(topics), -1)
            topics += [bytes(names[first]) for first in firsts.tolist()]
        return topics, numbers

    def _rows_of(self, places: Ints) -> Ints:
        return np.searchsorted(self._starts, places, side="right") - 1

    def _gather(self, starts: Ints, size: int) -> NDArray[np.uint8]:
        """Return pieces of the same size, one per row."""
        if not size:
            return np.zeros((len(starts), 0), np.uint8)
        pieces = at_any_place(self._data, f"V{size}")[starts]
        return pieces.view(np.uint8).reshape(len(starts), size)


def _distinct(sizes: Ints) -> list[int]:
    """Return the distinct sizes, which are at most a few thousand."""
    return np.flatnonzero(np.bincount(sizes)).tolist()
