"""HistoryStore: stores samples, returns points.

Each sample is written at once as one row with all its numbers. Every few minutes `fold` adds the
rows to the blocks of every tier and deletes them. A block holds SLOTS_A_BLOCK slots of one subject
and the ID of its last row (`through`), so that an interrupted fold adds nothing twice. Readers
combine the blocks with the rows that aren't in them yet.
"""

from __future__ import annotations

import hashlib
import logging
import struct
import threading
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from broker_core.isolation import FAILURES, isolated
from console.observe.history import codec, points
from console.observe.history.metrics import Column, Subject
from console.observe.history.tiers import SLOTS_A_BLOCK, TIERS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from console.observe.history.database import Database
    from console.observe.history.points import Points
    from console.observe.history.tiers import Tier

    Ints = NDArray[np.int64]
    Keys = NDArray[np.uint64]

logger = logging.getLogger(__name__)

SUBJECTS_A_STEP = 200
"""Subjects that `fold` handles before it yields, so that the next sample isn't delayed."""
SUBJECTS_AT_ONCE = 400
EVENTS_MAX = 500
BYTES_MAX = 3_000_000_000
"""A year of 20,000 series, a fifth of them busy, takes a third of this."""
SAMPLE_LEVEL = 1
CACHED_BYTES_MAX = 48 << 20
CACHED_MAX = 8
T = TypeVar("T")
_PART_BITS, _CODE_BITS = 16, 8
_SUBJECT_SHIFT = _PART_BITS + _CODE_BITS


class Layout(NamedTuple):
    """The meaning of each number in a sample: sorted keys made of subject, figure and part."""

    digest: str
    keys: Keys


class Sample(NamedTuple):
    """A row: a layout's numbers at a time; `covered_ms` is 0 if the previous sample is unknown."""

    number: int
    at_ms: int
    covered_ms: int
    layout: Layout
    values: Ints


class Event(NamedTuple):
    """An event on a broker, with its time."""

    at_ms: int
    what: str
    broker: str


def layout_of(subjects: Ints, codes: Ints, parts: Ints) -> tuple[Layout, Ints]:
    """Return the layout of these subjects' columns, and the order of the keys in it."""
    table = (subjects << _SUBJECT_SHIFT | codes << _PART_BITS | parts).astype(np.uint64)
    order = np.argsort(table, kind="stable")
    ordered = table[order]
    return Layout(hashlib.sha256(ordered.tobytes()).hexdigest()[:32], ordered), order


class HistoryStore:
    """Thread-safe; one process writes (`add_sample`, `fold`, `expire`), any number read."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._lock = threading.Lock()
        self._layouts: OrderedDict[str, Layout] = OrderedDict()
        self._values: OrderedDict[int, Ints] = OrderedDict()
        self._cache: dict[Hashable, Any] = {}
        self._cache_version: tuple[object, ...] = ()

    def cached_result(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached result of `make`, recomputing it once per new sample.

        Shared views are thus only computed for their first viewer.
        """
        with self.database.transaction(writes=False):
            # An ID is reused once all rows are folded, but not with the same time.
            newest = tuple(self.database.rows("SELECT MAX(id), MAX(at_ms) FROM history_samples")[0])
        with self._lock:
            if newest != self._cache_version or len(self._cache) > CACHED_MAX:
                self._cache.clear()
                self._cache_version = newest
            if key in self._cache:
                found: T = self._cache[key]
                return found
        made = make()
        with self._lock:
            if newest == self._cache_version:
                self._cache[key] = made
        return made

    def subject_ids(self, subjects: Iterable[Subject], now_ms: int) -> dict[Subject, int]:
        """Return the IDs of subjects, creating missing ones."""
        with self.database.transaction(writes=True):
            rows = [(*subject, now_ms) for subject in subjects]
            self.database.run_many(
                "INSERT INTO history_subjects (kind, broker, name, seen_ms) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (kind, name, broker) DO UPDATE SET seen_ms = excluded.seen_ms",
                rows,
            )
        return self.all_subjects()

    def all_subjects(self) -> dict[Subject, int]:
        with self.database.transaction(writes=False):
            rows = self.database.rows("SELECT kind, broker, name, id FROM history_subjects")
        return {Subject(kind, broker, name): int(each) for kind, broker, name, each in rows}

    def find(self, kind: str, names: Sequence[str]) -> dict[Subject, int]:
        """Return the subjects of a kind with these names, on any broker."""
        found = {}
        with self.database.transaction(writes=False):
            for low in range(0, len(names), SUBJECTS_AT_ONCE):
                some = names[low : low + SUBJECTS_AT_ONCE]
                rows = self.database.rows(
                    "SELECT broker, name, id FROM history_subjects WHERE kind = ? AND name IN "
                    f"({', '.join('?' * len(some))})",
                    (kind, *some),
                )
                for broker, name, number in rows:
                    found[Subject(kind, broker, name)] = int(number)
        return found

    def add_sample(
        self,
        source: str,
        at_ms: int,
        covered_ms: int,
        layout: Layout,
        values: Ints,
        reading: bytes,
    ) -> None:
        """Write a sample, and the reading that the next one is compared with."""
        numbers = zlib.compress(_shuffled(values), SAMPLE_LEVEL)
        with self.database.transaction(writes=True):
            if layout.digest not in self._layouts:
                self.database.run(
                    "INSERT INTO history_layouts (digest, columns) VALUES (?, ?) "
                    "ON CONFLICT (digest) DO NOTHING",
                    (layout.digest, zlib.compress(layout.keys.tobytes())),
                )
            self.database.run(
                "INSERT INTO history_samples (source, at_ms, covered_ms, layout, numbers) "
                "VALUES (?, ?, ?, ?, ?)",
                (source, at_ms, covered_ms, layout.digest, numbers),
            )
            self.database.run(
                "INSERT INTO history_readings (source, at_ms, reading) VALUES (?, ?, ?) "
                "ON CONFLICT (source) DO UPDATE "
                "SET at_ms = excluded.at_ms, reading = excluded.reading",
                (source, at_ms, reading),
            )
        self._layouts[layout.digest] = layout

    def last_reading(self, source: str) -> tuple[int, bytes] | None:
        """Return the time and content of a source's last reading."""
        with self.database.transaction(writes=False):
            rows = self.database.rows(
                "SELECT at_ms, reading FROM history_readings WHERE source = ?", (source,)
            )
        return (int(rows[0][0]), bytes(rows[0][1])) if rows else None

    def note(self, name: str, note: bytes) -> None:
        """Store a note under a name, replacing the previous one."""
        with self.database.transaction(writes=True):
            self.database.run(
                "INSERT INTO history_notes (name, note) VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET note = excluded.note",
                (name, note),
            )

    def noted(self, name: str) -> bytes | None:
        with self.database.transaction(writes=False):
            rows = self.database.rows("SELECT note FROM history_notes WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else None

    def add_event(self, event: Event) -> None:
        with self.database.transaction(writes=True):
            self.database.run(
                "INSERT INTO history_events (at_ms, what, broker) VALUES (?, ?, ?)", event
            )

    def events(self, low_ms: int, high_ms: int) -> list[Event]:
        """Return the events in a time range, in order; EVENTS_MAX at most."""
        with self.database.transaction(writes=False):
            rows = self.database.rows(
                "SELECT at_ms, what, broker FROM history_events "
                f"WHERE at_ms >= ? AND at_ms < ? ORDER BY at_ms LIMIT {EVENTS_MAX}",
                (low_ms, high_ms),
            )
        return [Event(int(at), what, broker) for at, what, broker in rows]

    def samples_waiting(self) -> int:
        with self.database.transaction(writes=False):
            [(count,)] = self.database.rows("SELECT COUNT(*) FROM history_samples")
        return int(count)

    def fold(self) -> Iterator[int]:
        """Add all samples to the blocks; yields the number of subjects folded so far.

        Can be stopped and restarted at any yield.
        """
        with self.database.transaction(writes=False):
            sources = self.database.rows("SELECT DISTINCT source FROM history_samples")
        done = 0
        for (source,) in sources:
            with self.database.transaction(writes=False):
                [(last,)] = self.database.rows(
                    "SELECT MAX(id) FROM history_samples WHERE source = ?", (source,)
                )
                samples = self._samples("source = ? AND id <= ?", (source, last))
            keys, values = _one_table(samples)
            for low, high in _steps(keys):
                with self.database.transaction(writes=True):
                    done += self._fold_some(samples, keys[low:high], values[:, low:high])
                yield done
            with self.database.transaction(writes=True):
                self.database.run(
                    "DELETE FROM history_samples WHERE source = ? AND id <= ?", (source, last)
                )
                self.database.run(
                    "DELETE FROM history_layouts WHERE digest NOT IN "
                    "(SELECT layout FROM history_samples)"
                )
            self._layouts.clear()

    def _fold_some(self, samples: Sequence[Sample], keys: Keys, values: Ints) -> int:
        spans = _subject_spans(keys)
        columns = _columns(keys)
        numbers = np.array([sample.number for sample in samples])
        covered = np.array([sample.covered_ms for sample in samples])
        at = np.array([sample.at_ms for sample in samples])
        for tier in TIERS:
            slots = at // tier.step_ms
            for block in np.unique(slots // SLOTS_A_BLOCK).tolist():
                here = slots // SLOTS_A_BLOCK == block
                rows = self.database.rows(
                    "SELECT subject, through, points FROM history_blocks "
                    "WHERE tier = ? AND block = ? AND subject BETWEEN ? AND ?",
                    (tier.number, block, spans[0][0], spans[-1][0]),
                )
                before = {int(subject): (int(last), bytes(data)) for subject, last, data in rows}
                throughs = {last for last, _ in before.values()} | {0}
                made = {}
                for last in throughs:
                    new = here & (numbers > last)
                    made[last] = points.of_samples(columns, values[new], covered[new], slots[new])
                written = []
                # Most subjects are idle, so their old and new points are identical.
                alike: dict[tuple[object, ...], bytes] = {}
                for subject, low, high in spans:
                    last, data = before.get(subject, (0, b""))
                    found = made[last]
                    if found is None:
                        continue
                    more = points.part_of(found, low, high)
                    through = int(numbers[here].max())
                    key = data, more.first, more.columns, more.table.tobytes()
                    encoded = alike.get(key)
                    if encoded is None:
                        with isolated("writing a block of the history", subject):
                            encoded = alike[key] = _encoded(data, more)
                    if encoded is not None:
                        written.append((tier.number, block, subject, through, encoded))
                self.database.run_many(
                    "INSERT INTO history_blocks (tier, block, subject, through, points) "
                    "VALUES (?, ?, ?, ?, ?) ON CONFLICT (tier, block, subject) DO UPDATE "
                    "SET through = excluded.through, points = excluded.points",
                    written,
                )
        return len(spans)

    def expire(self, now_ms: int, bytes_max: int = BYTES_MAX) -> None:
        """Delete data beyond its tier's retention, or beyond `bytes_max`."""
        with self.database.transaction(writes=True):
            for tier in TIERS:
                oldest = (now_ms - tier.kept_ms) // tier.block_ms
                self.database.run(
                    "DELETE FROM history_blocks WHERE tier = ? AND block < ?",
                    (tier.number, oldest),
                )
            oldest_ms = now_ms - TIERS[-1].kept_ms
            self.database.run("DELETE FROM history_subjects WHERE seen_ms < ?", (oldest_ms,))
            self.database.run("DELETE FROM history_events WHERE at_ms < ?", (oldest_ms,))
        self._keep_within(bytes_max)

    def _keep_within(self, bytes_max: int) -> None:
        """Delete the oldest of the coarsest blocks until at most `bytes_max` remain."""
        coarsest = TIERS[-1].number
        while True:
            with self.database.transaction(writes=True):
                if self.database.bytes_used() <= bytes_max:
                    return
                [(oldest,)] = self.database.rows(
                    "SELECT MIN(block) FROM history_blocks WHERE tier = ?", (coarsest,)
                )
                if oldest is None:
                    return
                logger.warning(
                    "history over its size limit, deleting the oldest days bytes_max=%d",
                    bytes_max,
                )
                self.database.run(
                    "DELETE FROM history_blocks WHERE tier = ? AND block = ?", (coarsest, oldest)
                )

    def read(
        self, subjects: Sequence[int], tier: Tier, first: int, slots: int
    ) -> dict[int, Points]:
        """Return each subject's points in these slots of a tier, read in one transaction."""
        wanted = sorted(set(subjects))
        found = {each: points.nothing(first, slots, ()) for each in wanted}
        if not wanted:
            return found
        with self.database.transaction(writes=False):
            blocks = self._blocks(wanted, tier, first, slots)
            samples = self._samples(
                "at_ms >= ? AND at_ms < ?",
                (first * tier.step_ms, (first + slots) * tier.step_ms),
            )
        throughs: dict[tuple[int, int], int] = {}
        for block, subject, through, data in blocks:
            throughs[subject, block] = through
            try:
                found[subject] = points.add(found[subject], codec.decode(data))
            except codec.CodecError as error:
                FAILURES.report("reading a block of the history", subject, error)
        for subject, more in _waiting(samples, wanted, tier, throughs):
            found[subject] = points.add(found[subject], more)
        return found

    def _blocks(
        self, wanted: Sequence[int], tier: Tier, first: int, slots: int
    ) -> list[tuple[int, int, int, bytes]]:
        low, high = first // SLOTS_A_BLOCK, (first + slots - 1) // SLOTS_A_BLOCK
        rows = []
        for at in range(0, len(wanted), SUBJECTS_AT_ONCE):
            some = wanted[at : at + SUBJECTS_AT_ONCE]
            # Query each block by equality; a range of blocks would scan all their subjects.
            for block in range(low, high + 1):
                rows += self.database.rows(
                    "SELECT block, subject, through, points FROM history_blocks WHERE tier = ? "
                    f"AND block = ? AND subject IN ({', '.join('?' * len(some))})",
                    (tier.number, block, *some),
                )
        return [
            (int(block), int(subject), int(through), bytes(data))
            for block, subject, through, data in rows
        ]

    def _samples(self, where: str, parameters: tuple[object, ...]) -> list[Sample]:
        """Return samples in the order of writing; their numbers are cached."""
        rows = self.database.rows(
            f"SELECT id, at_ms, covered_ms, layout FROM history_samples WHERE {where} ORDER BY id",
            parameters,
        )
        samples = []
        for number, at, covered, digest in rows:
            try:
                layout, values = self._layout(digest), self._read(number)
                if len(values) != len(layout.keys):
                    raise ValueError(f"{len(values)} numbers for {len(layout.keys)} figures")
            except (ValueError, zlib.error) as error:
                FAILURES.report("reading a sample of the history", number, error)
                continue
            samples.append(Sample(int(number), int(at), int(covered), layout, values))
        return samples

    def _read(self, number: int) -> Ints:
        with self._lock:
            cached = self._values.get(number)
        if cached is not None:
            return cached
        [(data,)] = self.database.rows(
            "SELECT numbers FROM history_samples WHERE id = ?", (number,)
        )
        values = _unshuffled(zlib.decompress(data))
        with self._lock:
            self._values[number] = values
            while sum(each.nbytes for each in self._values.values()) > CACHED_BYTES_MAX:
                self._values.popitem(last=False)
        return values

    def _layout(self, digest: str) -> Layout:
        found = self._layouts.get(digest)
        if found is None:
            [(data,)] = self.database.rows(
                "SELECT columns FROM history_layouts WHERE digest = ?", (digest,)
            )
            found = Layout(digest, np.frombuffer(zlib.decompress(data), dtype=np.uint64))
            while len(self._layouts) > SUBJECTS_A_STEP:
                self._layouts.popitem(last=False)
            self._layouts[digest] = found
        return found


def _shuffled(values: Ints) -> bytes:
    return values.astype("<i8").view(np.uint8).reshape(-1, 8).T.tobytes()


def _unshuffled(data: bytes) -> Ints:
    planes = np.frombuffer(data, np.uint8).reshape(8, -1)
    return np.ascontiguousarray(planes.T).view("<i8").reshape(-1).astype(np.int64)


def _one_table(samples: Sequence[Sample]) -> tuple[Keys, Ints]:
    """Return all keys of the samples, sorted, and their values: [sample, key], or MISSING."""
    if not samples:
        return np.empty(0, dtype=np.uint64), np.empty((0, 0), dtype=np.int64)
    layouts = {sample.layout.digest: sample.layout.keys for sample in samples}
    if len(layouts) == 1:
        return samples[0].layout.keys, np.stack([sample.values for sample in samples])
    keys = np.unique(np.concatenate(list(layouts.values())))
    places = {digest: np.searchsorted(keys, each) for digest, each in layouts.items()}
    values = np.full((len(samples), len(keys)), points.MISSING, dtype=np.int64)
    for index, sample in enumerate(samples):
        values[index, places[sample.layout.digest]] = sample.values
    return keys, values


def _subject_spans(keys: Keys) -> list[tuple[int, int, int]]:
    """Return (subject, low, high) for each subject's range of the sorted keys."""
    subjects = (keys >> np.uint64(_SUBJECT_SHIFT)).astype(np.int64)
    if not len(subjects):
        return []
    starts: list[int] = np.flatnonzero(np.r_[True, subjects[1:] != subjects[:-1]]).tolist()
    spans = zip(starts, [*starts[1:], len(subjects)], strict=True)
    return [(int(subjects[low]), low, high) for low, high in spans]


def _columns(keys: Keys) -> list[Column]:
    codes = ((keys >> np.uint64(_PART_BITS)) & np.uint64((1 << _CODE_BITS) - 1)).tolist()
    parts = (keys & np.uint64((1 << _PART_BITS) - 1)).tolist()
    return [Column(code, part) for code, part in zip(codes, parts, strict=True)]


def _encoded(data: bytes, more: Points) -> bytes:
    """Add points to a block; replace a block that can't be read or extended.

    Raises:
        ValueError: the new points can't be encoded.
    """
    if data:
        try:
            return codec.encode(_together([codec.decode(data), more]))
        except (codec.CodecError, struct.error) as error:
            logger.warning("damaged history block replaced error=%s", error)
    return codec.encode(more)


def _together(parts: list[Points]) -> Points:
    """Merge points."""
    first = min(part.first for part in parts)
    end = max(part.first + part.slots for part in parts)
    return points.together(parts, first, end - first)


def _steps(keys: Keys) -> Iterator[tuple[int, int]]:
    spans = _subject_spans(keys)
    for at in range(0, len(spans), SUBJECTS_A_STEP):
        some = spans[at : at + SUBJECTS_A_STEP]
        yield some[0][1], some[-1][2]


def _waiting(
    samples: Sequence[Sample],
    wanted: Sequence[int],
    tier: Tier,
    throughs: Mapping[tuple[int, int], int],
) -> Iterator[tuple[int, Points]]:
    """Yield the points of samples that aren't in the blocks yet."""
    by_layout: dict[str, list[Sample]] = {}
    for sample in samples:
        by_layout.setdefault(sample.layout.digest, []).append(sample)
    for group in by_layout.values():
        keys = group[0].layout.keys
        edges = np.array(wanted, dtype=np.uint64) << np.uint64(_SUBJECT_SHIFT)
        lows = np.searchsorted(keys, edges)
        highs = np.searchsorted(keys, edges + np.uint64(1 << _SUBJECT_SHIFT))
        slots = np.array([sample.at_ms for sample in group]) // tier.step_ms
        covered = np.array([sample.covered_ms for sample in group])
        for subject, low, high in zip(wanted, lows.tolist(), highs.tolist(), strict=True):
            if low == high:
                continue
            kept = [
                index
                for index, sample in enumerate(group)
                if sample.number > throughs.get((subject, int(slots[index]) // SLOTS_A_BLOCK), 0)
            ]
            if not kept:
                continue
            values = np.stack([group[index].values[low:high] for index in kept])
            made = points.of_samples(_columns(keys[low:high]), values, covered[kept], slots[kept])
            if made is not None:
                yield subject, made
