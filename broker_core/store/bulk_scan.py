"""Bulk scan of undamaged log ranges.

`Recovery` could examine each record separately, but nearly all records are intact and have their
units. So this module reads the log in chunks and compares the records of a chunk with their units
as arrays. The first irregular record ends the range; `Recovery` examines it separately.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.formats.cq_unit import UNITS
from broker_core.formats.crc_batch import count_whole
from broker_core.formats.index_entry import to_key_hashes
from broker_core.formats.record import MESSAGE_MAGIC, OVERHEAD_V4, is_guard_right
from broker_core.formats.record_columns import RecordBuffer, RecordColumns, walk
from broker_core.formats.record_texts import Pieces, RecordTexts
from broker_core.message.names import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQ_KEY,
)
from broker_core.message.sys_flag import TRANSACTION_PREPARED_TYPE
from broker_core.store.consume_queue import TIMER_CODE
from broker_core.store.record_dispatch import queue_of_record

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
"""Each chunk is read into a buffer that fits the processor's cache, because it is scanned several
times; this takes half the time of scanning the mapping. With smaller chunks the calls cost more
than they save.
"""
STEADY_ROWS = 3


class Stretch(NamedTuple):
    """Consecutive regular records."""

    records: int
    size: int
    store_timestamps: list[int]
    """The store timestamps of the last records."""


class _Chunk:
    """A piece of the log in a private buffer."""

    def __init__(self) -> None:
        self.offset = 0
        self.data = bytearray(CHUNK_BYTES)
        self.buffer = RecordBuffer(self.data)

    def rows(self, size: int) -> tuple[RecordColumns, int]:
        """Return the regular records in the first bytes, and where the walk ended."""
        found = walk(self.buffer, 0, size)
        rows = RecordColumns(self.buffer, found.positions)
        rows.cut_at_first(
            ~rows.is_whole
            | (rows["magic"] != MESSAGE_MAGIC)
            | (rows["commit_log_offset"] != rows["position"] + self.offset)
        )
        return rows, found.stopped_at


class _Reader:
    """Reads chunks of the log; a thread checks the bodies of one chunk and reads the next."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "recover")
        self._chunk, self._next = _Chunk(), _Chunk()
        self._awaited: tuple[MappedFile, int, int] | None = None
        self._size: Future[int] | None = None

    def read(self, file: MappedFile, position: int, wanted: int) -> tuple[_Chunk, int]:
        """Return a chunk, valid until the next call, and how many bytes were read."""
        size = self._size.result() if self._size is not None else 0
        self._size = None
        if self._awaited == (file, position, wanted):
            self._chunk, self._next = self._next, self._chunk
        else:
            size = file.file.pread_into(position, self._chunk.buffer.data[:wanted])
        self._awaited = None
        self._chunk.offset = file.file_from_offset + position
        return self._chunk, size

    def begin(self, file: MappedFile, position: int, wanted: int) -> None:
        """Start reading the chunk for the next call."""
        self._awaited = file, position, wanted
        data = self._next.buffer.data[:wanted]
        self._size = self._thread.submit(file.file.pread_into, position, data)

    def check(self, rows: RecordColumns) -> Future[int]:
        """Start counting the rows before the first row with a wrong body checksum."""
        return self._thread.submit(
            count_whole, self._chunk.data, rows["body_from"], rows["body_to"], rows["body_crc"]
        )

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


class BulkScan:
    """A single pass over the log during one start. Not reusable.

    Attributes:
        units_written: how many missing units were written at the end of their queues.
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

    def advance(
        self, file: MappedFile, position: int, dispatch_from: int, limit: int | None = None
    ) -> Stretch | None:
        """Accept records from a position on, at most one chunk; None when the first is irregular.

        Records before dispatch_from are only checked. Later records are also compared with their
        units and the index; units that are missing at the end of a queue are written. `limit` is a
        position in a file that still grows; data after it isn't read.
        """
        is_compared = file.file_from_offset + position >= dispatch_from
        wanted = _wanted(file, position, dispatch_from)
        if limit is not None:
            wanted = min(wanted, limit - position)
        chunk, size = self._chunks.read(file, position, wanted)
        rows, end = chunk.rows(size)
        if not end:
            return None
        if self._is_guarded:
            rows.cut(_count_checked(chunk, rows))
        whole = self._chunks.check(rows) if self._check_crc else None
        following = 0 if limit is not None else _wanted(file, position + end, dispatch_from)
        if following >= OVERHEAD_V4:
            self._chunks.begin(file, position + end, following)
        if len(rows) and (is_compared or self._check_crc):
            texts = RecordTexts(chunk.buffer, rows)
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
            rows["store_timestamp"][-STEADY_ROWS:].tolist(),
        )

    def close(self) -> None:
        """End the reading thread."""
        self._chunks.close()

    def _compare(
        self, chunk: _Chunk, rows: RecordColumns, texts: RecordTexts, whole: Future[int] | None
    ) -> None:
        """Keep the rows that match the queues and the index; append missing units and keys."""
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
        # Nothing has been written yet, so it isn't too late for the checksums.
        rows.cut(count if whole is None else min(count, whole.result()))
        count = len(rows)
        for (queue, members), first in zip(groups, firsts, strict=True):
            kept = members[: int(np.searchsorted(members, count))]
            if len(kept):
                self._place(chunk, queue, rows, kept, codes, first)
        if self._index is not None and keys is not None:
            self._put_keys(rows, texts, queues, keys)

    def _queues_of(self, rows: RecordColumns, texts: RecordTexts) -> Ints:
        """Return the number of each row's queue, up to the first row without a regular queue."""
        topics, which = texts.topics()
        which = which[: len(rows)]
        places = which << 32 | rows["queue_id"]
        kinds, firsts, inverse = np.unique(places, return_index=True, return_inverse=True)
        numbers = np.full(len(kinds), -1, np.int64)
        # In log order: rows after the first one without a queue aren't needed.
        for kind in np.argsort(firsts).tolist():
            row = int(firsts[kind])
            if which[row] < 0:
                break
            topic, queue_id = topics[int(which[row])], int(rows["queue_id"][row])
            number = self._known.get((topic, queue_id))
            if number is None:
                number = self._number_of(topic, queue_id, int(rows["commit_log_offset"][row]))
            if number is None:
                break
            numbers[kind] = number
        queues = numbers[inverse]
        is_missing = queues < 0
        return queues[: int(is_missing.argmax())] if is_missing.any() else queues

    def _codes_of(self, rows: RecordColumns, texts: RecordTexts, queues: Ints) -> Ints:
        """Return the tags code of each row's unit, up to the first irregular row."""
        tags = texts.values(PROPERTY_TAGS.encode())
        count = tags.first_odd_row(len(rows))
        hashes = texts.hashes(tags, np.zeros(len(tags.rows), np.int64))
        codes = np.zeros(len(rows), np.int64)
        kept = tags.rows < len(rows)
        codes[tags.rows[kept]] = np.where(hashes >> 31, hashes - (1 << 32), hashes)[kept]
        delays = np.array(
            [-1 if queue.delay_ms is None else queue.delay_ms for queue in self._order], np.int64
        )
        waits = delays[queues[: len(rows)]]
        if (waits >= 0).any():
            is_delayed = np.zeros(len(rows), bool)
            of_rows = texts.values(PROPERTY_DELAY_TIME_LEVEL.encode()).rows
            is_delayed[of_rows[of_rows < len(rows)]] = True
            codes = np.where(is_delayed & (waits >= 0), rows["store_timestamp"] + waits, codes)
        timer_queues = [number for number, queue in enumerate(self._order) if queue.has_due_times]
        if timer_queues and (is_timer := np.isin(queues[: len(rows)], timer_queues)).any():
            times = texts.values(PROPERTY_TIMER_OUT_MS.encode())
            count = min(count, times.first_odd_row(len(rows)))
            for row, text in texts.words(times):
                if row < len(rows) and is_timer[row] and TIMER_CODE.fullmatch(text):
                    codes[row] = int(text)
        return codes[:count]

    def _keys_of(self, rows: RecordColumns, texts: RecordTexts) -> Pieces | None:
        """Return the keys to index; keep the rows before the first irregular one."""
        if self._index is None:
            return None
        uniq_keys = texts.values(PROPERTY_UNIQ_KEY.encode())
        keys = texts.values(PROPERTY_KEYS.encode())
        rows.cut(uniq_keys.first_odd_row(len(rows)))
        rows.cut(keys.first_odd_row(len(rows)))
        columns = zip(uniq_keys, texts.split(keys), strict=True)
        of_rows, starts, sizes = (np.concatenate(both) for both in columns)
        # A message's unique key is indexed before its other keys.
        order = np.argsort(of_rows, kind="stable")
        return Pieces(of_rows[order], starts[order], sizes[order])

    def _number_of(self, topic: bytes, queue_id: int, commit_log_offset: int) -> int | None:
        """Return this scan's number for a queue, or None when the queue isn't regular."""
        queue = queue_of_record(self._queues, self._deleted, topic, queue_id, commit_log_offset)
        if queue is None:
            return None
        self._known[topic, queue_id] = number = len(self._order)
        self._order.append(queue)
        return number

    def _count_placed(
        self, queue: ConsumeQueue, rows: RecordColumns, members: Ints, codes: Ints
    ) -> tuple[int, int]:
        """Return (queue offset of the first member, how many members match their units)."""
        offsets = rows["commit_log_offset"][members]
        first = self._next.get(queue, -1)
        if first < 0:
            begin = int(offsets[0])
            first = queue.lower_bound(queue.min_offset, lambda offset: offset < begin)
        # PREPARED and ROLLBACK share this bit; such messages have no unit.
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
        is_right[:done] &= self._ext.extensions_match(
            queue, first, stored[:done], codes[found], rows["store_timestamp"][found]
        )
        return first, len(members) if is_right.all() else int(is_right.argmin())

    def _place(
        self,
        chunk: _Chunk,
        queue: ConsumeQueue,
        rows: RecordColumns,
        members: Ints,
        codes: Ints,
        first: int,
    ) -> None:
        there = max(queue.next_offset - first, 0)
        self._ext.pass_over(queue, first, first + min(there, len(members)))
        missing = members[there:]
        if len(missing):
            units = np.empty(len(missing), UNITS)
            units["offset"] = rows["commit_log_offset"][missing]
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
        rows: RecordColumns,
        missing: Ints,
        codes: Ints,
        queue_offset: int,
    ) -> list[int]:
        """Write the extensions of missing units; return the codes for these units."""
        data = chunk.data
        return [
            self._ext.put(
                queue,
                queue_offset,
                code,
                store_timestamp,
                data[start:end].decode("utf-8", "replace"),
            )
            for code, store_timestamp, start, end in zip(
                codes[missing].tolist(),
                rows["store_timestamp"][missing].tolist(),
                rows["properties_from"][missing].tolist(),
                rows["end"][missing].tolist(),
                strict=True,
            )
        ]

    def _put_keys(
        self, rows: RecordColumns, texts: RecordTexts, queues: Ints, keys: Pieces
    ) -> None:
        """Add the keys of the remaining rows to the index."""
        count = int(np.searchsorted(keys.rows, len(rows)))
        if self._index is None or not count:
            return
        kept = Pieces(*(column[:count] for column in keys))
        seeds = np.array([queue.key_seed for queue in self._order], np.int64)[queues[kept.rows]]
        hashes = to_key_hashes(texts.hashes(kept, seeds))
        offsets, timestamps = rows["commit_log_offset"], rows["store_timestamp"]
        self._index.put_all(hashes, offsets[kept.rows], timestamps[kept.rows])


def _wanted(file: MappedFile, position: int, dispatch_from: int) -> int:
    """Return how many bytes to read at a position; a read never crosses dispatch_from."""
    end = file.size
    if file.file_from_offset + position < dispatch_from:
        end = min(end, dispatch_from - file.file_from_offset)
    return min(CHUNK_BYTES, end - position)


def _count_checked(chunk: _Chunk, rows: RecordColumns) -> int:
    """Return how many rows precede the first whose record checksum (`__CRC32#`) is wrong."""
    view = chunk.buffer.data
    pairs = zip(rows["position"].tolist(), rows["end"].tolist(), strict=True)
    for count, (start, end) in enumerate(pairs):
        if not is_guard_right(view, start, end):
            return count
    return len(rows)
