"""Reads a topic through its ConsumeQueues: the records that units point to, run by run.

Invariant: a slice yields the sound record of each of its units once, and reports each unit whose
record wasn't readable.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from analytics.store import log_files
from analytics.store.decode import FILE_GONE, FILE_SHORTER, MESSAGE_MAGICS, RECORD_SIZE_MIN, Damage
from analytics.store.log_files import opened, pread, read_problem
from broker_core.formats import record
from broker_core.formats.record_columns import RecordBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from analytics.store.consume_queues import ConsumeQueues
    from analytics.store.decode import RecordDecoder, RowFilter
    from analytics.store.log_files import LogFile

    Ints = NDArray[np.int64]

# Records closer than this are read together with the bytes between them.
GAP_BYTES_MAX = 32 * 1024
NO_RECORD = "the ConsumeQueue doesn't point to a record of its topic"


class UnitSlice(NamedTuple):
    """The units `[queue_from, queue_to)` of one ConsumeQueue; their records have `size` bytes."""

    topic: str
    queue_id: int
    queue_from: int
    queue_to: int
    size: int

    def narrowed(self, rows: RowFilter) -> RowFilter:
        """Return the filter for only this queue."""
        return replace(rows, topics=frozenset({self.topic}), queue_ids=frozenset({self.queue_id}))


class SliceReading:
    """Reads one slice once.

    Attributes:
        damages: the unreadable ranges so far.
    """

    def __init__(
        self,
        part: UnitSlice,
        decoder: RecordDecoder,
        queues: ConsumeQueues,
        files: list[LogFile],
    ) -> None:
        self.damages: list[Damage] = []
        self._part = part
        self._decoder = decoder
        self._queues = queues
        self._files = files

    def batches(self) -> Iterator[pa.RecordBatch]:
        part = self._part
        offsets, sizes = self._queues.units(
            part.topic, part.queue_id, part.queue_from, part.queue_to
        )
        if not len(offsets):
            return
        starts = np.array([file.from_offset for file in self._files], dtype=np.int64)
        in_file = np.searchsorted(starts, offsets, side="right") - 1
        edges = [*_run_starts(offsets, offsets + sizes, in_file).tolist(), len(offsets)]
        for first, behind in pairwise(edges):
            run = slice(first, behind)
            number = int(in_file[first])
            file = self._files[number] if number >= 0 else None
            if file is None or offsets[first] >= file.to_offset:
                self._damage("", offsets[run], sizes[run], FILE_GONE)
                continue
            try:
                yield from self._run(file, offsets[run], sizes[run])
            except FileNotFoundError:
                self._damage(str(file.path), offsets[run], sizes[run], FILE_GONE)
            except OSError as error:
                self._damage(str(file.path), offsets[run], sizes[run], read_problem(error))

    def _run(self, file: LogFile, offsets: Ints, sizes: Ints) -> Iterator[pa.RecordBatch]:
        start = int(offsets[0])
        buffer = np.empty(int(offsets[-1] + sizes[-1]) - start, dtype=np.uint8)
        with opened(file.path) as descriptor:
            got = pread(descriptor, buffer, start - file.from_offset)
        is_there = offsets + sizes - start <= got
        if not is_there.all():
            self._damage(str(file.path), offsets[~is_there], sizes[~is_there], FILE_SHORTER)
            offsets, sizes = offsets[is_there], sizes[is_there]
        records = RecordBuffer(buffer.data[:got])
        positions = offsets - start
        magics = records.ints[positions + record.MAGIC_POSITION]
        is_record = (records.ints[positions] == sizes) & np.isin(magics, list(MESSAGE_MAGICS))
        is_record &= sizes >= RECORD_SIZE_MIN
        if not is_record.all():
            self._damage(str(file.path), offsets[~is_record], sizes[~is_record], NO_RECORD)
            positions = positions[is_record]
        if not len(positions):
            return
        batch, bad = self._decoder.decode(records, positions, start)
        for one in sorted(bad):
            at = start + one.position
            self.damages.append(Damage(str(file.path), at, at + one.size, one.reason))
        yield batch

    def _damage(self, path: str, offsets: Ints, sizes: Ints, reason: str) -> None:
        self.damages += [
            Damage(path, at, at + size, reason)
            for at, size in zip(offsets.tolist(), sizes.tolist(), strict=True)
        ]


def _run_starts(offsets: Ints, ends: Ints, in_file: Ints) -> Ints:
    """Return the indices at which a new run begins: at a gap in the log, or after enough bytes."""
    is_new = np.ones(len(offsets), dtype=bool)
    is_new[1:] = (in_file[1:] != in_file[:-1]) | (offsets[1:] - ends[:-1] > GAP_BYTES_MAX)
    starts = np.flatnonzero(is_new)
    begun = offsets[starts][np.cumsum(is_new) - 1]
    chunks = (ends - begun) // log_files.CHUNK_BYTES
    is_new[1:] |= chunks[1:] != chunks[:-1]
    return np.flatnonzero(is_new)
