"""The IndexFile: keys to CommitLog offsets, as a hash table with chains.

Big-endian::

    +-----------------+------------------------+-------------------------+
    | header, 40      | slots, 4 each          | entries, 20 each        |
    +-----------------+------------------------+-------------------------+

    header   begin timestamp i8 | end timestamp i8 | begin offset i8 | end offset i8 |
             used slots i4 | count i4
    slot     number of the newest entry of its chain, 0 if empty
    entry    key hash i4 | offset in log i8 | seconds since begin i4 | number of previous entry i4

Entries are numbered from 1; count is the number of the next entry (1 in an empty file). A key is
topic#UNIQ_KEY or topic#(one word of KEYS); its hash is Java's, made non-negative.

Source: store/index/IndexFile.java, IndexHeader.java (4.9.8).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap

    import numpy as np
    from numpy.typing import NDArray

    Waiting = tuple[int, str | None, str | None, int, int]
    """A message to index: seed, UNIQ_KEY, KEYS, offset in the log, store timestamp. The seed is the
    hash
    of its topic with a "#".
    """
    WriteEntries = Callable[
        [mmap | bytearray, list[Waiting], int, int, int, int], tuple[int, int, int, int] | None
    ]
    """The native turn's writer. Arguments: file, messages, maximum slots, maximum entries, number
    of the first new entry, begin timestamp. See native/index.pxi.
    """

HEADER = struct.Struct(">qqqqii")
HEADER_SIZE = 40
SLOT = struct.Struct(">i")
SLOT_SIZE = 4
ENTRY = struct.Struct(">iqii")
ENTRY_SIZE = 20
SECONDS_MAX = 0x7FFFFFFF

assert HEADER.size == HEADER_SIZE
assert SLOT.size == SLOT_SIZE
assert ENTRY.size == ENTRY_SIZE


def file_size(hash_slot_num: int, index_num: int) -> int:
    """Return the size of a file in bytes."""
    return HEADER_SIZE + hash_slot_num * SLOT_SIZE + index_num * ENTRY_SIZE


def key_hash(unsigned: int) -> int:
    """Return an entry's key hash, given Java's hash modulo 2^32.

    Java's Math.abs of the smallest int is negative; RocketMQ makes it 0.
    """
    if unsigned < 0x8000_0000:
        return unsigned
    return 0x1_0000_0000 - unsigned if unsigned > 0x8000_0000 else 0


def to_key_hashes(unsigned: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert many of Java's hashes in place, as `key_hash` does for one."""
    is_negative = unsigned > 0x8000_0000
    unsigned[is_negative] = 0x1_0000_0000 - unsigned[is_negative]
    unsigned[unsigned == 0x8000_0000] = 0
    return unsigned


def seconds_since(begin_timestamp: int, store_timestamp: int) -> int:
    """Return the time field of an entry."""
    if begin_timestamp <= 0:
        return 0
    return min(max((store_timestamp - begin_timestamp) // 1000, 0), SECONDS_MAX)
