"""Replay: checks the log data that a slave receives and dispatches it to queues and index.

Records arrive as raw bytes in arbitrary pieces. Each is checked once it is complete: size, magic
code, log offset, body checksum. PlainReplay dispatches plain records. The code that recovery uses
dispatches the others, and all records if PlainReplay isn't compiled and much data has arrived at
once.

Source: store/DefaultMessageStore.java ReputMessageService (4.9.8).
Differs: an invalid record ends the replay where it begins, and isn't acknowledged. RocketMQ
appends all received data, and dispatches it later.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.errors import CorruptRecordError, ReplicationError
from broker_core.formats.record import BLANK, BLANK_MAGIC, BLANK_SIZE_MIN, OVERHEAD_V4, examine
from broker_core.message.names import KEY_SEPARATOR
from broker_core.store.bulk_scan import BulkScan
from broker_core.store.index_replay import IndexReplay
from broker_core.store.plain_replay import PlainReplay
from broker_core.store.record_dispatch import RecordDispatch
from broker_core.store.results import DamagedRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from broker_core.config.store import StoreConfig
    from broker_core.store.consume_queue import ConsumeQueue
    from broker_core.store.index_service import IndexService
    from broker_core.store.mapped_file import MappedFile
    from broker_core.store.plain_replay import PlainDispatch, PlainTwin
    from broker_core.store.store_files import StoreFiles

logger = logging.getLogger(__name__)

BULK_BYTES_MIN = 256 * 1024
"""For less data than this, arrays cost more than they save."""
BULK_RECORDS_MIN = 16
SINGLE_RECORDS = 256
"""After irregular records, this many records are processed without arrays."""


class Replay:
    """Event loop only.

    Attributes:
        dispatched_where: the log's records are checked and dispatched up to here.
        doubted_where: where the log was last cut because of an invalid or incomplete record; None
        if it was never cut.
    """

    def __init__(
        self,
        config: StoreConfig,
        files: StoreFiles,
        show: Callable[[ConsumeQueue], None],
        delete_queues: Callable[[Mapping[str, int]], None],
    ) -> None:
        """`show` is called with each queue that has new messages.

        `delete_queues` deletes the queues of topics that have no message after a log offset.
        """
        self.dispatched_where = 0
        self.doubted_where: int | None = None
        self._log = files.log
        self._state = files.put_state
        self._queues = files.queues
        self._deleted = files.deleted
        self._quarantine = files.quarantine
        self._show = show
        self._delete_queues = delete_queues
        self._is_guarded = config.enabled_append_prop_crc
        self._grown: dict[ConsumeQueue, None] = {}
        self._keys = None if files.index is None else _LiveKeys(files.index)
        self._index = files.index
        self._places = self._new_places()
        self._plain_twin: PlainTwin | None = None
        self._plain = self._new_plain()
        self._bulk: BulkScan | None = None
        self._singles = 0
        self._damaged: list[tuple[int, int]] = []

    def use(self, plain_twin: PlainTwin) -> None:
        """Dispatch plain records with the compiled PlainReplay where possible."""
        self._plain_twin = plain_twin
        self._plain = self._new_plain()

    def start(self) -> None:
        """Begin after the records that recovery has dispatched."""
        self.dispatched_where = self._log.max_offset

    def advance(self) -> None:
        """Dispatch every complete record.

        Raises:
            ReplicationError: bytes aren't a record; the log is cut before them.
            OSError: a queue or the index has no room; the log is cut before the first record that
                isn't dispatched.
        """
        try:
            while self._step():
                pass
        except ReplicationError:
            self.cut()
            raise
        except OSError:
            self._take_plain()
            self.cut()
            self._remove_cut_records()
            raise
        finally:
            self._take_plain()
            grown, self._grown = self._grown, {}
            for queue in grown:
                self._show(queue)

    def cut(self) -> None:
        """Make the end of the last dispatched record the end of the log."""
        # The interrupted work starts over, so discard any state from it.
        self.forget_queues()
        if self.dispatched_where < self._log.max_offset:
            self.doubted_where = self.dispatched_where
            flushed_where = min(self._log.flushed_where, self.dispatched_where)
            self._log.continue_at(self.dispatched_where)
            self._log.flushed_where = flushed_where

    def _remove_cut_records(self) -> None:
        """Remove the queue units and index entries of records that were cut.

        Otherwise readers would move past their offsets, and miss the messages that replace them.
        """
        for queue in self._queues:
            queue.remove_units_from(self.dispatched_where)
        if self._index is not None:
            self._index.cut_from(self.dispatched_where)

    def step_over(self, damaged: Iterable[tuple[int, int]]) -> None:
        """Accept any bytes in these log ranges, [from, to): they contain no records."""
        self._damaged = sorted(damaged)

    def forget_queues(self) -> None:
        """Look up each queue again, because some were deleted."""
        self.close()
        self._places = self._new_places()
        self._plain = self._new_plain()

    def close(self) -> None:
        """End the bulk dispatch thread."""
        if self._bulk is not None:
            self._bulk.close()
            self._bulk = None

    @property
    def behind_bytes(self) -> int:
        """How much of the log isn't dispatched yet, including an incomplete record."""
        return self._log.max_offset - self.dispatched_where

    @property
    def _is_compiled(self) -> bool:
        """Whether compiled code handles plain records, at a quarter of the cost of arrays."""
        return self._plain_twin is not None and not self._is_guarded

    def _new_places(self) -> RecordDispatch:
        places = RecordDispatch(self._log, self._queues, self._deleted, _is_never_damaged)
        places.keys = self._keys
        places.is_new = True
        places.on_written = self._written
        return places

    def _new_plain(self) -> PlainDispatch:
        if self._is_compiled:
            assert self._plain_twin is not None
            return self._plain_twin(self._queues, self._deleted, self._keys, self._index)
        return PlainReplay(self._queues, self._deleted, self._keys, is_guarded=self._is_guarded)

    def _step(self) -> bool:
        """Dispatch a record or a run of records; False when no record is complete."""
        offset = self.dispatched_where
        available = self._log.max_offset - offset
        while self._damaged and self._damaged[0][1] <= offset:
            del self._damaged[0]
        if self._damaged:
            damaged_from, damaged_to = self._damaged[0]
            if damaged_from <= offset:
                return self._pass(min(available, damaged_to - offset))
            available = min(available, damaged_from - offset)
        if available < BLANK_SIZE_MIN:
            return False
        file = self._log.file_at(offset)
        assert file is not None
        position = offset - file.file_from_offset
        limit = min(position + available, file.size)
        are_many = self._singles <= 0 and limit - position >= BULK_BYTES_MIN
        if self._is_compiled or not are_many:
            plain = self._plain
            end = plain.dispatch(file, position, limit)
            if end > position:
                self._singles -= plain.records
                self._count(plain.records, end - position, plain.store_timestamp)
                return True
        if are_many:
            if self._dispatch_many(file, position, limit):
                return True
            self._singles = SINGLE_RECORDS
        else:
            self._singles -= 1
        self._take_plain()
        return self._dispatch_one(file, position, limit)

    def _pass(self, size: int) -> bool:
        """Skip the available part of a damaged range; False if no part of it has arrived."""
        if not size:
            return False
        found = DamagedRange(*self._damaged[0], "damaged on the master")
        if self._quarantine.add(found):
            self._quarantine.save()
            logger.error("damaged range of the master skipped from=%d to=%d", *found[:2])
        self._take_plain()
        self.dispatched_where += size
        return True

    def _take_plain(self) -> None:
        """Record the queues that got units on the fast path."""
        grown = self._plain.grown
        for queue in grown:
            # Other dispatch code continues after these units.
            self._places.next[queue] = queue.next_offset
            self._places.mark(queue)
        grown.clear()

    def _dispatch_many(self, file: MappedFile, position: int, limit: int) -> bool:
        self._take_plain()
        if self._bulk is None:
            self._bulk = self._new_bulk()
        if self._index is not None:
            self._index.write()
        stretch = self._bulk.advance(file, position, 0, limit)
        if stretch is None:
            return False
        if stretch.records < BULK_RECORDS_MIN:
            self._singles = SINGLE_RECORDS
        self._count(stretch.records, stretch.size, max(stretch.store_timestamps))
        return True

    def _dispatch_one(self, file: MappedFile, position: int, limit: int) -> bool:
        offset = file.file_from_offset + position
        size, magic = BLANK.unpack_from(file.buffer, position)
        size_min = BLANK_SIZE_MIN if magic == BLANK_MAGIC else OVERHEAD_V4
        if not size_min <= size <= file.size - position:
            raise ReplicationError(
                f"the data received for offset {offset} is not a record: its size field is {size}"
            )
        if size > limit - position:
            return False
        try:
            head = examine(
                file.view,
                position,
                limit,
                offset,
                check_crc=True,
                is_guarded=self._is_guarded,
            )
        except CorruptRecordError as error:
            raise ReplicationError(
                f"the data received for offset {offset} is not a complete record: {error.reason}"
            ) from error
        if head.is_blank:
            if size != file.size - position:
                raise ReplicationError(
                    f"the data received for offset {offset} ends a log file at {offset + size}, "
                    f"but mappedFileSizeCommitLog is {file.size} here; set the master's value"
                )
            self.dispatched_where += size
            return True
        old = self._places.recreated_topic_queue(file.view, head)
        if old is not None:
            self._replace_queue(old, offset)
        self._places.dispatch(file.view, head)
        self._count(1, size, head.store_timestamp)
        return True

    def _replace_queue(self, old: ConsumeQueue, commit_log_offset: int) -> None:
        """Delete the queues that a topic had before its master deleted and recreated it.

        A slave asks for topics only every ten seconds, so this record may be the first sign of it.
        A
        queue has messages either of the deleted topic or of the new one: damaged ranges among the
        old messages were deleted, too. The state of the topic's other queues isn't known yet; it
        follows from their next records, or from the master's topic list.
        """
        queues = self._queues.table[old.topic].values()
        before, end = -1, old.end_commit_log_offset()
        while end > before:
            before = end
            end = max(
                (
                    one.end_commit_log_offset()
                    for one in queues
                    if one.begin_commit_log_offset() < before
                ),
                default=before,
            )
        before = min(before, commit_log_offset)
        logger.info("topic recreated by the master topic=%s deleted_before=%d", old.topic, before)
        self._delete_queues({old.topic: before})
        self._grown.pop(old, None)

    def _count(self, records: int, size: int, store_timestamp: int) -> None:
        self.dispatched_where += size
        state = self._state
        state.put_times += records
        state.put_bytes += size
        state.store_timestamp = max(state.store_timestamp, store_timestamp)

    def _new_bulk(self) -> BulkScan:
        keys = None
        if self._index is not None:
            # Nothing to compare: all new records are after the existing entries.
            keys = IndexReplay(self._index, self.dispatched_where, clean_exit=True)
        return BulkScan(
            self._queues,
            keys,
            self._places.ext,
            self._deleted,
            self._places.next,
            self._places.mark,
            check_crc=True,
            is_guarded=self._is_guarded,
        )

    def _written(self, queue: ConsumeQueue) -> None:
        self._grown[queue] = None


class _LiveKeys:
    """Puts keys into the index as the put path does."""

    def __init__(self, index: IndexService) -> None:
        self._index = index

    def put(
        self,
        seed: int,
        uniq_key: str | None,
        keys: str | None,
        commit_log_offset: int,
        store_timestamp: int,
    ) -> None:
        if not uniq_key and not keys:
            return
        index = self._index
        entries = len(keys.split(KEY_SEPARATOR)) if keys else 0
        if index.room <= entries:
            index.make_room(entries + 1)
        index.waiting.append((seed, uniq_key, keys, commit_log_offset, store_timestamp))
        index.room -= 1 + entries


def _is_never_damaged(commit_log_offset: int) -> bool:
    """Return False: received data was checked on arrival."""
    return False
