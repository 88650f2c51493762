"""Stretches of the log in which nothing is wrong, told by the thousand records.

Recovery would look at each record for itself; nearly all of them are whole, and their units are
there. So they are taken in chunks: heads, sizes and units are compared as arrays, only checksums
and properties are gone through one by one. Whatever is not exactly as it should be ends the
stretch, and is looked at by `Recovery`.
"""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from broker_core.formats.cq_unit import UNITS
from broker_core.formats.crc_batch import count_whole
from broker_core.formats.index_entry import to_key_hashes
from broker_core.formats.record import (
    HEAD_SIZE,
    MESSAGE_MAGIC,
    OVERHEAD_V4,
    is_guard_right,
)
from broker_core.message.ids import HOST_V4_SIZE, HOST_V6_SIZE
from broker_core.message.names import (
    KEY_SEPARATOR,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
)
from broker_core.message.sys_flag import (
    BORNHOST_V6_FLAG,
    STOREHOST_V6_FLAG,
    TRANSACTION_PREPARED_TYPE,
)
from broker_core.message.tags import index_hash

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from broker_core.store.consume_queue import ConsumeQueue
    from broker_core.store.consume_queues import ConsumeQueues
    from broker_core.store.deleted_topics import DeletedTopics
    from broker_core.store.ext_replay import ExtReplay
    from broker_core.store.index_replay import IndexReplay
    from broker_core.store.mapped_file import MappedFile

    Ints = NDArray[np.int64]

CHUNK_BYTES = 4 << 20
"""Read into a buffer: what is gone through several times is in the processor's cache then, which
halves the time against the mapping; in smaller chunks the calls for each chunk take the time."""
STEADY_ROWS = 3
HASHED_BYTES_MAX = 255
HEADS = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
_SIZE = struct.Struct(">i")
_BLANK = KEY_SEPARATOR.encode()
_MARGIN = 16
_POWERS = np.array([pow(31, n, 1 << 32) for n in range(HASHED_BYTES_MAX, -1, -1)], np.uint32)

_WORD = np.dtype(">u8")
_TOPIC_POWERS = np.array(
    [pow(0x100000001B3, n, 1 << 64) for n in range(HASHED_BYTES_MAX, -1, -1)], np.uint64
)

assert HEADS.itemsize == HEAD_SIZE


class Stretch(NamedTuple):
    """Records that follow each other, all as they should be."""

    records: int
    size: int
    store_timestamps: list[int]
    """Of the last ones."""


def _at_any_place(buffer: bytearray, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return what stands at each place of a buffer, when it is read as a kind."""
    return np.ndarray((len(buffer) - kind.itemsize + 1,), kind, buffer, strides=(1,))


class _Chunk:
    """A piece of the log in a buffer of ours, to be read as numbers at any place."""

    def __init__(self) -> None:
        self.offset = 0
        self.buffer = bytearray(CHUNK_BYTES)
        self.view = memoryview(self.buffer)
        self.bytes = np.frombuffer(self.buffer, np.uint8)
        self.heads: NDArray[np.void] = _at_any_place(self.buffer, HEADS)
        self.shorts = _at_any_place(self.buffer, np.dtype(">i2"))
        self.ints = _at_any_place(self.buffer, np.dtype(">i4"))
        self.longs = _at_any_place(self.buffer, np.dtype(">i8"))


class _Reader:
    """Chunks of the log; a thread checks the bodies of one, and reads the next, meanwhile."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "recover")
        self._chunk, self._next = _Chunk(), _Chunk()
        self._awaited: tuple[MappedFile, int, int] | None = None
        self._size: Future[int] | None = None

    def read(self, file: MappedFile, position: int, wanted: int) -> tuple[_Chunk, int]:
        """Return a chunk and how many bytes of it there are; it is good until the next call."""
        size = self._size.result() if self._size is not None else 0
        self._size = None
        if self._awaited == (file, position, wanted):
            self._chunk, self._next = self._next, self._chunk
        else:
            size = file.file.pread_into(position, self._chunk.view[:wanted])
        self._awaited = None
        self._chunk.offset = file.file_from_offset + position
        return self._chunk, size

    def begin(self, file: MappedFile, position: int, wanted: int) -> None:
        """Begin to read what will be asked for next."""
        self._awaited = file, position, wanted
        self._size = self._thread.submit(file.file.pread_into, position, self._next.view[:wanted])

    def check(self, rows: _Rows) -> Future[int]:
        """Begin to count the rows before the first whose body has another checksum."""
        return self._thread.submit(
            count_whole,
            self._chunk.buffer,
            rows["body_from"],
            rows["body_to"],
            rows["body_crc"],
        )

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


class _Rows:
    """Records of a chunk as columns; places are those in the chunk."""

    def __init__(self, chunk: _Chunk, positions: list[int]) -> None:
        self._chunk = chunk
        where = np.array(positions, np.int64)
        heads = chunk.heads[where]
        self._columns: dict[str, Ints] = {
            name: heads[name].astype(np.int64)
            for name in ("size", "body_crc", "queue_id", "queue_offset", "offset", "sys_flag")
        }
        self._columns["position"] = where
        self._keep((heads["magic"] == MESSAGE_MAGIC) & (self["offset"] == where + chunk.offset))
        self._find_parts()

    def __getitem__(self, name: str) -> Ints:
        return self._columns[name]

    def __len__(self) -> int:
        return len(self._columns["position"])

    def cut(self, count: int) -> None:
        """Keep the first rows."""
        if count < len(self):
            self._columns = {name: column[:count] for name, column in self._columns.items()}

    def _keep(self, is_right: NDArray[np.bool_]) -> None:
        """Keep what comes before the first row that is not right."""
        if not is_right.all():
            self.cut(int(is_right.argmin()))

    def _find_parts(self) -> None:
        """Add the places of the parts; keep rows whose parts add up."""
        chunk = self._chunk
        end = self._columns["end"] = self["position"] + self["size"]
        more = HOST_V6_SIZE - HOST_V4_SIZE
        timestamp_at = self["position"] + HEAD_SIZE + HOST_V4_SIZE
        timestamp_at = timestamp_at + more * ((self["sys_flag"] & BORNHOST_V6_FLAG) != 0)
        body_from = timestamp_at + 8 + HOST_V4_SIZE + 16
        body_from = body_from + more * ((self["sys_flag"] & STOREHOST_V6_FLAG) != 0)
        self._columns |= {"timestamp_at": timestamp_at, "body_from": body_from}
        self._keep(body_from + 3 <= end)
        self._columns["timestamp"] = chunk.longs[self["timestamp_at"]].astype(np.int64)
        body_size = chunk.ints[self["body_from"] - 4].astype(np.int64)
        self._columns["body_to"] = self["body_from"] + body_size
        self._keep((body_size >= 0) & (self["body_to"] + 3 <= self["end"]))
        self._columns["topic_to"] = self["body_to"] + 1 + chunk.bytes[self["body_to"]]
        self._keep(self["topic_to"] + 2 <= self["end"])
        properties_size = chunk.shorts[self["topic_to"]].astype(np.int64)
        self._keep((properties_size >= 0) & (self["topic_to"] + 2 + properties_size == self["end"]))


class _Texts:
    r"""Topics and properties of a chunk's rows, side by side in one array.

    The sizes between them are overwritten, so that every property lies between two \x02::

        | margin | \x02 topic \xff \x02 properties | \x02 topic \xff \x02 properties | \x02 margin |
    """

    def __init__(self, chunk: _Chunk, rows: _Rows) -> None:
        sizes = rows["end"] - rows["body_to"]
        self.starts = np.cumsum(sizes) - sizes + _MARGIN
        end = _MARGIN + int(sizes.sum())
        self.data = bytearray(end + 1 + _MARGIN)
        self.bytes = np.frombuffer(self.data, np.uint8)
        self.bytes[:_MARGIN] = 0xFF
        self.bytes[end:] = 0xFF
        self.data[end] = 2
        for size in _distinct(sizes):
            chosen = np.flatnonzero(sizes == size)
            kind = np.dtype(f"V{size}")
            pieces = _at_any_place(chunk.buffer, kind)[rows["body_to"][chosen]]
            _at_any_place(self.data, kind)[self.starts[chosen]] = pieces
        self.topic_sizes = rows["topic_to"] - rows["body_to"] - 1
        properties_from = self.starts + self.topic_sizes + 3
        self.bytes[self.starts] = 2
        self.bytes[properties_from - 2] = 0xFF
        self.bytes[properties_from - 1] = 2
        self._equal_signs: Ints = self.starts
        self._ends: Ints = self.starts
        self._words: NDArray[np.uint64] = np.empty(0, np.uint64)

    def rows_of(self, places: Ints) -> Ints:
        """Return the rows in which places lie."""
        return np.searchsorted(self.starts, places, side="right") - 1

    def first_row_with_zeros(self) -> int:
        """Return the first row whose topic or properties hold zeros, the number of rows if none."""
        at = self.data.find(0)
        return len(self.starts) if at < 0 else int(self.rows_of(np.array([at]))[0])

    def find_properties(self) -> None:
        """Find where names and values are parted, and what comes before that."""
        self._equal_signs = np.flatnonzero(self.bytes == 1)
        self._ends = np.flatnonzero(self.bytes == 2)
        words = _at_any_place(self.data, _WORD)[self._equal_signs - _WORD.itemsize]
        self._words = words.astype(np.uint64)

    def values(self, name: bytes) -> tuple[Ints, Ints, Ints]:
        """Return (rows, starts, sizes) of the values of a property."""
        # All of a name but the longest ones is compared at once, with the separator before it.
        word = b"\x02" + name
        tail = word[-_WORD.itemsize :]
        unused = np.uint64(8 * (_WORD.itemsize - len(tail)))
        is_named = self._words << unused == np.uint64(int.from_bytes(tail, "big")) << unused
        chosen = self._equal_signs[is_named]
        for back in range(_WORD.itemsize + 1, len(word) + 1):
            chosen = chosen[self.bytes[chosen - back] == word[-back]]
        starts = chosen + 1
        ends = self._ends[np.searchsorted(self._ends, chosen)]
        return self.rows_of(chosen), starts, ends - starts

    def hashes(self, starts: Ints, sizes: Ints, seeds: Ints) -> Ints:
        """Return Java's hashes modulo 2^32 of (what a seed is the hash of) + a word."""
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
                # 32 bits overflow, as Java's do.
                hashes[chosen] = seeds[chosen].astype(np.uint32) * factor + tails
            for at in chosen[~is_plain].tolist():
                word = self.data[starts[at] : starts[at] + size].decode("utf-8", "replace")
                hashes[at] = index_hash(int(seeds[at]), word)
        return hashes

    def topics(self) -> tuple[list[bytes], Ints]:
        """Return the topics there are, and for each row which of them is its own."""
        topics: list[bytes] = []
        numbers = np.zeros(len(self.starts), np.int64)
        for size in _distinct(self.topic_sizes):
            chosen = np.flatnonzero(self.topic_sizes == size)
            names = self._gather(self.starts[chosen] + 1, size)
            if (names == names[0]).all():
                numbers[chosen] = len(topics)
                topics.append(bytes(names[0]))
                continue
            powers = _TOPIC_POWERS[HASHED_BYTES_MAX + 1 - size :]
            _, firsts, which = np.unique(
                names.astype(np.uint64) @ powers, return_index=True, return_inverse=True
            )
            # Names with the same hash that are not the same: as if no queue had them.
            is_equal = np.all(names == names[firsts][which], axis=1)
            numbers[chosen] = np.where(is_equal, which + len(topics), -1)
            topics += [bytes(names[first]) for first in firsts.tolist()]
        return topics, numbers

    def _gather(self, starts: Ints, size: int) -> NDArray[np.uint8]:
        """Return pieces of one size, a row each."""
        if not size:
            return np.zeros((len(starts), 0), np.uint8)
        pieces = _at_any_place(self.data, np.dtype(f"V{size}"))[starts]
        return pieces.view(np.uint8).reshape(len(starts), size)


class BulkScan:
    """One start's pass over the log. Not to be used twice.

    Attributes:
        units_written: units that were missing behind the end of their queue.
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        index: IndexReplay | None,
        ext: ExtReplay,
        deleted: DeletedTopics,
        next_offsets: dict[ConsumeQueue, int],
        mark: Callable[[ConsumeQueue], None],
        *,
        check_crc: bool,
        is_guarded: bool = False,
    ) -> None:
        self.units_written = 0
        self._queues = queues
        self._index = index
        self._ext = ext
        self._deleted = deleted
        self._next = next_offsets
        self._mark = mark
        self._check_crc = check_crc
        self._is_guarded = is_guarded
        self._chunks = _Reader()
        self._known: dict[tuple[bytes, int], int] = {}
        self._order: list[ConsumeQueue] = []

    def advance(self, file: MappedFile, position: int, dispatch_from: int) -> Stretch | None:
        """Take the records from a position on, as far as a chunk goes; None when there is none.

        Records before dispatch_from are checked for themselves, others are compared with their
        units, which are written where the queue ends, and with the index.
        """
        is_compared = file.file_from_offset + position >= dispatch_from
        wanted = _wanted(file, position, dispatch_from)
        chunk, size = self._chunks.read(file, position, wanted)
        positions, end = _walk(chunk, size)
        if not positions:
            return None
        rows = _Rows(chunk, positions)
        if self._is_guarded:
            rows.cut(_count_guarded(chunk, rows))
        whole = self._chunks.check(rows) if self._check_crc else None
        following = _wanted(file, position + end, dispatch_from)
        if following >= OVERHEAD_V4:
            self._chunks.begin(file, position + end, following)
        if len(rows) and (is_compared or self._check_crc):
            texts = _Texts(chunk, rows)
            if self._check_crc:
                rows.cut(texts.first_row_with_zeros())
            if is_compared and len(rows):
                self._compare(chunk, rows, texts, whole)
        if whole is not None:
            rows.cut(whole.result())
        if not len(rows):
            return None
        return Stretch(
            len(rows),
            int(rows["end"][-1]),
            rows["timestamp"][-STEADY_ROWS:].tolist(),
        )

    def close(self) -> None:
        """Let go of what was used for reading."""
        self._chunks.close()

    def _compare(
        self, chunk: _Chunk, rows: _Rows, texts: _Texts, whole: Future[int] | None
    ) -> None:
        """Keep the rows that queues and index agree with; put what these lack at their ends."""
        queues = self._queues_of(rows, texts)
        rows.cut(len(queues))
        texts.find_properties()
        codes = self._codes_of(rows, texts, queues)
        rows.cut(len(codes))
        keys = self._keys_of(rows, texts)
        if not len(rows):
            return
        order = np.argsort(queues[: len(rows)], kind="stable")
        ordered = queues[order]
        splits = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        groups = [
            (self._order[int(ordered[start])], members)
            for start, members in zip([0, *splits.tolist()], np.split(order, splits), strict=True)
        ]
        count = len(rows)
        firsts = []
        for queue, members in groups:
            first, same = self._count_placed(queue, rows, members, codes)
            firsts.append(first)
            if same < len(members):
                count = min(count, int(members[same]))
        # Nothing was written so far: what the thread has found comes in time.
        rows.cut(count if whole is None else min(count, whole.result()))
        count = len(rows)
        for (queue, members), first in zip(groups, firsts, strict=True):
            kept = members[: int(np.searchsorted(members, count))]
            if len(kept):
                self._place(chunk, queue, rows, kept, codes, first)
        if self._index is not None and keys is not None:
            self._put_keys(rows, texts, queues, *keys)

    def _queues_of(self, rows: _Rows, texts: _Texts) -> Ints:
        """Return the numbers of the rows' queues, up to the first that has no plain one."""
        topics, which = texts.topics()
        which = which[: len(rows)]
        places = which << 32 | rows["queue_id"]
        kinds, firsts, inverse = np.unique(places, return_index=True, return_inverse=True)
        numbers = np.full(len(kinds), -1, np.int64)
        # In the order of the log: behind the first without a queue nothing is asked.
        for kind in np.argsort(firsts).tolist():
            row = int(firsts[kind])
            if which[row] < 0:
                break
            topic, queue_id = topics[int(which[row])], int(rows["queue_id"][row])
            number = self._known.get((topic, queue_id))
            if number is None:
                number = self._number_of(topic, queue_id, int(rows["offset"][row]))
            if number is None:
                break
            numbers[kind] = number
        queues = numbers[inverse]
        is_missing = queues < 0
        return queues[: int(is_missing.argmax())] if is_missing.any() else queues

    def _codes_of(self, rows: _Rows, texts: _Texts, queues: Ints) -> Ints:
        """Return the tags codes that units must have, up to the first that is not plain."""
        of_rows, starts, sizes = texts.values(PROPERTY_TAGS.encode())
        count = _first_odd(of_rows, sizes, len(rows))
        hashes = texts.hashes(starts, sizes, np.zeros(len(starts), np.int64))
        codes = np.zeros(len(rows), np.int64)
        kept = of_rows < len(rows)
        codes[of_rows[kept]] = np.where(hashes >> 31, hashes - (1 << 32), hashes)[kept]
        delays = np.array(
            [-1 if queue.delay_ms is None else queue.delay_ms for queue in self._order], np.int64
        )
        waits = delays[queues[: len(rows)]]
        if (waits >= 0).any():
            is_delayed = np.zeros(len(rows), bool)
            of_rows, _, _ = texts.values(PROPERTY_DELAY_TIME_LEVEL.encode())
            is_delayed[of_rows[of_rows < len(rows)]] = True
            codes = np.where(is_delayed & (waits >= 0), rows["timestamp"] + waits, codes)
        return codes[:count]

    def _keys_of(self, rows: _Rows, texts: _Texts) -> tuple[Ints, Ints, Ints] | None:
        """Return (rows, starts, sizes) of what is indexed; keep rows up to the first not plain."""
        if self._index is None:
            return None
        uniq_rows, uniq_starts, uniq_sizes = texts.values(PROPERTY_UNIQ_KEY.encode())
        key_rows, key_starts, key_sizes = texts.values(PROPERTY_KEYS.encode())
        rows.cut(_first_odd(uniq_rows, uniq_sizes, len(rows)))
        rows.cut(_first_odd(key_rows, key_sizes, len(rows)))
        words = _words(texts, key_rows, key_starts, key_sizes)
        of_rows = np.concatenate([uniq_rows, words[0]])
        # The unique key of a message comes first.
        order = np.argsort(of_rows, kind="stable")
        starts = np.concatenate([uniq_starts, words[1]])[order]
        return of_rows[order], starts, np.concatenate([uniq_sizes, words[2]])[order]

    def _number_of(self, topic: bytes, queue_id: int, commit_log_offset: int) -> int | None:
        """Return the number by which a queue is known here, None when there is no plain one."""
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            return None
        queue = self._queues.find(name, queue_id)
        if queue is None or commit_log_offset < self._deleted.deleted_before(name):
            return None
        self._known[topic, queue_id] = number = len(self._order)
        self._order.append(queue)
        return number

    def _count_placed(
        self, queue: ConsumeQueue, rows: _Rows, members: Ints, codes: Ints
    ) -> tuple[int, int]:
        """Return (the place of the first member, how many members have their places)."""
        offsets = rows["offset"][members]
        first = self._next.get(queue, -1)
        if first < 0:
            begin = int(offsets[0])
            first = queue.lower_bound(queue.min_offset, lambda offset: offset < begin)
        # PREPARED and ROLLBACK, which have no place, share this bit.
        is_right = (rows["queue_offset"][members] == first + np.arange(len(members))) & (
            rows["sys_flag"][members] & TRANSACTION_PREPARED_TYPE == 0
        )
        there = min(max(queue.next_offset - first, 0), len(members))
        stored = np.empty(there, np.int64)
        done = 0
        while done < there:
            units = np.frombuffer(queue.stored_units(first + done, there - done), UNITS)
            if not len(units):
                is_right[done:] = False
                break
            part = slice(done, done + len(units))
            is_right[part] &= (units["offset"] == offsets[part]) & (
                units["size"] == rows["size"][members[part]]
            )
            stored[part] = units["tags_code"]
            done += len(units)
        found = members[:done]
        is_right[:done] &= self._ext.are_right(
            queue, first, stored[:done], codes[found], rows["timestamp"][found]
        )
        return first, len(members) if is_right.all() else int(is_right.argmin())

    def _place(
        self,
        chunk: _Chunk,
        queue: ConsumeQueue,
        rows: _Rows,
        members: Ints,
        codes: Ints,
        first: int,
    ) -> None:
        there = max(queue.next_offset - first, 0)
        self._ext.pass_over(queue, first, first + min(there, len(members)))
        missing = members[there:]
        if len(missing):
            units = np.empty(len(missing), UNITS)
            units["offset"] = rows["offset"][missing]
            units["size"] = rows["size"][missing]
            units["tags_code"] = codes[missing]
            if queue.ext is not None:
                units["tags_code"] = self._put_ext(
                    chunk, queue, rows, missing, codes, first + there
                )
            queue.append_units(units.tobytes())
            self.units_written += len(missing)
            self._mark(queue)
        self._next[queue] = first + len(members)

    def _put_ext(
        self,
        chunk: _Chunk,
        queue: ConsumeQueue,
        rows: _Rows,
        missing: Ints,
        codes: Ints,
        queue_offset: int,
    ) -> list[int]:
        """Write extensions of units that are missing; return what these carry."""
        buffer = chunk.buffer
        return [
            self._ext.put(
                queue,
                queue_offset,
                code,
                store_timestamp,
                buffer[start:end].decode("utf-8", "replace"),
            )
            for code, store_timestamp, start, end in zip(
                codes[missing].tolist(),
                rows["timestamp"][missing].tolist(),
                (rows["topic_to"][missing] + 2).tolist(),
                rows["end"][missing].tolist(),
                strict=True,
            )
        ]

    def _put_keys(
        self, rows: _Rows, texts: _Texts, queues: Ints, of_rows: Ints, starts: Ints, sizes: Ints
    ) -> None:
        """Bring the keys of the rows that were kept to the index."""
        count = int(np.searchsorted(of_rows, len(rows)))
        if self._index is None or not count:
            return
        of_rows = of_rows[:count]
        seeds = np.array([queue.key_seed for queue in self._order], np.int64)[queues[of_rows]]
        hashes = to_key_hashes(texts.hashes(starts[:count], sizes[:count], seeds))
        self._index.put_all(hashes, rows["offset"][of_rows], rows["timestamp"][of_rows])


def _wanted(file: MappedFile, position: int, dispatch_from: int) -> int:
    """Return how much is read at a position: not beyond where comparing with queues begins."""
    end = file.size
    if file.file_from_offset + position < dispatch_from:
        end = min(end, dispatch_from - file.file_from_offset)
    return min(CHUNK_BYTES, end - position)


def _walk(chunk: _Chunk, limit: int) -> tuple[list[int], int]:
    """Return where records begin, and where the last of them ends, by their sizes alone."""
    unpack, buffer = _SIZE.unpack_from, chunk.buffer
    positions: list[int] = []
    append = positions.append
    position = 0
    stop = limit - OVERHEAD_V4 + 1
    while position < stop:
        size = unpack(buffer, position)[0]
        if size < OVERHEAD_V4:
            return positions, position
        append(position)
        position += size
    return positions, positions.pop() if position > limit else position


def _count_guarded(chunk: _Chunk, rows: _Rows) -> int:
    """Return how many rows come before the first whose checksum of the whole is wrong."""
    view = chunk.view
    pairs = zip(rows["position"].tolist(), rows["end"].tolist(), strict=True)
    for count, (start, end) in enumerate(pairs):
        if not is_guard_right(view, start, end):
            return count
    return len(rows)


def _distinct(sizes: Ints) -> list[int]:
    """Return which sizes there are, of 0 up to a few thousand."""
    return np.flatnonzero(np.bincount(sizes)).tolist()


def _first_odd(of_rows: Ints, sizes: Ints, count: int) -> int:
    """Return the first row that has a property twice, or empty; count when none has."""
    is_odd = sizes == 0
    is_odd[1:] |= of_rows[1:] == of_rows[:-1]
    return min(count, int(of_rows[int(is_odd.argmax())])) if is_odd.any() else count


def _words(texts: _Texts, of_rows: Ints, starts: Ints, sizes: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (rows, starts, sizes) of the words of values: few values have several."""
    blanks = np.flatnonzero(texts.bytes == _BLANK[0])
    several = np.flatnonzero(
        np.searchsorted(blanks, starts) != np.searchsorted(blanks, starts + sizes)
    )
    if not len(several):
        return of_rows, starts, sizes
    single = np.ones(len(of_rows), bool)
    single[several] = False
    found: list[tuple[int, int, int]] = list(
        zip(of_rows[single].tolist(), starts[single].tolist(), sizes[single].tolist(), strict=True)
    )
    for at in several.tolist():
        row, start = int(of_rows[at]), int(starts[at])
        for word in bytes(texts.data[start : start + int(sizes[at])]).split(_BLANK):
            if word:
                found.append((row, start, len(word)))
            start += len(word) + 1
    table = np.array(sorted(found), np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]
