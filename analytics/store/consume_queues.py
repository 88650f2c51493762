"""ConsumeQueue units, used as hints for where records start; every hint is checked in the log."""

from __future__ import annotations

import heapq
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from analytics.store.log_files import LogFile, PlaceInQueue, opened, record_size_at
from broker_core.formats import cq_unit, paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

# How far back to search a queue for a unit whose record is in the log (the tail may be torn).
UNITS_LOOKED_BACK_MAX = 4096
TICK_NS_MAX = 2_000_000_000
T = TypeVar("T")
_NO_INTS = np.zeros(0, dtype=np.int64)


class Unit(NamedTuple):
    """One unit of a ConsumeQueue."""

    commit_log_offset: int
    size: int
    tags_code: int


class ConsumeQueues:
    """The units of all ConsumeQueues of a store.

    A directory is listed when it is first needed, and listed again only after `refresh`, if it
    has changed since.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._within: dict[Path, _Listed[list[Path]]] = {}
        self._queue_in: dict[Path, _Listed[_QueueUnits | None]] = {}
        self._all: list[_QueueUnits] | None = None

    def refresh(self) -> None:
        """Check for new queues and files at the next access."""
        self._all = None
        for within in self._within.values():
            within.is_checked = False
        for queue in self._queue_in.values():
            queue.is_checked = False

    def has_any(self) -> bool:
        """Return whether there is any queue."""
        if not self._all:
            self.refresh()  # queues may be created meanwhile
        return bool(self._queues())

    def counts(self) -> dict[str, int]:
        """Return the number of queues of each topic, from its highest queue ID."""
        found = {}
        for topic in self._directories(self._directory):
            ids = [
                int(queue.name)
                for queue in self._directories(topic)
                if queue.name.isascii() and queue.name.isdigit()
            ]
            found[topic.name] = max(ids, default=-1) + 1
        return found

    def units(self, topic: str, queue_id: int, first: int, behind: int) -> tuple[Ints, Ints]:
        """Return offsets and sizes of the records of the queue offsets `[first, behind)`.

        Ascending; units without a record or out of order are left out.
        """
        queue = self._queue(topic, queue_id)
        if queue is None:
            return _NO_INTS, _NO_INTS
        base = queue.first_queue_offset
        found = queue.read(max(0, first - base), behind - base)
        offsets, sizes = found["offset"].astype(np.int64), found["size"].astype(np.int64)
        kept = (sizes > 0) & (sizes != cq_unit.FILLER_SIZE) & (offsets >= 0)
        offsets, sizes = offsets[kept], sizes[kept]
        ends = np.maximum.accumulate(offsets + sizes) if len(offsets) else offsets
        in_order = np.ones(len(offsets), dtype=bool)
        in_order[1:] = offsets[1:] >= ends[:-1]
        return offsets[in_order], sizes[in_order]

    def slices(
        self, topic: str, queue_ids: frozenset[int] | None, log_from: int, log_to: int
    ) -> list[tuple[int, int, int]]:
        """Return the ID of each queue of a topic, with the queue offsets for a range of the log."""
        found: list[tuple[int, int, int]] = []
        for directory in self._directories(self._directory / topic):
            if not (directory.name.isascii() and directory.name.isdigit()):
                continue
            queue_id = int(directory.name)
            if queue_ids is not None and queue_id not in queue_ids:
                continue
            queue = self._queue(topic, queue_id)
            if queue is not None:
                first, behind = queue.index_from(log_from), queue.index_from(log_to)
                base = queue.first_queue_offset
                found.append((queue_id, base + first, base + behind))
        return sorted(one for one in found if one[1] < one[2])

    def _queue(self, topic: str, queue_id: int) -> _QueueUnits | None:
        return self._queue_at(self._directory / topic / str(queue_id))

    def _queue_at(self, directory: Path) -> _QueueUnits | None:
        return _listed(self._queue_in, directory, _QueueUnits.found_in)

    def _directories(self, directory: Path) -> list[Path]:
        return _listed(self._within, directory, _directories)

    def confirms(self, place: PlaceInQueue, commit_log_offset: int) -> bool:
        """Return whether the unit at a queue offset points to this offset of the log."""
        queue = self._queue(place.topic, place.queue_id)
        unit = None if queue is None else queue.unit_of(place.queue_offset)
        return unit is not None and unit.commit_log_offset == commit_log_offset

    def record_at_or_after(self, file: LogFile, offset: int, end: int) -> int | None:
        """Return the least offset in `[offset, end)` that has both a unit and a sound record."""
        for _ in range(UNITS_LOOKED_BACK_MAX):
            found = [queue.first_at_or_after(offset) for queue in self._queues()]
            candidates = [at for at in found if at is not None and at < end]
            if not candidates:
                return None
            nearest = min(candidates)
            if record_size_at(file, nearest):
                return nearest
            offset = nearest + 1
        return None

    def last_record_from(self, files: list[LogFile], start: int) -> int:
        """Return the greatest offset from `start` on that has both a unit and a record."""
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
                if file.from_offset <= offset < file.to_offset and record_size_at(file, offset):
                    return offset
            # The unit's record isn't in the log: after a crash, the queue can be ahead of the log.
            before = self._queues()[number].unit(index - 1) if index else None
            if before is None:
                heapq.heappop(newest)
            else:
                heapq.heapreplace(newest, (-before.commit_log_offset, number, index - 1))
        return start

    def _queues(self) -> list[_QueueUnits]:
        if self._all is None:
            self._all = [
                queue
                for topic in self._directories(self._directory)
                for path in self._directories(topic)
                if (queue := self._queue_at(path)) is not None
            ]
        return self._all


@dataclass(slots=True)
class _Listed(Generic[T]):
    """The entries of a directory; `changed_ns` is when it changed, None if it doesn't exist."""

    found: T
    changed_ns: int | None
    listed_ns: int
    is_checked: bool = True

    def is_of(self, changed_ns: int | None) -> bool:
        """Return whether the listing is of a directory with this modification time.

        A directory that changed shortly before it was listed may have changed again within the same
        tick of the file system's clock.
        """
        if changed_ns is None or changed_ns != self.changed_ns:
            return False
        return self.listed_ns - changed_ns > TICK_NS_MAX


def _listed(known: dict[Path, _Listed[T]], directory: Path, find: Callable[[Path], T]) -> T:
    """Return the entries of a directory, listing it again only if it has changed."""
    before = known.get(directory)
    if before is not None and before.is_checked:
        return before.found
    listed_ns = time.time_ns()
    try:
        changed_ns = directory.stat().st_mtime_ns
    except OSError:
        changed_ns = None
    if before is not None and before.is_of(changed_ns):
        before.is_checked = True
        return before.found
    known[directory] = _Listed(find(directory), changed_ns, listed_ns)
    return known[directory].found


@dataclass(slots=True)
class _QueueUnits:
    """The units of one (topic, queue_id) on disk, numbered over all its files."""

    files: list[Path]
    units_per_file: int
    first_queue_offset: int
    # Start at the previous count, because usually few units have been added since.
    known_count: int = 0

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
        first = int(named[0][0]) // cq_unit.UNIT_SIZE
        return cls([path for _, path, _ in named], named[0][2] // cq_unit.UNIT_SIZE, first)

    def unit_of(self, queue_offset: int) -> Unit | None:
        """Return the unit of a message by its queue offset, or None."""
        return self.unit(queue_offset - self.first_queue_offset)

    def unit(self, index: int) -> Unit | None:
        """Return a unit, or None if it isn't written."""
        number, within = divmod(index, self.units_per_file or 1)
        if index < 0 or number >= len(self.files):
            return None
        try:
            with opened(self.files[number]) as descriptor:
                return _unit_at(descriptor, within)
        except OSError:
            return None

    def count(self) -> int:
        """Return how many units are written; zeros follow them."""
        if not self._is_still(self.known_count):
            self.known_count = self._first_index(lambda unit: unit is None)
        return self.known_count

    def _is_still(self, count: int) -> bool:
        """Return whether exactly this many units are written, for a count inside a file."""
        number, within = divmod(count, self.units_per_file or 1)
        if not within or number >= len(self.files):
            return False
        try:
            with opened(self.files[number]) as descriptor:
                is_last_there = _unit_at(descriptor, within - 1) is not None
                return is_last_there and _unit_at(descriptor, within) is None
        except OSError:
            return False

    def last(self) -> tuple[int, Unit | None]:
        index = self.count() - 1
        return index, self.unit(index)

    def first_at_or_after(self, commit_log_offset: int) -> int | None:
        unit = self.unit(self.index_from(commit_log_offset))
        return None if unit is None else unit.commit_log_offset

    def index_from(self, commit_log_offset: int) -> int:
        """Return the index of the first unit that points to or past an offset of the log."""
        return self._first_index(
            lambda unit: unit is None or unit.commit_log_offset >= commit_log_offset
        )

    def read(self, first: int, behind: int) -> NDArray[np.void]:
        """Return the existing units of the indices `[first, behind)`."""
        parts: list[NDArray[np.void]] = [np.zeros(0, dtype=cq_unit.UNITS)]
        while first < behind and first // self.units_per_file < len(self.files):
            number, within = divmod(first, self.units_per_file)
            wanted = min(behind - first, self.units_per_file - within)
            try:
                with opened(self.files[number]) as descriptor:
                    size, at = wanted * cq_unit.UNIT_SIZE, within * cq_unit.UNIT_SIZE
                    data = os.pread(descriptor, size, at)
            except OSError:
                break
            parts.append(np.frombuffer(data, cq_unit.UNITS, len(data) // cq_unit.UNIT_SIZE))
            first += wanted
        return np.concatenate(parts)

    def _first_index(self, claim: Callable[[Unit | None], bool]) -> int:
        """Return the index of the first unit that meets a monotonic condition."""
        per_file = self.units_per_file
        # First find the file by its first unit, then the unit in the open file.
        low, high = 0, len(self.files)
        while low < high:
            middle = (low + high) // 2
            if claim(self.unit(middle * per_file)):
                high = middle
            else:
                low = middle + 1
        if not low:
            return 0
        number, low, high = low - 1, 0, per_file
        try:
            with opened(self.files[number]) as descriptor:
                while low < high:
                    middle = (low + high) // 2
                    if claim(_unit_at(descriptor, middle)):
                        high = middle
                    else:
                        low = middle + 1
        except OSError:
            low = 0
        return number * per_file + low


def _unit_at(descriptor: int, index: int) -> Unit | None:
    """Return a unit of an open file, or None if it isn't written.

    Raises:
        OSError: the disk failed.
    """
    data = os.pread(descriptor, cq_unit.UNIT_SIZE, index * cq_unit.UNIT_SIZE)
    if len(data) < cq_unit.UNIT_SIZE:
        return None
    unit = Unit(*cq_unit.UNIT.unpack(data))
    return unit if unit.size > 0 else None


def _directories(directory: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(directory) if entry.is_dir())
    except OSError:
        return []
