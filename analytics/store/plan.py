"""Plans a read: a consistent snapshot of a store that may grow meanwhile.

The plan finds the readable end of the log first, then ranges of files that start and end at
records. Records are found by their sizes. To cut a file into several ranges, records are found by
their magic code and trusted if the ConsumeQueue of their topic points to them. The last units of
all ConsumeQueues help to find the end without walking the whole log.

Invariant: each byte of `[log_from, log_to)` is in exactly one split.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from analytics.store import log_files
from analytics.store.bulk import chosen
from analytics.store.decode import (
    RECORD_SIZE_MAX,
    Damage,
    drop_bad,
    may_be_record,
)
from analytics.store.log_files import (
    FIRST_SEARCH_BYTES,
    LogFile,
    magics_from,
    opened,
    place_in_queue,
    pread,
    read_problem,
    record_problem,
    record_size_at,
    sound_size,
    store_timestamp_ms,
)
from analytics.store.slices import UnitSlice
from broker_core.formats import paths, record
from broker_core.formats.record_columns import RecordBuffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from analytics.store.consume_queues import ConsumeQueues

SPLIT_BYTES_DEFAULT = 64 * 1024 * 1024
SPLIT_BYTES_MIN = 64 * 1024
# Store timestamps use the broker's wall clock, which may have been set back. Files are skipped only
# if their times are outside the wanted range by more than this.
CLOCK_STEP_MS_MAX = 10 * 60 * 1000
# After this many apparent records without a ConsumeQueue unit, a file isn't cut further.
DOUBTS_MAX = 10_000
# The cost of seeking to a record, as a number of bytes read sequentially.
UNIT_COST_BYTES = 1024
_NO_COLUMNS = pa.schema([])


class Split(NamedTuple):
    """A range of one CommitLog file that starts at a record; offsets are absolute."""

    path: str
    file_from_offset: int
    commit_log_from: int
    commit_log_to: int

    @property
    def file(self) -> LogFile:
        """The file up to the end of this range."""
        size = self.commit_log_to - self.file_from_offset
        return LogFile(Path(self.path), self.file_from_offset, size)

    @property
    def size(self) -> int:
        return self.commit_log_to - self.commit_log_from


Share: TypeAlias = tuple[Split | UnitSlice, ...]
"""The parts that one task reads."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A plan to read `[log_from, log_to)` of the log, in splits, at one moment.

    If only topics with few records are wanted, `slices` of their ConsumeQueues replace the splits
    up to the last dispatched message.

    `skipped_bytes` are in files outside the wanted time. `tail` describes the bytes after the
    readable end unless they are the end of a file or zeros. `stored_from_ms` is when the first
    record of the splits was stored, None if it isn't readable.
    """

    splits: list[Split]
    log_from: int
    log_to: int
    skipped_bytes: int
    tail: Damage | None
    stored_from_ms: int | None = None
    slices: tuple[UnitSlice, ...] = ()

    @property
    def parts(self) -> list[Split | UnitSlice]:
        return [*self.slices, *self.splits]

    @property
    def split_bytes(self) -> int:
        return sum(part.size for part in self.parts)

    def shares(self, share_bytes: int) -> list[Share]:
        """Return the parts grouped into tasks, so that many small files share a task."""
        shares: list[Share] = []
        share: list[Split | UnitSlice] = []
        size = 0
        for part in self.parts:
            if share and size + part.size > share_bytes:
                shares.append(tuple(share))
                share, size = [], 0
            share.append(part)
            size += part.size
        return [*shares, tuple(share)] if share else shares


class Planner:
    """Plans reads of the current files of a log."""

    def __init__(self, files: list[LogFile], queues: ConsumeQueues, split_bytes: int) -> None:
        self._files = files
        self._queues = queues
        self._split_bytes = max(SPLIT_BYTES_MIN, split_bytes)

    def plan(
        self,
        *,
        from_ms: int | None,
        to_ms: int | None,
        from_offset: int | None,
        to_offset: int | None,
        topics: frozenset[str] | None = None,
        queue_ids: frozenset[int] | None = None,
    ) -> ReadPlan:
        """Return the plan; see `StoreReader.plan`."""
        files = self._files
        if not files:
            return ReadPlan([], 0, 0, 0, None)
        log_from = files[0].from_offset if from_offset is None else from_offset
        if to_offset is None:
            log_to, tail = self.readable_end()
        else:
            log_to, tail = min(to_offset, files[-1].to_offset), None
        log_to = max(log_from, log_to)
        splits = self._splits(log_from, log_to)
        wanted = _within_time(splits, from_ms, to_ms)
        first = wanted[0] if wanted else None
        stored_from_ms = first and store_timestamp_ms(first.file, first.commit_log_from)
        slices: list[UnitSlice] = []
        if topics is not None:
            slices, wanted = self._through_queues(wanted, topics, queue_ids)
        read = sum(part.size for part in slices) + sum(split.size for split in wanted)
        skipped = sum(split.size for split in splits) - read
        return ReadPlan(wanted, log_from, log_to, skipped, tail, stored_from_ms, tuple(slices))

    def _through_queues(
        self, splits: list[Split], topics: frozenset[str], queue_ids: frozenset[int] | None
    ) -> tuple[list[UnitSlice], list[Split]]:
        """Return slices that replace the dispatched part of the splits, and the remaining splits.

        If reading the log costs less, return no slices and all splits.
        """
        last = self._queues.last_record_from(self._files, -1) if splits else -1
        if last < 0:
            return [], splits
        file = next(file for file in reversed(self._files) if file.from_offset <= last)
        dispatched_to = last + record_size_at(file, last)
        ours = {str(file.path) for file in self._files}
        log_from = splits[0].commit_log_from
        log_to = min(splits[-1].commit_log_to, dispatched_to)
        slices: list[UnitSlice] = []
        cost = 0
        for topic in sorted(topics):
            for queue_id, first, behind in self._queues.slices(topic, queue_ids, log_from, log_to):
                _, sizes = self._queues.units(topic, queue_id, first, behind)
                cost += int(sizes.sum()) + len(sizes) * UNIT_COST_BYTES
                slices += _sliced(
                    topic, queue_id, first, behind, int(sizes.sum()), self._split_bytes
                )
        if 2 * cost > sum(split.size for split in splits if split.commit_log_to <= dispatched_to):
            return [], splits
        # A missing file has no units, so keep its split to report it.
        left = [
            split._replace(commit_log_from=max(split.commit_log_from, dispatched_to))
            if split.path in ours
            else split
            for split in splits
            if split.commit_log_to > dispatched_to or split.path not in ours
        ]
        return slices, left

    def readable_end(self, known: int = 0) -> tuple[int, Damage | None]:
        """Return where the last complete record ends, and why the log isn't readable after it.

        Three positions are near the end: the last ConsumeQueue unit whose record exists, the last
        file that starts with a record, and `known`, where a record starts or the log ended. The
        search follows record sizes from the greatest of these positions. There must be at least one
        file.
        """
        files = self._files
        start = files[0].from_offset
        if known > start and self._may_go_on_at(known):
            start = known
        for file in reversed(files):
            if file.from_offset <= start:
                break
            if record_size_at(file, file.from_offset):
                start = file.from_offset
                break
        start = max(start, self._queues.last_record_from(files, start))
        file = next(file for file in reversed(files) if file.from_offset <= start)
        end, reason = follow(file, start)
        tail = Damage(str(file.path), end, file.to_offset, reason) if reason else None
        return end, tail

    def _may_go_on_at(self, offset: int) -> bool:
        """Return whether a record or zeros follow an offset; other bytes belong to another log."""
        file = next(
            (file for file in self._files if file.from_offset <= offset < file.to_offset), None
        )
        if file is None:
            return offset == self._files[-1].to_offset
        try:
            with opened(file.path) as descriptor:
                words = os.pread(descriptor, record.BLANK.size, offset - file.from_offset)
                return not any(words) or sound_size(descriptor, file, offset) > 0
        except OSError:
            return False

    def _splits(self, log_from: int, log_to: int) -> list[Split]:
        found: list[Split] = []
        expected = log_from
        for file in self._files:
            start, end = max(file.from_offset, expected), min(file.to_offset, log_to)
            if start > expected:
                # A file is missing; the reader of this split reports it.
                gap = paths.offset_file_name(expected)
                found.append(
                    Split(str(file.path.with_name(gap)), expected, expected, min(start, log_to))
                )
            if start >= end:
                expected = max(expected, start)
                continue
            cuts = [start, *self._cuts(file, start, end), end]
            found += [
                Split(str(file.path), file.from_offset, cut_from, cut_to)
                for cut_from, cut_to in pairwise(cuts)
            ]
            expected = end
        return [split for split in found if split.size > 0]

    def _cuts(self, file: LogFile, start: int, end: int) -> list[int]:
        """Return offsets of records that cut a file into ranges of about split_bytes."""
        cuts: list[int] = []
        wanted = start + self._split_bytes
        if wanted + self._split_bytes // 2 >= end or not self._queues.has_any():
            return cuts
        try:
            with opened(file.path) as descriptor:
                while wanted + self._split_bytes // 2 < end:
                    at = self._record_from(
                        descriptor, file._replace(size=end - file.from_offset), wanted
                    )
                    if at is None:
                        break
                    cuts.append(at)
                    wanted = at + self._split_bytes
        except OSError:
            # The reader of the file reports it.
            return cuts
        return cuts

    def _record_from(self, descriptor: int, file: LogFile, offset: int) -> int | None:
        """Return the start of the first record from `offset` on that its own queue points to.

        A magic code may be part of a body, and so may a whole record with a guessed offset. Senders
        can't write to a ConsumeQueue, so only its units are trusted. Without one, return None, and
        the file is read in one piece.
        """
        for doubts, candidate in enumerate(magics_from(descriptor, file, offset)):
            if doubts > DOUBTS_MAX or candidate > offset + RECORD_SIZE_MAX:
                break
            place = place_in_queue(descriptor, file, candidate)
            if place is not None and self._queues.confirms(place, candidate):
                return candidate
        return None


def _sliced(
    topic: str, queue_id: int, first: int, behind: int, size: int, slice_bytes: int
) -> list[UnitSlice]:
    """Divide a queue's range into slices with similar numbers of units."""
    count = min(-(-size // slice_bytes) or 1, behind - first)
    edges = [first + (behind - first) * number // count for number in range(count + 1)]
    return [
        UnitSlice(topic, queue_id, one, following, size // count)
        for one, following in pairwise(edges)
    ]


def _within_time(splits: list[Split], from_ms: int | None, to_ms: int | None) -> list[Split]:
    """Drop the splits that were certainly stored outside the wanted time."""
    if not splits or (from_ms is None and to_ms is None):
        return splits
    step = CLOCK_STEP_MS_MAX
    starts = [store_timestamp_ms(split.file, split.commit_log_from) for split in splits]
    kept: list[Split] = []
    for split, first, following in zip(splits, starts, [*starts[1:], None], strict=True):
        too_new = first is not None and to_ms is not None and first - step >= to_ms
        too_old = following is not None and from_ms is not None and following + step < from_ms
        if not too_new and not too_old:
            kept.append(split)
    return kept


def follow(file: LogFile, start: int, most: int | None = None) -> tuple[int, str | None]:
    """Return where the last sound record from `start` on ends in this file, and why it stops.

    The reason is None for zeros, at the end of a full file, and after `most` bytes of records (or
    one larger record).
    """
    end = start
    # Usually little is new, and frequent calls must not read much.
    buffer = np.empty(min(FIRST_SEARCH_BYTES, file.to_offset - start), dtype=np.uint8)
    position = start
    with opened(file.path) as descriptor:
        while position < file.to_offset:
            try:
                got = pread(descriptor, buffer, position - file.from_offset)
            except OSError as error:
                return end, read_problem(error)
            if got < min(len(buffer), file.to_offset - position):
                file = file._replace(size=position + got - file.from_offset)
            got = min(got, file.to_offset - position)
            records = RecordBuffer(buffer.data[:got])
            found = chosen().walk(records, 0, got)
            if len(found.positions):
                columns = chosen().columns(records, found.positions)
                drop_bad(columns, position, [])
                sound = columns["position"]
                ends = columns["end"]
                room = found.stopped_at if most is None else start + most - position
                fitting = int(np.searchsorted(ends, room, side="right"))
                last = _last_whole(records, sound[:fitting])
                end = end if last is None else position + last
                if fitting < len(sound):
                    if end > start:
                        return end, None
                    # At least one record, however large.
                    first = _last_whole(records, sound[fitting : fitting + 1])
                    if first is not None:
                        return position + first, None
            position += found.stopped_at
            left = file.to_offset - position
            if found.magic == record.BLANK_MAGIC and found.size == left:
                return (file.to_offset, None) if end == position else (end, "a torn record")
            if len(buffer) < min(log_files.CHUNK_BYTES, left):
                buffer = np.empty(min(log_files.CHUNK_BYTES, left), dtype=np.uint8)
            if may_be_record(found.size, found.magic, left):
                if found.size > len(buffer):
                    buffer = np.empty(found.size, dtype=np.uint8)
                continue
            if found.stopped_at and left >= record.BLANK.size > got - found.stopped_at:
                continue
            if end < position:
                return end, "a torn record"
            zeros = found.size == found.magic == 0
            return end, None if zeros else record_problem(found.size, found.magic, left)
    return end, None


def _last_whole(records: RecordBuffer, positions: NDArray[np.int64]) -> int | None:
    """Return the end of the last record whose body has a valid checksum, or None.

    The log is append-only, so an incomplete record is at the end.
    """
    data = records.data
    for at in positions[::-1].tolist():
        one = chosen().columns(records, np.array([at]))
        body = data[int(one["body_from"][0]) : int(one["body_to"][0])]
        if not body or zlib.crc32(body) & record.CRC_MASK == one["body_crc"][0]:
            return int(one["end"][0])
    return None
