"""Ingest: takes what is new in a broker's log into the lake, each message exactly once.

A batch begins at the watermark. Its bytes of the log are flushed first, then its files are written
and synced, then one commit names them and moves the watermark. Killed anywhere before that commit,
the next batch begins at the same place, and the files that nobody names are vacuumed.

Before each batch the log must still be the one that the lake knows:
    it begins behind the watermark    what expired unread becomes a row of bronze.gaps
    it ends before the watermark      LakeStoppedError
    other bytes before the watermark  LakeStoppedError
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.errors import LakeError, LakeStoppedError
from analytics.lake.events import EventNotes
from analytics.lake.forgotten import forgotten_offsets
from analytics.lake.gaps import note_gaps
from analytics.lake.parts import HereExecutor, Unread, WriteTask
from analytics.lake.rewriting import stored_of
from analytics.lake.tables import MESSAGES
from analytics.lake.watermark import ReadAgain, Watermark
from analytics.store.fingerprint import NO_FINGERPRINT, fingerprint_before
from analytics.store.log_files import opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from analytics.lake.bodies import BodyRules
    from analytics.lake.parts import Executor
    from analytics.lake.place import LakePlace
    from analytics.store.reader import StoreReader

BATCH_BYTES = 64 * 1024 * 1024
EXPIRED = "expired before the lake read it"


@dataclass(frozen=True, slots=True)
class Source:
    """A broker's log, and what of its bodies may be kept."""

    broker: str
    store: Path
    commit_log: Path | None
    rules: BodyRules

    def task(
        self,
        place: LakePlace,
        forgotten: frozenset[int] = frozenset(),
        from_ms: int | None = None,
    ) -> WriteTask:
        about = (self.store, self.commit_log, self.broker, self.rules)
        return WriteTask(place, *about, forgotten, from_ms)

    @property
    def repair(self) -> str:
        return f"manage.py lake rebuild --broker {self.broker}"


@dataclass(frozen=True, slots=True)
class Look:
    """Where lake and log stand: the next batch begins at the watermark."""

    watermark: int
    log_from: int
    log_to: int

    @property
    def pending(self) -> int:
        """How many bytes of the log are not in the lake yet."""
        return max(0, self.log_to - max(self.watermark, self.log_from))


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch took."""

    commit_log_from: int
    commit_log_to: int
    rows: int
    size: int
    gaps: int
    seconds: float


class Ingest:
    """Takes batches of one log into one lake. One thread."""

    def __init__(
        self,
        place: LakePlace,
        source: Source,
        executor: Executor | None = None,
        *,
        batch_bytes: int = BATCH_BYTES,
        observer: Callable[[str], None] | None = None,
    ) -> None:
        """The observer is told the name of each step of a batch that has been done."""
        self._place = place
        self._source = source
        self._executor = executor or HereExecutor()
        self._batch_bytes = batch_bytes
        self._observer = observer
        task = source.task(place)
        self._reader: StoreReader = task.reader(self._executor.split_bytes)

    def look(self, known: Look | None = None) -> Look:
        """Return where lake and log stand, without a lock; give what was found the time before.

        Raises:
            LakeError: there is no such store, or the lake cannot be read.
        """
        first, _ = self._reader.extent()
        if known is None:
            watermark = None
            if MESSAGES.exists(self._place):
                watermark = Watermark.of(MESSAGES.open(self._place), self._source.broker)
            offset = first if watermark is None else watermark.offset
            known = Look(offset, first, max(offset, first))
        return Look(known.watermark, first, self._reader.end_from(max(known.log_to, first)))

    def second_file_from(self) -> int | None:
        """Return where the second file of the log begins, None with one or none."""
        files = self._reader.files()
        return files[1].from_offset if len(files) > 1 else None

    def batch(self) -> Batch | None:
        """Take one batch; return what it took, None when nothing is new.

        Raises:
            LakeStoppedError: the log is not the one that the lake knows.
            LakeBusyError: somebody else works on the lake.
            LakeError: the lake or the store cannot be used.
        """
        with self._place.locked():
            return self._batch(time.monotonic())

    def _batch(self, started: float) -> Batch | None:
        broker = self._source.broker
        table = MESSAGES.open(self._place)
        self._did("opened")
        watermark = Watermark.of(table, broker)
        first, last = self._reader.extent()
        begun = first
        unread: list[Unread] = []
        if watermark is not None:
            begun = watermark.offset
            self._require_same_log(watermark, first, last)
            if first > begun:
                unread.append(Unread(begun, first, EXPIRED))
        start = max(begun, first)
        again = ReadAgain.of(table, broker)
        most = min(self._batch_bytes, again.to - start if start < again.to else self._batch_bytes)
        end = self._reader.end_from(start, most)
        if end == begun:
            return None
        self._flush(start, end)
        self._did("flushed")
        fingerprint = fingerprint_before(self._reader.files(), end)
        forgotten = forgotten_offsets(self._place, broker, start, end)
        task = self._source.task(self._place, forgotten, again.from_ms_at(start))
        plan = self._reader.plan(from_offset=start, to_offset=end)
        parts = self._executor.write(task, plan.splits)
        self._did("written")
        unread += [each for part in parts for each in part.unread]
        if unread:
            note_gaps(self._place, broker, unread)
            self._did("noted")
        files = [file for part in parts for file in part.files]
        notes = EventNotes(self._place, task, self._reader)
        if notes.note((stored_of(file) for file in files), start, end):
            self._did("events noted")
        moved = Watermark(end, fingerprint or NO_FINGERPRINT, time.time_ns() // 1_000_000)
        MESSAGES.commit(self._place, table, files, states=moved.states(broker))
        self._did("committed")
        MESSAGES.checkpoint(self._place)
        self._did("checkpointed")
        return Batch(
            begun,
            end,
            rows=sum(file.rows for file in files),
            size=sum(file.size for file in files),
            gaps=len(unread),
            seconds=time.monotonic() - started,
        )

    def _require_same_log(self, watermark: Watermark, first: int, last: int) -> None:
        source, offset = self._source, watermark.offset
        wrong = ""
        if last < offset or self._log_end(offset) < offset:
            wrong = (
                f"ends before {offset}, up to which the lake has read it: it is another log, or "
                "lost its end"
            )
        elif first < offset and watermark.fingerprint != NO_FINGERPRINT:
            found = fingerprint_before(self._reader.files(), offset)
            if found not in (None, watermark.fingerprint):
                wrong = (
                    f"has other bytes before {offset} than those that the lake has read: offsets "
                    "were used a second time"
                )
        if wrong:
            raise LakeStoppedError(
                f"The log of {source.broker} at {source.store} {wrong}. Nothing is written to the "
                f"lake before you decide; `{source.repair}` replaces what the lake has of this "
                "log by what the log says now."
            )

    def _log_end(self, offset: int) -> int:
        """Return where the log ends, or the offset when its file has expired."""
        for file in self._reader.files():
            if file.from_offset < offset <= file.to_offset:
                # New records that end before the offset may be followed by the bytes of old ones.
                return self._reader.end()
        return offset

    def _flush(self, start: int, end: int) -> None:
        """Make the batch's bytes of the log durable: what a power cut may undo is not taken."""
        for file in self._reader.files():
            if file.from_offset < end and file.to_offset > start:
                try:
                    with opened(file.path) as descriptor:
                        os.fdatasync(descriptor)
                except FileNotFoundError:
                    continue  # expired just now: its bytes become a gap
                except OSError as error:
                    raise LakeError(
                        f"{file.path} cannot be flushed: {error.strerror}; nothing of it is taken."
                    ) from error

    def _did(self, step: str) -> None:
        if self._observer is not None:
            self._observer(step)
