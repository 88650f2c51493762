"""The store's files, read-only: the only opener of them outside the broker.

A plan takes a picture of a store that may be appended to meanwhile: the readable end of the log
first, then ranges of files that start and end at records, then each range is decoded by itself,
by any process that sees the same files. Records are found by following their sizes; ConsumeQueue
units are used where sizes cannot help: to cut one file into several ranges, to find the end
without walking the whole log, and to find the next sound record behind damage.

Files are read with pread, never mapped: a disk error is then an answer, not a dead process, and
bytes do not change under the decoder.

Invariant: nothing here writes, creates, locks or renames.
Invariant: each byte of `[log_from, log_to)` is in exactly one split; a split yields each sound
record in it once and names each range it could not read once.
"""

from __future__ import annotations

import heapq
import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from analytics.decoding import (
    MESSAGE_MAGICS,
    RECORD_SIZE_MIN,
    Damage,
    RecordDecoder,
    RowFilter,
    may_be_record,
    walk,
)
from analytics.errors import ReportError
from broker_core.errors import CorruptRecordError
from broker_core.formats import cq_unit, paths, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray


logger = logging.getLogger(__name__)

SPLIT_BYTES_DEFAULT = 64 * 1024 * 1024
SPLIT_BYTES_MIN = 64 * 1024
# Read and decoded at once; a larger record is read whole.
CHUNK_BYTES = 16 * 1024 * 1024
# A split with more damage than this is given up at once: its medium is gone.
DAMAGES_PER_SPLIT_MAX = 1000
# Store timestamps are the broker's wall clock, which may have been set back: files whose times
# lie outside the wanted range by more than this are not opened at all.
CLOCK_STEP_MS_MAX = 10 * 60 * 1000
# How far back a queue is searched for a unit whose record is really there (a torn tail).
UNITS_LOOKED_BACK_MAX = 4096


_NO_COLUMNS = pa.schema([])
_BODY_ONLY = pa.schema([pa.field("body", pa.binary())])


class Split(NamedTuple):
    """A range of one CommitLog file that starts at a record; offsets are absolute."""

    path: str
    file_from_offset: int
    commit_log_from: int
    commit_log_to: int

    @property
    def size(self) -> int:
        return self.commit_log_to - self.commit_log_from


class Unit(NamedTuple):
    """One unit of a ConsumeQueue."""

    commit_log_offset: int
    size: int
    tags_code: int


class LogFile(NamedTuple):
    """One CommitLog file."""

    path: Path
    from_offset: int
    size: int

    @property
    def to_offset(self) -> int:
        return self.from_offset + self.size


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What will be read: `[log_from, log_to)` of the log, in splits, as of one moment.

    `skipped_bytes` lie in files outside the wanted time. `tail` says what stands behind the
    readable end when that is neither the end of a file nor untouched zeros.
    """

    splits: list[Split]
    log_from: int
    log_to: int
    skipped_bytes: int
    tail: Damage | None

    @property
    def split_bytes(self) -> int:
        return sum(split.size for split in self.splits)

    def shares(self, share_bytes: int) -> list[tuple[Split, ...]]:
        """Return the splits in tasks' shares: many small files must not be many small tasks."""
        shares: list[tuple[Split, ...]] = []
        share: list[Split] = []
        size = 0
        for split in self.splits:
            if share and size + split.size > share_bytes:
                shares.append(tuple(share))
                share, size = [], 0
            share.append(split)
            size += split.size
        return [*shares, tuple(share)] if share else shares


class StoreReader:
    """Plans reading a store directory and reads the plan's splits. Any process; holds no files."""

    def __init__(
        self,
        store_path: Path,
        *,
        commit_log_path: Path | None = None,
        split_bytes: int = SPLIT_BYTES_DEFAULT,
    ) -> None:
        """`commit_log_path` is storePathCommitLog where the broker's configuration sets it."""
        places = paths.StorePaths.of(str(store_path), str(commit_log_path or ""))
        self._store_path = places.root
        self._commit_log_path = places.commit_log
        self._commit_log_is_elsewhere = commit_log_path is not None
        self._queues = _ConsumeQueues(places.consume_queue)
        self._split_bytes = max(SPLIT_BYTES_MIN, split_bytes)

    def plan(
        self,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        from_offset: int | None = None,
        to_offset: int | None = None,
    ) -> ReadPlan:
        """Take the picture. `to_offset` must be a `log_to` of an earlier plan when given.

        Raises:
            ReportError: there is no such store, or it may not be read.
        """
        files = self._log_files()
        if not files:
            return ReadPlan([], 0, 0, 0, None)
        log_from = files[0].from_offset
        if to_offset is None:
            log_to, tail = self._readable_end(files)
        else:
            log_to, tail = min(to_offset, files[-1].to_offset), None
        if from_offset is not None:
            log_from = max(log_from, from_offset)
        splits = self._splits(files, log_from, max(log_from, log_to))
        wanted = self._within_time(splits, from_ms, to_ms)
        kept = {split.commit_log_from for split in wanted}
        skipped = sum(split.size for split in splits if split.commit_log_from not in kept)
        return ReadPlan(wanted, log_from, max(log_from, log_to), skipped, tail)

    def read(
        self,
        split: Split,
        schema: pa.Schema,
        rows: RowFilter | None = None,
        *,
        check_crc: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the split's rows. Damage becomes rows too where the schema has that column."""
        decoder = RecordDecoder(schema, rows, check_crc=check_crc)
        reading = _SplitReading(split, decoder, self._queues)
        for batch in reading.batches():
            if batch.num_rows:
                yield batch
        if "damage" not in schema.names:
            for damage in reading.damages:
                logger.warning("damaged: file=%s commit_log_from=%d commit_log_to=%d: %s", *damage)
        elif reading.damages:
            yield decoder.damage_batch(reading.damages)

    def damages(self, split: Split) -> list[Damage]:
        """Return what cannot be read in a split, bodies' checksums apart."""
        decoder = RecordDecoder(_NO_COLUMNS, RowFilter(include_system_topics=True))
        reading = _SplitReading(split, decoder, self._queues)
        for _ in reading.batches():
            pass
        return reading.damages

    def _log_files(self) -> list[LogFile]:
        directory = self._commit_log_path
        try:
            entries = [
                (entry.name, Path(entry.path), entry.stat().st_size)
                for entry in os.scandir(directory)
                if entry.is_file()
            ]
        except FileNotFoundError:
            if self._store_path.is_dir() and not self._commit_log_is_elsewhere:
                return []  # a store that has never been written to
            missing = directory if self._store_path.is_dir() else self._store_path
            raise ReportError(f"There is no store at {missing}: no such directory.") from None
        except OSError as error:
            raise ReportError(f"{directory} cannot be read: {error.strerror}.") from error
        files = [
            LogFile(path, from_offset, size)
            for name, path, size in entries
            if size and (from_offset := paths.parse_offset_file_name(name)) is not None
        ]
        return sorted(files, key=lambda file: file.from_offset)

    def _readable_end(self, files: list[LogFile]) -> tuple[int, Damage | None]:
        """Return where the last whole record ends, with what stands behind it.

        The last unit of a ConsumeQueue whose record is there gives a place near the end, the
        last file that starts with a record another; from the later of the two sizes are followed.
        """
        start = files[0].from_offset
        for file in reversed(files):
            if _record_size_at(file, file.from_offset):
                start = file.from_offset
                break
        start = max(start, self._queues.last_record_from(files, start))
        file = next(file for file in reversed(files) if file.from_offset <= start)
        end, reason = _follow(file, start)
        tail = Damage(str(file.path), end, file.to_offset, reason) if reason else None
        return end, tail

    def _splits(self, files: list[LogFile], log_from: int, log_to: int) -> list[Split]:
        found: list[Split] = []
        expected = log_from
        for file in files:
            start, end = max(file.from_offset, expected), min(file.to_offset, log_to)
            if start > expected:
                # A file is missing: reading it says so.
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
        while wanted + self._split_bytes // 2 < end:
            at = self._queues.record_at_or_after(file, wanted, end)
            if at is None:
                break
            cuts.append(at)
            wanted = at + self._split_bytes
        return cuts

    @staticmethod
    def _within_time(splits: list[Split], from_ms: int | None, to_ms: int | None) -> list[Split]:
        """Drop the splits that were surely stored before or after the wanted time."""
        if from_ms is None and to_ms is None:
            return splits
        step = CLOCK_STEP_MS_MAX
        starts = [_store_timestamp_ms(split) for split in splits]
        kept: list[Split] = []
        for split, first, following in zip(splits, starts, [*starts[1:], None], strict=True):
            too_new = first is not None and to_ms is not None and first - step >= to_ms
            too_old = following is not None and from_ms is not None and following + step < from_ms
            if not too_new and not too_old:
                kept.append(split)
        return kept


class _SplitReading:
    """Reads one split: chunk after chunk of whole records, stepping over what is damaged."""

    def __init__(self, split: Split, decoder: RecordDecoder, queues: _ConsumeQueues) -> None:
        self.damages: list[Damage] = []
        self._split = split
        self._decoder = decoder
        self._queues = queues
        self._chunk_bytes = CHUNK_BYTES

    def batches(self) -> Iterator[pa.RecordBatch]:
        split = self._split
        try:
            with _opened(Path(split.path)) as descriptor:
                yield from self._batches(descriptor)
        except FileNotFoundError:
            # Never there, or expired since the plan was made.
            self._damage(split.commit_log_from, split.commit_log_to, "the file is not there")
        except OSError as error:
            self._damage(split.commit_log_from, split.commit_log_to, _why(error))

    def _batches(self, descriptor: int) -> Iterator[pa.RecordBatch]:
        split = self._split
        position, to = split.commit_log_from, split.commit_log_to
        buffer = np.empty(min(self._chunk_bytes, to - position), dtype=np.uint8)
        while position < to:
            if len(self.damages) >= DAMAGES_PER_SPLIT_MAX:
                self._damage(position, to, "too much damage before; the rest was not read")
                return
            wanted = min(self._chunk_bytes, to - position)
            if wanted > len(buffer):
                buffer = np.empty(wanted, dtype=np.uint8)
            try:
                got = _pread(descriptor, buffer[:wanted], position - split.file_from_offset)
            except OSError as error:
                position = self._resume(descriptor, position, position + wanted, _why(error))
                continue
            if got < wanted:
                self._damage(position + got, to, "the file is shorter than it was")
                to = position + got
            chunk = buffer[:got]
            found = walk(chunk, 0, got)
            stopped_at = position + found.stopped_at
            cut = may_be_record(found.size, found.magic, to - stopped_at)
            cut = cut or (got - found.stopped_at < record.BLANK.size <= to - stopped_at)
            blank = found.magic == record.BLANK_MAGIC and found.size == to - stopped_at
            damaged = stopped_at < to and not cut and not blank
            search_from = damage_from = stopped_at
            if len(found.positions):
                batch, bad = self._decoder.decode(chunk, found.positions, position)
                if damaged and bad and max(bad).position == found.positions[-1]:
                    # Its size led here, and its size is wrong: look for records inside it, too.
                    damage_from = position + int(found.positions[-1])
                    bad.remove(max(bad))
                    search_from = damage_from + 1
                for one in sorted(bad):
                    at = position + one.position
                    self._damage(at, at + one.size, one.reason)
                yield batch
            if damaged:
                reason = _why_no_record(found.size, found.magic, to - stopped_at)
                position = self._resume(descriptor, damage_from, search_from, reason)
                continue
            if blank:
                return
            if cut and not found.stopped_at:
                self._chunk_bytes = max(self._chunk_bytes, found.size)
            position = stopped_at

    def _resume(self, descriptor: int, damage_from: int, search_from: int, reason: str) -> int:
        """Note damage; return where reading goes on: at the next sound record, or the end.

        A ConsumeQueue is believed before the bytes: a body may hold what looks like a record.
        """
        split = self._split
        file = LogFile(Path(split.path), split.file_from_offset, split.commit_log_to)
        file = file._replace(size=split.commit_log_to - split.file_from_offset)
        after = self._queues.record_at_or_after(file, search_from + 1, split.commit_log_to)
        if after is None:
            after = _scan(descriptor, file, search_from + 1)
        resumed = split.commit_log_to if after is None else after
        self._damage(damage_from, resumed, reason)
        return resumed

    def _damage(self, commit_log_from: int, commit_log_to: int, reason: str) -> None:
        self.damages.append(Damage(self._split.path, commit_log_from, commit_log_to, reason))


class _ConsumeQueues:
    """The units of all ConsumeQueues, as a hint to where records start; each is checked."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._listed: list[_QueueUnits] | None = None

    def record_at_or_after(self, file: LogFile, offset: int, end: int) -> int | None:
        """Return the least offset in `[offset, end)` that a queue knows and a sound record has."""
        for _ in range(UNITS_LOOKED_BACK_MAX):
            found = [queue.first_at_or_after(offset) for queue in self._queues()]
            candidates = [at for at in found if at is not None and at < end]
            if not candidates:
                return None
            nearest = min(candidates)
            if _record_size_at(file, nearest):
                return nearest
            offset = nearest + 1
        return None

    def last_record_from(self, files: list[LogFile], start: int) -> int:
        """Return the greatest offset from `start` on that a queue knows and a record has."""
        newest = [
            (-unit.commit_log_offset, number, index)
            for number, queue in enumerate(self._queues())
            for index, unit in [queue.last()]
            if unit is not None
        ]
        heapq.heapify(newest)
        for _ in range(UNITS_LOOKED_BACK_MAX):
            if not newest or -newest[0][0] <= start:
                break
            offset, number, index = -newest[0][0], newest[0][1], newest[0][2]
            for file in files:
                if file.from_offset <= offset < file.to_offset and _record_size_at(file, offset):
                    return offset
            # Dispatched, and not in the log: a queue that survived better than the log's tail.
            before = self._queues()[number].unit(index - 1) if index else None
            if before is None:
                heapq.heappop(newest)
            else:
                heapq.heapreplace(newest, (-before.commit_log_offset, number, index - 1))
        return start

    def _queues(self) -> list[_QueueUnits]:
        if self._listed is None:
            self._listed = [
                queue
                for topic in _directories(self._directory)
                for path in _directories(topic)
                if (queue := _QueueUnits.found_in(path)) is not None
            ]
        return self._listed


@dataclass(slots=True)
class _QueueUnits:
    """The units of one (topic, queue_id) on disk, numbered over all its files."""

    files: list[Path]
    units_per_file: int

    @classmethod
    def found_in(cls, directory: Path) -> _QueueUnits | None:
        try:
            named = sorted(
                (entry.name, Path(entry.path), entry.stat().st_size)
                for entry in os.scandir(directory)
                if paths.parse_offset_file_name(entry.name) is not None and entry.is_file()
            )
        except OSError:
            return None
        if not named:
            return None
        return cls([path for _, path, _ in named], named[0][2] // cq_unit.UNIT_SIZE)

    def unit(self, index: int) -> Unit | None:
        """Return a unit, None where nothing has been written."""
        number, within = divmod(index, self.units_per_file)
        if index < 0 or number >= len(self.files):
            return None
        try:
            with _opened(self.files[number]) as descriptor:
                data = os.pread(descriptor, cq_unit.UNIT_SIZE, within * cq_unit.UNIT_SIZE)
        except OSError:
            return None
        if len(data) < cq_unit.UNIT_SIZE:
            return None
        unit = Unit(*cq_unit.UNIT.unpack(data))
        return unit if unit.size > 0 else None

    def count(self) -> int:
        """Return how many units have been written; they are followed by zeros."""
        return self._first_index(lambda unit: unit is None)

    def last(self) -> tuple[int, Unit | None]:
        index = self.count() - 1
        return index, self.unit(index)

    def first_at_or_after(self, commit_log_offset: int) -> int | None:
        index = self._first_index(
            lambda unit: unit is None or unit.commit_log_offset >= commit_log_offset
        )
        unit = self.unit(index)
        return None if unit is None else unit.commit_log_offset

    def _first_index(self, claim: Callable[[Unit | None], bool]) -> int:
        low, high = 0, len(self.files) * self.units_per_file
        while low < high:
            middle = (low + high) // 2
            if claim(self.unit(middle)):
                high = middle
            else:
                low = middle + 1
        return low


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _directories(directory: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(directory) if entry.is_dir())
    except OSError:
        return []


def _pread(descriptor: int, buffer: NDArray[np.uint8], position: int) -> int:
    """Fill the buffer from a position in the file; return less than its size at the end only."""
    view = buffer.data
    got = 0
    while got < len(view) and (count := os.preadv(descriptor, [view[got:]], position + got)):
        got += count
    return got


def _record_size_at(file: LogFile, offset: int, *, check_crc: bool = False) -> int:
    """Return the size of the sound record at an offset of the log, 0 when there is none."""
    try:
        with _opened(file.path) as descriptor:
            return _sound_size(descriptor, file, offset, check_crc=check_crc)
    except OSError:
        return 0


def _sound_size(descriptor: int, file: LogFile, offset: int, *, check_crc: bool = False) -> int:
    at = offset - file.from_offset
    head = os.pread(descriptor, record.BLANK.size, at)
    if len(head) < record.BLANK.size:
        return 0
    size, magic = record.BLANK.unpack(head)
    if not may_be_record(size, magic, file.to_offset - offset):
        return 0
    data = memoryview(os.pread(descriptor, size, at))
    try:
        return record.examine(data, 0, len(data), offset, check_crc=check_crc).size
    except CorruptRecordError:
        return 0


def _store_timestamp_ms(split: Split) -> int | None:
    """Return when a split's first record was stored, None when that cannot be known."""
    try:
        with _opened(Path(split.path)) as descriptor:
            size = split.commit_log_to - split.file_from_offset
            file = LogFile(Path(split.path), split.file_from_offset, size)
            if not _sound_size(descriptor, file, split.commit_log_from):
                return None
            at = split.commit_log_from - split.file_from_offset
            return record.store_timestamp_of(
                memoryview(os.pread(descriptor, RECORD_SIZE_MIN, at)), 0
            )
    except OSError:
        return None


def _follow(file: LogFile, start: int) -> tuple[int, str | None]:
    """Return where the last sound record from `start` on ends, in this file, and what is there.

    The reason is None for untouched zeros, and at the end of a full file.
    """
    end = start
    buffer = np.empty(min(CHUNK_BYTES, file.to_offset - start), dtype=np.uint8)
    decoder = RecordDecoder(_BODY_ONLY, RowFilter(include_system_topics=True))
    position = start
    with _opened(file.path) as descriptor:
        while position < file.to_offset:
            try:
                got = _pread(descriptor, buffer, position - file.from_offset)
            except OSError as error:
                return end, _why(error)
            if got < min(len(buffer), file.to_offset - position):
                file = file._replace(size=position + got - file.from_offset)
            got = min(got, file.to_offset - position)
            found = walk(buffer[:got], 0, got)
            if len(found.positions):
                _, bad = decoder.decode(buffer[:got], found.positions, position)
                unsound = {one.position for one in bad}
                sound = [at for at in found.positions.tolist() if at not in unsound]
                if sound:
                    after = [*found.positions.tolist(), found.stopped_at]
                    end = position + next(at for at in after if at > sound[-1])
            position += found.stopped_at
            left = file.to_offset - position
            if found.magic == record.BLANK_MAGIC and found.size == left:
                return (file.to_offset, None) if end == position else (end, "a torn record")
            if may_be_record(found.size, found.magic, left):
                if found.size > len(buffer):
                    buffer = np.empty(found.size, dtype=np.uint8)
                continue
            if found.stopped_at and left >= record.BLANK.size > got - found.stopped_at:
                continue
            if end < position:
                return end, "a torn record"
            zeros = found.size == found.magic == 0
            return end, None if zeros else _why_no_record(found.size, found.magic, left)
    return end, None


def _scan(descriptor: int, file: LogFile, position: int) -> int | None:
    """Return the next offset at which the bytes themselves are a sound record."""
    step = CHUNK_BYTES
    while position < file.to_offset:
        try:
            data = os.pread(
                descriptor, min(step, file.to_offset - position), position - file.from_offset
            )
        except OSError:
            position += step
            continue
        if len(data) < RECORD_SIZE_MIN:
            return None
        for magic in (record.MESSAGE_MAGIC_BYTES, record.MESSAGE_MAGIC_V2_BYTES):
            at = data.find(magic)
            while at >= 0:
                offset = position + at - record.MAGIC_POSITION
                if at >= record.MAGIC_POSITION and _sound_size(descriptor, file, offset):
                    return offset
                at = data.find(magic, at + 1)
        position += len(data) - record.BLANK.size
    return None


def _why_no_record(size: int, magic: int, left: int) -> str:
    if left < record.BLANK.size:
        return "too few bytes for a record"
    if size == magic == 0:
        return "zeros where a record should be"
    if magic not in MESSAGE_MAGICS:
        return f"illegal magic code 0x{magic & 0xFFFFFFFF:08X}"
    return f"size {size} does not fit"


def _why(error: OSError) -> str:
    return f"the disk answers: {error.strerror or error}"
