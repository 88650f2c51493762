"""bronze.samples: the samples of the console's collector, by the minute, each hour once.

The collector writes finished hours as files (`console/observe/collector/hours.py` describes their
content) and doesn't depend on the lake; this module reads the files and imports nothing from the
console. The rows of some hours and the number of the last of them are one commit, so an hour is
ingested only once, even if the process is killed repeatedly. Histories have names, so several can
use one lake.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from analytics.errors import LakeError
from analytics.lake.files import FileWriter
from analytics.lake.tables import DAY, SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from analytics.lake.place import LakePlace

VERSION = 1
HOUR_MS = 3_600_000
MINUTE_US = 60_000_000
MINUTES_AN_HOUR = 60
# A new lake finds three days of hours.
HOURS_AT_ONCE = 24
ROWS_AT_ONCE = 64 * 1024
T = TypeVar("T")
_NAME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}Z\.jsonl\.gz")


class _Head(msgspec.Struct):
    version: int
    source: str
    hour_ms: int


class _Line(msgspec.Struct):
    kind: str
    metric: str
    unit: str
    is_counter: bool
    minutes: list[int]
    weights: list[int]
    sums: list[int]
    maxima: list[int]
    broker: str | None = None
    topic: str | None = None
    group: str | None = None
    name: str | None = None
    part: int | None = None
    at_most_ms: float | None = None

    def is_whole(self) -> bool:
        """Whether the hour is complete for each of its minutes."""
        lengths = {len(each) for each in (self.minutes, self.weights, self.sums, self.maxima)}
        return len(lengths) == 1 and all(0 <= each < MINUTES_AN_HOUR for each in self.minutes)


@dataclass(frozen=True, slots=True)
class IngestedHours:
    """The hours that were ingested together."""

    hours: int
    rows: int


class SampledHours:
    """Ingests the hours of a folder into a lake. Use from one thread, holding the lake's lock."""

    def __init__(
        self, place: LakePlace, folder: Path, observer: Callable[[str], None] | None = None
    ) -> None:
        """`observer` is called with the name of each finished step."""
        self._place = place
        self._folder = folder
        self._tell = observer or (lambda _: None)
        self._known: frozenset[str] = frozenset()

    def waiting(self) -> bool:
        """Return whether there may be hours to ingest; lists the folder."""
        return not frozenset(self._names()) <= self._known

    def take(self) -> IngestedHours | None:
        """Ingest the oldest hours that the lake lacks, or return None.

        Raises:
            LakeBusyError: another process wrote to the table meanwhile.
            LakeError: a file isn't one of the collector's, or the lake isn't usable.
        """
        table = SAMPLES.open(self._place)
        states: dict[str, int] = {}
        taken: list[str] = []
        for name in sorted(frozenset(self._names()) - self._known):
            head = self._head(name)
            state = _state(head.source)
            hour = head.hour_ms // HOUR_MS
            if hour < (table.transaction_version(state) or 0):
                self._known |= {name}
                continue
            taken.append(name)
            states[state] = hour + 1
            if len(taken) == HOURS_AT_ONCE:
                break
        if not taken:
            return None
        with FileWriter(self._place, SAMPLES) as writer:
            for name in taken:
                for batch in self._rows(name):
                    writer.write(batch)
        self._tell("samples written")
        SAMPLES.commit(self._place, table, writer.written, states=states)
        self._tell("samples committed")
        SAMPLES.checkpoint(self._place)
        self._known |= set(taken)
        return IngestedHours(len(taken), sum(file.rows for file in writer.written))

    def _names(self) -> Iterator[str]:
        try:
            found = list(self._folder.iterdir())
        except FileNotFoundError:
            return iter(())  # no collector has written here yet
        return (path.name for path in found if _NAME.fullmatch(path.name))

    def _head(self, name: str) -> _Head:
        for line in self._lines(name):
            head = self._read(name, line, _Head)
            if head.version != VERSION:
                raise self._refused(name, f"it has version {head.version}")
            return head
        raise self._refused(name, "it is empty")

    def _rows(self, name: str) -> Iterator[pa.RecordBatch]:
        lines = self._lines(name)
        head = self._read(name, next(lines), _Head)
        rows = _Rows(head.hour_ms)
        for text in lines:
            line = self._read(name, text, _Line)
            if not line.is_whole():
                raise self._refused(name, "a line has minutes without numbers")
            rows.add(line)
            if rows.count >= ROWS_AT_ONCE:
                yield rows.pop_batch()
        if rows.count:
            yield rows.pop_batch()

    def _lines(self, name: str) -> Iterator[bytes]:
        try:
            with gzip.open(self._folder / name) as lines:
                yield from lines
        except (OSError, EOFError, zlib.error) as error:
            raise self._refused(name, str(error)) from error

    def _read(self, name: str, line: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError as error:
            raise self._refused(name, str(error)) from error

    def _refused(self, name: str, reason: str) -> LakeError:
        return LakeError(
            f"The samples in {self._folder / name} can't be read: {reason.rstrip('.')}. Delete the "
            "file; the collector writes it again."
        )


class _Rows:
    """Rows of one hour that wait to be written."""

    def __init__(self, hour_ms: int) -> None:
        self.count = 0
        self._hour_us = hour_ms * 1000
        self._day = datetime.fromtimestamp(hour_ms / 1000, UTC).date()
        self._columns: dict[str, list[Any]] = {name: [] for name in SAMPLES.file_schema.names}

    def add(self, line: _Line) -> None:
        count = len(line.minutes)
        columns = self._columns
        columns["minute"] += [self._hour_us + each * MINUTE_US for each in line.minutes]
        columns["total"] += line.sums
        columns["highest"] += line.maxima
        columns["weight"] += line.weights
        for name, value in (
            ("kind", line.kind),
            ("broker", line.broker),
            ("topic", line.topic),
            ("consumer_group", line.group),
            ("name", line.name),
            ("metric", line.metric),
            ("unit", line.unit),
            ("is_counter", line.is_counter),
            ("part", line.part),
            ("at_most_ms", line.at_most_ms),
        ):
            columns[name] += [value] * count
        self.count += count

    def pop_batch(self) -> pa.RecordBatch:
        """Return and clear the rows."""
        schema = SAMPLES.schema
        given = {**self._columns, DAY: [self._day] * self.count}
        batch = pa.RecordBatch.from_arrays(
            [pa.array(given[field.name], field.type) for field in schema], schema=schema
        )
        self._columns = {name: [] for name in self._columns}
        self.count = 0
        return batch


def _state(source: str) -> str:
    return f"samples-{source}"
