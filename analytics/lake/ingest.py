"""Ingest: copies the new part of a broker's log into the lake, each message exactly once.

A batch begins at the watermark. The log's bytes are flushed first, then its files are written and
synced, then one commit names them and moves the watermark. If the process is killed anywhere before
that commit, the next batch begins at the same offset, and maintenance deletes the unreferenced
files.

While the files are written, only this broker's lock is held. The commit fails if the state that the
batch relied on has changed since: the watermark or the set of erased messages.

Before each batch, the log must still be the same as at the previous batch:
    it begins after the watermark     the expired, unread range becomes a row of bronze.gaps
    it ends before the watermark      LakeStoppedError
    other bytes before the watermark  LakeStoppedError
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.errors import LakeBusyError, LakeError, LakeStoppedError
from analytics.lake import events
from analytics.lake.erasures import erased_offsets, erasures
from analytics.lake.gaps import note_gaps
from analytics.lake.parts import Unread, WriteTask
from analytics.lake.place import ingest_lock
from analytics.lake.tables import EVENTS, MESSAGES
from analytics.lake.watermark import Rereading, Watermark
from analytics.lake.writer import ArrowWriter
from analytics.store.fingerprint import NO_FINGERPRINT, fingerprint_before
from analytics.store.log_files import opened, store_timestamp_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from deltalake import DeltaTable

    from analytics.lake.bodies import BodyRules
    from analytics.lake.parts import WrittenPart
    from analytics.lake.place import LakePlace
    from analytics.lake.writer import Writer
    from analytics.store.reader import StoreReader

EXPIRED = "expired before the lake read it"


@dataclass(frozen=True, slots=True)
class Source:
    """A broker's log, and the rules for storing its bodies."""

    broker: str
    store: Path
    commit_log: Path | None
    rules: BodyRules

    def task(
        self,
        place: LakePlace,
        forgotten: frozenset[int] = frozenset(),
        from_ms: int | None = None,
        events_from: int = 0,
    ) -> WriteTask:
        about = (self.store, self.commit_log, self.broker, self.rules)
        return WriteTask(place, *about, forgotten, from_ms, events_from)

    @property
    def repair(self) -> str:
        return f"manage.py lake rebuild --broker {self.broker}"


@dataclass(frozen=True, slots=True)
class _LakeState:
    """The state of the lake that a batch relies on."""

    watermark: Watermark | None
    again: Rereading
    erasures: int | None

    @classmethod
    def of(cls, place: LakePlace, table: DeltaTable, broker: str) -> _LakeState:
        return cls(Watermark.of(table, broker), Rereading.of(table, broker), erasures(place))


@dataclass(frozen=True, slots=True)
class Look:
    """The positions of lake and log: the next batch starts at the watermark."""

    watermark: int
    log_from: int
    log_to: int

    @property
    def pending(self) -> int:
        """How many bytes of the log aren't in the lake yet."""
        return max(0, self.log_to - max(self.watermark, self.log_from))


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one batch."""

    commit_log_from: int
    commit_log_to: int
    rows: int
    size: int
    gaps: int
    seconds: float


class Ingest:
    """Ingests one log into one lake in batches. Use from one thread."""

    def __init__(
        self,
        place: LakePlace,
        source: Source,
        writer: Writer | None = None,
        *,
        batch_bytes: int | None = None,
        observer: Callable[[str], None] | None = None,
    ) -> None:
        """`observer` is called with the name of each finished step of a batch."""
        self._place = place
        self._source = source
        self._writer = writer or ArrowWriter()
        self._batch_bytes = batch_bytes or self._writer.batch_bytes
        self._observer = observer
        task = source.task(place)
        self._reader: StoreReader = task.reader(self._writer.split_bytes)

    def look(self, known: Look | None = None) -> Look:
        """Return the positions of lake and log without a lock; pass the previous result.

        Raises:
            LakeError: the store doesn't exist, or the lake isn't readable.
        """
        first, _ = self._reader.extent()
        if known is None:
            watermark = None
            if MESSAGES.exists(self._place):
                watermark = Watermark.of(MESSAGES.existing(self._place), self._source.broker)
            offset = first if watermark is None else watermark.offset
            known = Look(offset, first, max(offset, first))
        return Look(known.watermark, first, self._reader.end_from(max(known.log_to, first)))

    def end(self, look: Look) -> int:
        """Return the current end of the log, including any damage; a look ends before damage."""
        return self._reader.end_from(look.log_to)

    def pending_since_ms(self, look: Look) -> int | None:
        """Return when the first message that the lake lacks was stored, or None."""
        offset = max(look.watermark, look.log_from)
        for file in self._reader.files():
            if look.pending and file.from_offset <= offset < file.to_offset:
                return store_timestamp_ms(file, offset)
        return None

    def second_file_from(self) -> int | None:
        """Return the start offset of the log's second file, or None."""
        files = self._reader.files()
        return files[1].from_offset if len(files) > 1 else None

    def next_records(self, offset: int) -> list[tuple[str, int]]:
        """Return the files and positions where the record at an offset may be written."""
        files = self._reader.files()
        places = [
            (str(file.path), offset - file.from_offset)
            for file in files
            if file.from_offset <= offset < file.to_offset
        ]
        end = next((file.to_offset for file in files if file.to_offset > offset), offset)
        return [*places, (str(self._reader.path_of(end)), 0)]

    def batch(self) -> Batch | None:
        """Ingest one batch; return its result, or None if there is nothing new.

        Raises:
            LakeStoppedError: the log differs from the log ingested before.
            LakeBusyError: another process is ingesting this log, or changed the state meanwhile.
            LakeError: the lake or the store isn't usable.
        """
        with self._place.locked(ingest_lock(self._source.broker)):
            return self._batch(time.monotonic())

    def _batch(self, started: float) -> Batch | None:
        place, broker = self._place, self._source.broker
        with place.locked():
            known = _LakeState.of(place, MESSAGES.open(place), broker)
            events_from = events.events_end(place, broker)
        self._report_step("opened")
        first, last = self._reader.extent()
        begun = first
        unread: list[Unread] = []
        if known.watermark is not None:
            begun = known.watermark.offset
            self._require_same_log(known.watermark, first, last)
            if first > begun:
                unread.append(Unread(begun, first, EXPIRED))
        start = max(begun, first)
        again = known.again
        most = min(self._batch_bytes, again.to - start if start < again.to else self._batch_bytes)
        end = self._reader.end_from(start, most)
        if end == begun:
            return None
        self._flush(start, end)
        self._report_step("flushed")
        fingerprint = fingerprint_before(self._reader.files(), end)
        forgotten = erased_offsets(place, broker, start, end)
        task = self._source.task(place, forgotten, again.from_ms_at(start), events_from)
        plan = self._reader.plan(from_offset=start, to_offset=end)
        parts = self._writer.parts(task, plan.splits)
        self._report_step("written")
        unread += [each for part in parts for each in part.unread]
        moved = Watermark(end, fingerprint or NO_FINGERPRINT, time.time_ns() // 1_000_000)
        self._commit(known, parts, unread, moved)
        files = [file for part in parts for file in part.files]
        return Batch(
            begun,
            end,
            rows=sum(file.rows for file in files),
            size=sum(file.size for file in files),
            gaps=len(unread),
            seconds=time.monotonic() - started,
        )

    def _commit(
        self,
        known: _LakeState,
        parts: Sequence[WrittenPart],
        unread: Sequence[Unread],
        moved: Watermark,
    ) -> None:
        """Commit gaps and events, then the messages together with the watermark."""
        place, broker, engine = self._place, self._source.broker, self._writer.name
        files = [file for part in parts for file in part.files]
        of_events = [file for part in parts for file in part.events]
        with place.locked():
            table = MESSAGES.open(place)
            if _LakeState.of(place, table, broker) != known:
                place.discard(MESSAGES.name, [file.path for file in files])
                place.discard(EVENTS.name, [file.path for file in of_events])
                raise LakeBusyError(
                    f"Another process changed the data of {broker} in the lake {place.uri} "
                    "while a batch was written. The batch will be written again."
                )
            if unread:
                note_gaps(place, broker, unread)
                self._report_step("noted")
            events.note(place, broker, of_events, moved.offset, engine)
            self._report_step("events noted")
            MESSAGES.commit(place, table, files, states=moved.states(broker), engine=engine)
            self._report_step("committed")
            MESSAGES.checkpoint(place)
            self._report_step("checkpointed")

    def _require_same_log(self, watermark: Watermark, first: int, last: int) -> None:
        source, offset = self._source, watermark.offset
        wrong = ""
        if last < offset or self._log_end(offset) < offset:
            wrong = (
                f"ends before {offset}, which the lake has already read. It's another log, or it "
                "lost its end"
            )
        elif first < offset and watermark.fingerprint != NO_FINGERPRINT:
            found = fingerprint_before(self._reader.files(), offset)
            if found not in (None, watermark.fingerprint):
                wrong = (
                    f"has other bytes before {offset} than the lake read, so offsets were reused"
                )
        if wrong:
            raise LakeStoppedError(
                f"The log of {source.broker} at {source.store} {wrong}. Ingest has stopped "
                f"until you decide; `{source.repair}` replaces the lake's copy of this log with "
                "the log's current contents."
            )

    def _log_end(self, offset: int) -> int:
        """Return the end of the log, or the offset if its file has expired."""
        for file in self._reader.files():
            if file.from_offset < offset <= file.to_offset:
                # New records that end before the offset can be followed by bytes of old records.
                return self._reader.end()
        return offset

    def _flush(self, start: int, end: int) -> None:
        """Make the batch's bytes of the log durable, because a power cut could undo them."""
        for file in self._reader.files():
            if file.from_offset < end and file.to_offset > start:
                try:
                    with opened(file.path) as descriptor:
                        os.fdatasync(descriptor)
                except FileNotFoundError:
                    continue  # just expired: reported as a gap
                except OSError as error:
                    raise LakeError(
                        f"{file.path} couldn't be flushed: {error.strerror}. None of it was "
                        "ingested."
                    ) from error

    def _report_step(self, step: str) -> None:
        if self._observer is not None:
            self._observer(step)
