"""Writes samples to one file per hour, which the lake ingests (docs/lake.md).

The lake reads only these files and turns them into `bronze.samples`; the collector doesn't depend
on the lake. Files appear atomically and never change. An hour is written if its file is missing, so
there is no other record of which hours are done.

A file is gzip-compressed JSON lines. The first line is a `Head`, each other line a `SampledLine`:
one metric of one subject in the minutes of the hour for which it is known.
"""

from __future__ import annotations

import gzip
import os
import re
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from console.observe.history import metrics
from console.observe.history.latency import BOUNDS_MS
from console.observe.history.metrics import ALL, WHOLE, Kind
from console.observe.history.points import MAX, SUM, WEIGHT
from console.observe.history.tiers import HOUR_MS, MIDDLE, MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from console.observe.history.metrics import Column, Subject
    from console.observe.history.points import Points
    from console.observe.history.store import HistoryStore

VERSION = 1
FOLDER = "samples"
SUFFIX = ".jsonl.gz"
KEPT_HOURS = 72
"""A broker's default log retention; a lake that was down for longer has a gap."""
CLOSED_AFTER_MS = 5 * MINUTE_MS
"""No more data is added to an hour this long after it ended."""
SUBJECTS_A_STEP = 100
SOURCE = "samples_source"
"""The key under which a history stores its name."""
_LEVEL = 1
_NAME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}Z" + re.escape(SUFFIX))
_DRAFT = re.compile(_NAME.pattern + r"\.tmp")
_HISTOGRAMS = frozenset({metrics.PUT_TOOK.code, metrics.GET_TOOK.code, metrics.FLUSH_TOOK.code})


class Head(msgspec.Struct):
    """The first line of a file.

    Attributes:
        source: the name of the history.
        hour_ms: when the hour began.
    """

    version: int
    source: str
    hour_ms: int


class SampledLine(msgspec.Struct, omit_defaults=True):
    """A metric of a subject, with a value of `Points` for each minute.

    Attributes:
        name: a broker's ID, a process's name, or the language and version of clients: for consumers
            their group is in `group`, for producers it precedes this with an @.
        part: a queue, or a bucket of a histogram with the upper bound `at_most_ms`.
        minutes: the minutes of the hour.
    """

    kind: str
    metric: str
    unit: str
    is_counter: bool
    minutes: list[int]
    weights: list[int]
    sums: list[int]
    maxima: list[int]
    broker: str = ""
    topic: str = ""
    group: str = ""
    name: str = ""
    part: int | None = None
    at_most_ms: float | None = None


class HourFiles:
    """Writes complete hours to a directory, and deletes old files. Not thread-safe."""

    def __init__(self, store: HistoryStore, folder: Path) -> None:
        self._store = store
        self._folder = folder

    def write(self, now_ms: int) -> Iterator[None]:
        """Write missing hours, oldest first; yields between steps, and the caller may stop there.

        Raises:
            HistoryError: the history can't be read.
            OSError: the directory can't be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        end = (now_ms - CLOSED_AFTER_MS) // HOUR_MS
        wanted = {name_of(hour): hour for hour in range(end - KEPT_HOURS, end)}
        there = {path.name for path in self._folder.iterdir()}
        # This also deletes incomplete files, including those of other processes.
        for name in there - wanted.keys():
            if _DRAFT.fullmatch(name) or (_NAME.fullmatch(name) and name < min(wanted)):
                (self._folder / name).unlink(missing_ok=True)
        for name, hour in wanted.items():
            if name not in there:
                yield from self._write_hour(hour, self._folder / name)
                yield

    def _write_hour(self, hour: int, path: Path) -> Iterator[None]:
        draft = path.with_name(f"{path.name}.tmp")
        subjects = list(self._store.all_subjects().items())
        with draft.open("wb") as file:
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=0) as lines:
                lines.write(_encoded(Head(VERSION, self._source(), hour * HOUR_MS)))
                for at in range(0, len(subjects), SUBJECTS_A_STEP):
                    some = subjects[at : at + SUBJECTS_A_STEP]
                    for line in self._lines(some, hour):
                        lines.write(_encoded(line))
                    yield
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _lines(self, subjects: list[tuple[Subject, int]], hour: int) -> Iterator[SampledLine]:
        slots = HOUR_MS // MIDDLE.step_ms
        numbers = [number for _, number in subjects]
        read = self._store.read(numbers, MIDDLE, hour * slots, slots)
        for subject, number in subjects:
            for row, column in enumerate(read[number].columns):
                line = _line(subject, column, read[number], row)
                if line is not None:
                    yield line

    def _source(self) -> str:
        found = self._store.noted(SOURCE)
        if found is None:
            found = uuid.uuid4().hex.encode()
            self._store.note(SOURCE, found)
        return found.decode()


def name_of(hour: int) -> str:
    """Return the name of an hour's file; hours are counted from 1970."""
    return datetime.fromtimestamp(hour * HOUR_MS / 1000, UTC).strftime("%Y-%m-%dT%HZ") + SUFFIX


def _line(subject: Subject, column: Column, points: Points, row: int) -> SampledLine | None:
    """Return one metric of an hour, or None if it is unknown in every minute."""
    metric = ALL.get(column.code)
    known = points.table[WEIGHT, row].nonzero()[0]
    if metric is None or not len(known):
        return None
    weights, sums, maxima = (
        points.table[which, row, known].tolist() for which in (WEIGHT, SUM, MAX)
    )
    named = {"name": subject.name}
    if subject.kind == metrics.PROGRESS:
        group, _, topic = subject.name.partition("@")
        named = {"group": group, "topic": topic}
    elif subject.kind in (metrics.TOPIC, metrics.GROUP):
        named = {subject.kind: subject.name}
    elif subject.kind == metrics.CONSUMERS:
        group, _, version = subject.name.partition("@")
        named = {"group": group, "name": version}
    is_bucket = column.code in _HISTOGRAMS and column.part < len(BOUNDS_MS)
    return SampledLine(
        kind=subject.kind,
        broker=subject.broker,
        metric=metric.name,
        unit=metric.unit,
        is_counter=metric.kind is Kind.COUNTER,
        part=None if column.part == WHOLE else column.part,
        at_most_ms=BOUNDS_MS[column.part] if is_bucket else None,
        minutes=known.tolist(),
        weights=weights,
        sums=sums,
        maxima=maxima,
        **named,
    )


def _encoded(line: Head | SampledLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"
