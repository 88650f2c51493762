"""StoreReader: the only code outside the broker that opens store files.

Plan a read of the store, then decode each range of the plan separately, in any process that sees
the same files.

Invariant: nothing here writes, creates, locks or renames.
"""

from __future__ import annotations

import json
import logging
import socket
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from analytics.errors import DamageError, DataLossError, ReportError
from analytics.store.consume_queues import ConsumeQueues
from analytics.store.decode import PERMISSIVE_WORDS, CheckCrc, RecordDecoder, RowFilter
from analytics.store.log_files import LogFile, log_files, store_timestamp_ms
from analytics.store.plan import SPLIT_BYTES_DEFAULT, Planner, follow
from analytics.store.read import SplitReading
from analytics.store.slices import SliceReading, UnitSlice
from broker_core.formats import paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from analytics.store.decode import Damage
    from analytics.store.plan import ReadPlan, Split

logger = logging.getLogger(__name__)

_NO_COLUMNS = pa.schema([])
# More than any topic has, for deleted topics whose number of queues is unknown.
QUEUES_UNKNOWN = 2**31


class StoreReader:
    """Plans reading a store directory and reads the plan's splits. Any process; holds no files."""

    def __init__(
        self,
        store_path: Path,
        *,
        commit_log_path: Path | None = None,
        split_bytes: int = SPLIT_BYTES_DEFAULT,
    ) -> None:
        """`commit_log_path` is storePathCommitLog, if the broker's configuration sets it."""
        places = paths.StorePaths.of(str(store_path), str(commit_log_path or ""))
        self._places = places
        self._store_path = places.root
        self._commit_log_path = places.commit_log
        inside = paths.StorePaths.of(str(store_path), "").commit_log
        self._commit_log_is_elsewhere = self._commit_log_path != inside
        self._queues = ConsumeQueues(places.consume_queue)
        self._split_bytes = split_bytes

    def plan(
        self,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        from_offset: int | None = None,
        to_offset: int | None = None,
        topics: frozenset[str] | None = None,
        queue_ids: frozenset[int] | None = None,
    ) -> ReadPlan:
        """Plan a read of the messages now in the log, stored in `[from_ms, to_ms)`.

        `to_offset`, if given, is the `log_to` of an earlier plan. `topics` and `queue_ids` allow
        the plan to use their ConsumeQueues; pass them again when reading.

        Raises:
            ReportError: the store doesn't exist, or isn't readable.
        """
        self._queues.refresh()
        planner = Planner(self.files(), self._queues, self._split_bytes)
        return planner.plan(
            from_ms=from_ms,
            to_ms=to_ms,
            from_offset=from_offset,
            to_offset=to_offset,
            topics=topics,
            queue_ids=queue_ids,
        )

    def files(self) -> list[LogFile]:
        """Return the files of the log in order, without empty files.

        Raises:
            ReportError: the store doesn't exist, or isn't readable.
        """
        directory = self._commit_log_path
        try:
            return log_files(directory)
        except FileNotFoundError:
            if self._store_path.is_dir() and not self._commit_log_is_elsewhere:
                return []  # an empty store
            missing = directory if self._store_path.is_dir() else self._store_path
            raise ReportError(
                f"No store at {missing}. The directory doesn't exist; check the path."
            ) from None
        except OSError as error:
            raise ReportError(
                f"The store directory {directory} can't be read: {error.strerror}."
            ) from error

    def topics(self) -> dict[str, int] | None:
        """Return the topics of the store with their numbers of queues, None if unknown.

        Topics are from the broker's configuration, its ConsumeQueues, and its record of deleted
        topics, whose messages stay in the log until they expire.

        Raises:
            ReportError: the store doesn't exist, or isn't readable.
        """
        self._queues.refresh()
        found = self._queues.counts()
        log_from, _ = self.extent()
        try:
            table = _table_in(self._store_path / "config" / "topics.json")
            for topic, one in table.get("topicConfigTable", {}).items():
                queues = max(int(one.get(key, 0)) for key in ("readQueueNums", "writeQueueNums"))
                found[topic] = max(found.get(topic, 0), queues)
            deleted = _table_in(self._places.deleted_topics).get("deletedBefore", {})
            for topic, deleted_before in deleted.items():
                if deleted_before > log_from:
                    found.setdefault(topic, QUEUES_UNKNOWN)
        except (OSError, ValueError, TypeError, AttributeError):
            logger.warning("topics unreadable store=%s", self._store_path, exc_info=True)
            return None
        return found or None

    def path_of(self, from_offset: int) -> Path:
        """Return the path of the log file that begins at an offset, which may not exist yet."""
        return self._commit_log_path / paths.offset_file_name(from_offset)

    def stored_from_ms(self) -> int | None:
        """Return when the first message of the log was stored, None if it has no messages.

        Raises:
            ReportError: the store doesn't exist, or isn't readable.
        """
        files = self.files()
        return store_timestamp_ms(files[0], files[0].from_offset) if files else None

    def extent(self) -> tuple[int, int]:
        """Return the start of the first log file and the end of the last, 0 without files.

        Raises:
            ReportError: the store doesn't exist, or isn't readable.
        """
        files = self.files()
        return (files[0].from_offset, files[-1].to_offset) if files else (0, 0)

    def end(self, known: int = 0) -> int:
        """Return the current end of the log, 0 without a log; `known` is a record's start or an
        earlier end.

        Raises:
            ReportError: the store doesn't exist, or isn't readable.
        """
        files = self.files()
        if not files:
            return 0
        return Planner(files, self._queues, self._split_bytes).readable_end(known)[0]

    def end_from(self, start: int, most: int | None = None) -> int:
        """Return the current end of the log, given a record's start or earlier end in `start`.

        With `most`, return the end of a record at most that many bytes further on, but at least one
        record. New records are followed from `start`; the whole store is searched only if no sound
        record follows.

        Raises:
            ReportError: the store doesn't exist, or isn't readable.
        """
        end = start
        for file in self.files():
            if file.to_offset <= end or file.from_offset > end:
                continue
            left = None if most is None else most - (end - start)
            if left is not None and left <= 0:
                return end
            try:
                end, _ = follow(file, end, left)
            except OSError:
                break
            if end < file.to_offset:
                break
        if end > start:
            return end
        # Nothing new, or damage that the reading will skip.
        log_to = self.end(start)
        if log_to <= start or most is None:
            return max(start, log_to)
        return min(log_to, self._record_behind(start, most, log_to))

    def _record_behind(self, start: int, most: int, log_to: int) -> int:
        """Return where a record starts about `most` bytes after `start`, or the end of the log."""
        for file in self.files():
            wanted = max(start + most, file.from_offset)
            if wanted < file.to_offset:
                at = self._queues.record_at_or_after(file, wanted, min(file.to_offset, log_to))
                if at is not None:
                    return at
        return log_to

    def read(
        self,
        split: Split | UnitSlice,
        schema: pa.Schema,
        rows: RowFilter | None = None,
        *,
        check_crc: CheckCrc = CheckCrc.BODY,
        decompress: bool = False,
        fail_on_data_loss: bool = True,
        fail_on_damage: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the split's rows, and rows for damage if the schema has that column.

        Raises:
            DataLossError: a file of the split has expired, and `fail_on_data_loss` is set.
            DamageError: a part of the split is damaged, and `fail_on_damage` is set.
            ReportError: this machine doesn't see the store.
        """
        rows = rows or RowFilter()
        if isinstance(split, UnitSlice):
            rows = split.narrowed(rows)
        decoder = RecordDecoder(
            schema,
            rows,
            check_crc=check_crc,
            decompress=decompress,
            fail_on_damage=fail_on_damage,
        )
        reading = self._reading(split, decoder)
        for batch in reading.batches():
            if batch.num_rows:
                yield batch
        lost = next((damage for damage in reading.damages if damage.is_loss), None)
        if lost is not None:
            self._require_directory()
            if fail_on_data_loss:
                raise DataLossError(
                    f"Bytes {lost.commit_log_from} to {lost.commit_log_to} of the log, in "
                    f"{lost.file}, are gone ({lost.reason}). Their messages expired or were "
                    "deleted. Set failOnDataLoss=false to count them as damage instead."
                )
        damaged = next((damage for damage in reading.damages if not damage.is_loss), None)
        if fail_on_damage and damaged is not None:
            raise DamageError(
                f"Bytes {damaged.commit_log_from} to {damaged.commit_log_to} of the log, in "
                f"{damaged.file}, are damaged ({damaged.reason}). {PERMISSIVE_WORDS}"
            )
        if "damage" not in schema.names:
            for damage in reading.damages:
                logger.warning(
                    "damaged range file=%s commit_log_from=%d commit_log_to=%d reason=%s", *damage
                )
        elif reading.damages:
            yield decoder.damage_batch(reading.damages)

    def damages(self, split: Split | UnitSlice) -> list[Damage]:
        """Return the unreadable ranges of a split, including bodies with a wrong checksum."""
        everything = RowFilter(include_system_topics=True)
        decoder = RecordDecoder(_NO_COLUMNS, everything, check_crc=CheckCrc.TRUE)
        reading = self._reading(split, decoder)
        for _ in reading.batches():
            pass
        return reading.damages

    def _reading(
        self, part: Split | UnitSlice, decoder: RecordDecoder
    ) -> SplitReading | SliceReading:
        if isinstance(part, UnitSlice):
            return SliceReading(part, decoder, self._queues, self._existing_files())
        return SplitReading(part, decoder, self._queues)

    def _existing_files(self) -> list[LogFile]:
        try:
            return log_files(self._commit_log_path)
        except OSError:
            return []

    def _require_directory(self) -> None:
        if not self._commit_log_path.is_dir():
            raise ReportError(
                f"The machine {socket.gethostname()} doesn't see the store at "
                f"{self._commit_log_path}. Every worker of a cluster needs that directory."
            )


def _table_in(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, empty if the file doesn't exist."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
