"""Replay: what a slave's log receives is checked, and dispatched to queues and index, at once.

Records come as raw bytes, cut anywhere. Each is checked when it is whole: size, magic code, its own
place in the log, the checksum of its body. Plain ones are dispatched by PlainReplay; others, and
all where that is not compiled and much has come at once, by the code that recovery uses.

Source: store/DefaultMessageStore.java ReputMessageService (4.9.8).
Differs: a record that is not right ends the replay where it begins, and is not acknowledged. The
original appends whatever comes, and dispatches it later.
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
"""With less than this, arrays cost more than they save."""
BULK_RECORDS_MIN = 16
SINGLE_RECORDS = 256
"""So many records are not looked at as arrays after odd ones."""


class Replay:
    """Event loop only.

    Attributes:
        dispatched_where: up to here the log's records are checked and dispatched.
        doubted_where: where what came last was no record, or not a whole one; None for nowhere.
    """

    def __init__(
        self,
        config: StoreConfig,
        files: StoreFiles,
        show: Callable[[ConsumeQueue], None],
        delete_queues: Callable[[Mapping[str, int]], None],
    ) -> None:
        """`show` is called with each queue that has new messages.

        `delete_queues` deletes those of topics without a message behind an offset of the log.
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
        """Have plain records dispatched by the compiled twin of PlainReplay, where it can."""
        self._plain_twin = plain_twin
        self._plain = self._new_plain()

    def start(self) -> None:
        """Begin behind what recovery has dispatched."""
        self.dispatched_where = self._log.max_offset

    def advance(self) -> None:
        """Dispatch every record that is whole by now.

        Raises:
            ReplicationError: bytes are no record; the log is cut before them.
            OSError: a queue or the index has no room; the log is cut before the first record that
                is not dispatched.
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
            self._take_back()
            raise
        finally:
            self._take_plain()
            grown, self._grown = self._grown, {}
            for queue in grown:
                self._show(queue)

    def cut(self) -> None:
        """Make the end of the last dispatched record the end of the log."""
        # What was begun is begun anew: nothing that was learnt on the way may remain.
        self.forget_queues()
        if self.dispatched_where < self._log.max_offset:
            self.doubted_where = self.dispatched_where
            flushed_where = min(self._log.flushed_where, self.dispatched_where)
            self._log.continue_at(self.dispatched_where)
            self._log.flushed_where = flushed_where

    def _take_back(self) -> None:
        """Remove what queues and index have of records that were cut.

        Readers would go past their places, and miss what comes there again.
        """
        for queue in self._queues:
            queue.take_back(self.dispatched_where)
        if self._index is not None:
            self._index.cut_from(self.dispatched_where)

    def step_over(self, damaged: Iterable[tuple[int, int]]) -> None:
        """Take what comes for ranges of the log, [from, to), as it is: no record is in them."""
        self._damaged = sorted(damaged)

    def forget_queues(self) -> None:
        """Ask for each queue again: some were deleted."""
        self.close()
        self._places = self._new_places()
        self._plain = self._new_plain()

    def close(self) -> None:
        """End the thread of dispatch in bulk."""
        if self._bulk is not None:
            self._bulk.close()
            self._bulk = None

    @property
    def behind_bytes(self) -> int:
        """How much of the log is not dispatched yet, a record that has begun to come included."""
        return self._log.max_offset - self.dispatched_where

    @property
    def _is_compiled(self) -> bool:
        """Whether plain records go through the compiled twin, a quarter of the arrays' cost."""
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
        """Dispatch a record or a stretch of them; False when none is whole."""
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
        """Step over so much of a damaged range; False when nothing of it is here."""
        if not size:
            return False
        found = DamagedRange(*self._damaged[0], "damaged on the master")
        if self._quarantine.add(found):
            self._quarantine.save()
            logger.error("damaged range of the master stepped over: from=%d to=%d", *found[:2])
        self._take_plain()
        self.dispatched_where += size
        return True

    def _take_plain(self) -> None:
        """Take note of the queues that got units the quick way."""
        grown = self._plain.grown
        for queue in grown:
            # Who dispatches next goes on behind them.
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
                f"what came for offset {offset} is no record: it says that it has {size} bytes"
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
                f"what came for offset {offset} is no whole record: {error.reason}"
            ) from error
        if head.is_blank:
            if size != file.size - position:
                raise ReplicationError(
                    f"what came for offset {offset} ends a file of the log at "
                    f"{offset + size}, but mappedFileSizeCommitLog is {file.size} here; it must "
                    "be what it is on the master"
                )
            self.dispatched_where += size
            return True
        old = self._places.topic_begun_anew(file.view, head)
        if old is not None:
            self._begin_anew(old, offset)
        self._places.dispatch(file.view, head)
        self._count(1, size, head.store_timestamp)
        return True

    def _begin_anew(self, old: ConsumeQueue, commit_log_offset: int) -> None:
        """Delete the queues that a topic had before its master deleted it and made it again.

        A slave asks for topics every ten seconds only, so that this record may be the first that it
        hears of it. A queue has messages of the deleted topic alone or of the new one: what lies
        among the former was deleted, too. Of another queue behind them nobody knows yet; its own
        next record tells, or the master's answer about topics.
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
        logger.info("topic made again by the master: topic=%s deleted_before=%d", old.topic, before)
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
            # It has nothing to compare: what comes is behind all entries.
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
    """What was checked when it came is whole."""
    return False
