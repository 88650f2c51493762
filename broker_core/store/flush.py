"""Flushing: how the log gets durable, who waits for it, the checkpoint.

One thread flushes the log, another the ConsumeQueues and the index. ASYNC_FLUSH flushes by
interval. SYNC_FLUSH is a group commit: what was put while one fdatasync runs shares the next one.

A flush that failed is never tried again: the kernel has dropped the pages, and a second fdatasync
would report success. From the first error on nobody is told that something is durable.

Source: store/CommitLog.java FlushRealTimeService, GroupCommitService (4.9.8).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from broker_core.formats import checkpoint as checkpoint_format
from broker_core.formats.cq_unit import UNIT_SIZE
from broker_core.service import Service
from broker_core.store.results import PutMessageStatus

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.clock import Clock, Timer
    from broker_core.config import StoreConfig
    from broker_core.formats.checkpoint import Checkpoint
    from broker_core.storage import Storage, StorageFile
    from broker_core.store.commit_log import CommitLog
    from broker_core.store.consume_queues import ConsumeQueues
    from broker_core.store.index_service import IndexService

logger = logging.getLogger(__name__)

PAGE_SIZE = 4096

AnswerOf = Callable[[PutMessageStatus], Any]
Waiter = tuple[int, float, asyncio.Future[Any], AnswerOf | None]
"""Up to where, until when, who waits, and what it is told instead of the status."""


class CommitLogFlusher(Service):
    """Event loop only; fdatasync runs in a thread of its own.

    Attributes:
        error: the failure that ended flushing, None while all is well.
        on_flushed: called when flushed_where has moved.
        on_failed: called once, with the failure.
        store_timestamp: of the last message put; the put path sets it.
        committed_timestamp: all messages stored up to then are in their files; the committer of a
            TransientStorePool sets it, None without one.
        commit_soon: called when somebody waits for what is not in its file yet.
        flushed_timestamp: all messages stored up to then are durable.
    """

    def __init__(self, config: StoreConfig, clock: Clock, commit_log: CommitLog) -> None:
        super().__init__()
        self.error: OSError | None = None
        self.on_flushed: Callable[[], None] = nothing
        self.on_failed: Callable[[OSError], None] = ignore
        self.store_timestamp = 0
        self.committed_timestamp: int | None = None
        self.commit_soon: Callable[[], None] = nothing
        self.flushed_timestamp = 0
        self.is_scheduled = False
        self._config = config
        self._clock = clock
        self._commit_log = commit_log
        self._is_flushing = False
        self._waiters: deque[Waiter] = deque()
        self._timer: Timer | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = ThreadPoolExecutor(1, "flush")

    def start(self) -> None:
        """Begin to flush by interval; SYNC_FLUSH flushes after puts instead."""
        config = self._config
        if config.flush_disk_type == "ASYNC_FLUSH":
            if not config.flush_commit_log_timed:
                self._commit_log.wake_bytes = PAGE_SIZE
                # After the put that wakes: what it writes counts.
                loop = asyncio.get_running_loop()
                self._commit_log.on_wake = lambda: loop.call_soon(self._flush_enough)
            self.spawn(self._flush_by_interval(), name="flush-commit-log")

    async def shutdown(self) -> None:
        """Flush what is left, unless a flush has failed."""
        await super().shutdown()
        while self.error is None and self._commit_log.flushed_where < self._commit_log.max_offset:
            self.schedule()
            await self._idle.wait()
        if self._timer is not None:
            self._timer.cancel()
        self._thread.shutdown()

    def schedule(self) -> None:
        """Flush soon: after what the loop does now, so that many puts share one flush."""
        if not self.is_scheduled and self.error is None:
            self.is_scheduled = True
            self._idle.clear()
            if not self._is_flushing:
                asyncio.get_running_loop().call_soon(self._flush)

    def until_flushed(
        self, commit_log_offset: int, answer_of: AnswerOf | None = None
    ) -> asyncio.Future[Any]:
        """Return what will say whether the log got durable up to an offset.

        It gives the status, or what answer_of makes of it.
        """
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.error is not None:
            _tell(waiter, answer_of, PutMessageStatus.SERVICE_NOT_AVAILABLE)
            return waiter
        deadline = self._clock.monotonic() + self._config.sync_flush_timeout / 1000
        self._waiters.append((commit_log_offset, deadline, waiter, answer_of))
        if self._timer is None:
            self._timer = self._clock.call_at(deadline, self._expire)
        if commit_log_offset > self._commit_log.committed_where:
            self.commit_soon()
        self.schedule()
        return waiter

    def committed(self) -> None:
        """More of the log is in files: flush it, if somebody waits for that, or if it is enough."""
        if self._waiters:
            self.schedule()
        elif not self._config.flush_commit_log_timed:
            self._flush_enough()

    async def _flush_by_interval(self) -> None:
        config = self._config
        thorough_at = self._clock.monotonic()
        while self.error is None:
            await self._clock.sleep(config.flush_interval_commit_log / 1000)
            now = self._clock.monotonic()
            least_pages = config.flush_commit_log_least_pages
            if now >= thorough_at + config.flush_commit_log_thorough_interval / 1000:
                least_pages = 0
            dirty = self._commit_log.committed_where - self._commit_log.flushed_where
            if dirty <= 0 or dirty < least_pages * PAGE_SIZE:
                continue
            thorough_at = now
            self.schedule()
            await self._idle.wait()

    def _flush_enough(self) -> None:
        """flushCommitLogTimed=false: puts wake the flush when there are enough pages."""
        log = self._commit_log
        least = self._config.flush_commit_log_least_pages * PAGE_SIZE
        log.wake_bytes = max(least, PAGE_SIZE)
        if log.committed_where - log.flushed_where >= least:
            self.schedule()

    def _flush(self) -> None:
        self.is_scheduled = False
        log = self._commit_log
        target = log.committed_where
        if target <= log.flushed_where or self.error is not None:
            self._idle.set()
            return
        self._is_flushing = True
        files = log.files_between(log.flushed_where, target)
        store_timestamp = self.committed_timestamp
        if store_timestamp is None:
            store_timestamp = self.store_timestamp
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._thread, _sync, files)
        done.add_done_callback(lambda done: self._flushed(done, target, store_timestamp))

    def _flushed(self, done: asyncio.Future[None], target: int, store_timestamp: int) -> None:
        self._is_flushing = False
        error = done.exception()
        if error is not None:
            self._fail(error if isinstance(error, OSError) else OSError(str(error)))
            return
        self._commit_log.flushed_where = target
        self.flushed_timestamp = store_timestamp
        waiters = self._waiters
        while waiters and waiters[0][0] <= target:
            _, _, waiter, answer_of = waiters.popleft()
            _tell(waiter, answer_of, PutMessageStatus.PUT_OK)
        self.on_flushed()
        if self.is_scheduled:
            self._flush()
        else:
            self._idle.set()

    def _fail(self, error: OSError) -> None:
        self.error = error
        self.is_scheduled = False
        self._idle.set()
        while self._waiters:
            _, _, waiter, answer_of = self._waiters.popleft()
            _tell(waiter, answer_of, PutMessageStatus.SERVICE_NOT_AVAILABLE)
        self.on_failed(error)

    def _expire(self) -> None:
        """End the waits whose time is up; the message is stored, its flush just takes long."""
        self._timer = None
        now = self._clock.monotonic()
        waiters = self._waiters
        while waiters and (waiters[0][1] <= now or waiters[0][2].done()):
            _, _, waiter, answer_of = waiters.popleft()
            _tell(waiter, answer_of, PutMessageStatus.FLUSH_DISK_TIMEOUT)
        if waiters:
            self._timer = self._clock.call_at(waiters[0][1], self._expire)


class ConsumeQueueFlusher(Service):
    """Flushes ConsumeQueues and the index, then writes the checkpoint. Event loop only."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        storage: Storage,
        checkpoint_path: Path,
        queues: ConsumeQueues,
        index: IndexService | None,
        log_flusher: CommitLogFlusher,
    ) -> None:
        super().__init__()
        self.on_failed: Callable[[OSError], None] = ignore
        self.checkpoint = checkpoint_format.Checkpoint()
        self._config = config
        self._clock = clock
        self._storage = storage
        self._checkpoint_path = checkpoint_path
        self._queues = queues
        self._index = index
        self._log_flusher = log_flusher
        self._thread = ThreadPoolExecutor(1, "flush-queues")

    def start(self) -> None:
        """Begin to flush by interval."""
        self.spawn(self._flush_by_interval(), name="flush-consume-queues")

    async def shutdown(self) -> None:
        """Flush what is left and write the checkpoint; the log must have been flushed before."""
        await super().shutdown()
        if self._log_flusher.error is None:
            await self.flush()
        self._thread.shutdown()

    async def flush(self, least_units: int = 0) -> None:
        """Flush queues with so many new units; when that is all of them, write the checkpoint."""
        store_timestamp = self._log_flusher.store_timestamp
        index_timestamp = 0 if self._index is None else self._index.end_timestamp
        files, directories = self._queues.take_files_to_flush(least_units)
        if self._index is not None and least_units == 0:
            files += self._index.files_to_flush()
            directories += self._index.directories_to_flush()
        self._queues.is_flushing = True
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, _sync, files)
            await loop.run_in_executor(self._thread, self._sync_directories, directories)
            if store_timestamp > 0 and least_units == 0:
                page = self.checkpoint._replace(
                    physic_msg_timestamp=self._log_flusher.flushed_timestamp,
                    logics_msg_timestamp=store_timestamp,
                    index_msg_timestamp=index_timestamp,
                )
                await loop.run_in_executor(self._thread, self._write_checkpoint, page)
                self.checkpoint = page
        except OSError as error:
            self.on_failed(error)
        finally:
            self._queues.is_flushing = False

    async def _flush_by_interval(self) -> None:
        config = self._config
        least_units = config.flush_consume_queue_least_pages * PAGE_SIZE // UNIT_SIZE
        thorough_at = self._clock.monotonic()
        while self._log_flusher.error is None:
            await self._clock.sleep(config.flush_interval_consume_queue / 1000)
            now = self._clock.monotonic()
            thorough = now >= thorough_at + config.flush_consume_queue_thorough_interval / 1000
            if thorough:
                thorough_at = now
            if self._queues.dirty:
                await self.flush(0 if thorough else least_units)

    def _sync_directories(self, directories: list[Path]) -> None:
        for directory in directories:
            try:
                self._storage.sync_directory(directory)
            except FileNotFoundError:
                continue  # its topic was deleted meanwhile

    def _write_checkpoint(self, page: Checkpoint) -> None:
        file = self._storage.open(self._checkpoint_path, create=True)
        try:
            file.pwrite(0, checkpoint_format.encode(page))
            file.fdatasync()
        finally:
            file.close()


def _sync(files: list[StorageFile]) -> None:
    for file in files:
        file.fdatasync()


def _tell(
    waiter: asyncio.Future[Any], answer_of: AnswerOf | None, status: PutMessageStatus
) -> None:
    if not waiter.done():
        waiter.set_result(status if answer_of is None else answer_of(status))


def nothing() -> None:
    """Nobody listens."""


def ignore(error: OSError) -> None:
    """Nobody listens."""
