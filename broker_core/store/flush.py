"""Flushing: how the log becomes durable, and the checkpoint.

One thread flushes the log, another the ConsumeQueues and the index. ASYNC_FLUSH flushes at
intervals. SYNC_FLUSH is a group commit: messages put while one fdatasync runs share the next one.

A failed flush is never retried: the kernel has dropped the pages, and a second fdatasync would
report success. After the first error nothing counts as durable.

Source: store/CommitLog.java FlushRealTimeService, GroupCommitService (4.9.8).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from broker_core.formats import checkpoint as checkpoint_format
from broker_core.formats.cq_unit import UNIT_SIZE
from broker_core.isolation import isolated
from broker_core.service import AGAIN_S, Service, begin_thread
from broker_core.store.acknowledge import counts_when_flushed
from broker_core.store.flush_thread import FlushThread, sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from broker_core.clock import Clock
    from broker_core.config.store import StoreConfig
    from broker_core.formats.checkpoint import Checkpoint
    from broker_core.storage import Storage, StorageFile
    from broker_core.store.commit_log import CommitLog
    from broker_core.store.store_files import StoreFiles

logger = logging.getLogger(__name__)

PAGE_SIZE = 4096
QUEUES_AT_ONCE = 16
"""Per this many queues with new units, a flush of a queue waits for another
flushConsumeQueueLeastPages: flushing a file costs as much as sixty messages, and only a flush of
all queues moves the checkpoint.
"""


class Flush(NamedTuple):
    """A completed flush of the log."""

    flushed_where: int
    at_s: float
    """When it ended, by the monotonic clock."""
    took_s: float
    together: int
    """How many messages were put since the previous flush."""


class CommitLogFlusher(Service):
    """Event loop only; fdatasync runs in a separate thread.

    Attributes:
        error: the failure that ended flushing; None without a failure.
        committed_timestamp: all messages stored up to this time are in their files; set by the
            committer of a TransientStorePool, None without one.
        flushed_timestamp: all messages stored up to this time are durable.
        on_took: called with each flush, when set.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        commit_log: CommitLog,
        on_flushed: Callable[[], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        """Call `on_flushed` when flushed_where has moved, `on_failed` with a failed flush."""
        super().__init__()
        self.error: OSError | None = None
        self.committed_timestamp: int | None = None
        self.flushed_timestamp = 0
        self.on_took: Callable[[Flush], None] | None = None
        self._began_at = 0.0
        self._put_times = 0
        self._together = 0
        self._is_scheduled = False
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._config = config
        self._clock = clock
        self._commit_log = commit_log
        self._is_flushing = False
        self._target = 0
        self._store_timestamp = 0
        self._wanted_where = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = FlushThread()

    def start(self) -> None:
        """Start flushing at intervals; SYNC_FLUSH flushes after puts instead.

        A slave always flushes at intervals, because it has no puts.
        """
        self._thread.start()
        config = self._config
        if not counts_when_flushed(config) or config.broker_role == "SLAVE":
            if not config.flush_commit_log_timed:
                self._commit_log.wake_bytes = PAGE_SIZE
                # Run after the put that triggers it, so that its data counts.
                loop = asyncio.get_running_loop()
                self._commit_log.on_wake = lambda: loop.call_soon(self._flush_enough)
            self.spawn_forever(self._clock, self._flush_by_interval, name="flush-commit-log")

    async def shutdown(self) -> None:
        """Flush the remaining data, unless a flush has failed."""
        await super().shutdown()
        while self.error is None and self._commit_log.flushed_where < self._commit_log.max_offset:
            self.schedule()
            await self._idle.wait()
        self._thread.shutdown()

    def schedule(self) -> None:
        """Flush after the current turn of the loop, so that many puts share one flush."""
        if not self._is_scheduled and self.error is None:
            self._is_scheduled = True
            self._idle.clear()
            if not self._is_flushing:
                asyncio.get_running_loop().call_soon(self._flush)

    def flush_up_to(self, commit_log_offset: int) -> None:
        """Flush soon, because a caller waits for an offset."""
        self._wanted_where = max(self._wanted_where, commit_log_offset)
        self.schedule()

    def committed(self) -> None:
        """Flush the committed data, if a caller waits for it or there is enough of it."""
        if self._wanted_where > self._commit_log.flushed_where:
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
        """Flush when enough pages have been put (flushCommitLogTimed=false)."""
        log = self._commit_log
        least = self._config.flush_commit_log_least_pages * PAGE_SIZE
        log.wake_bytes = max(least, PAGE_SIZE)
        if log.committed_where - log.flushed_where >= least:
            self.schedule()

    def _flush(self) -> None:
        self._is_scheduled = False
        log = self._commit_log
        target = log.committed_where
        if target <= log.flushed_where or self.error is not None:
            self._idle.set()
            return
        self._is_flushing = True
        self._began_at = self._clock.monotonic()
        put_times = log.put_state.put_times
        self._together, self._put_times = put_times - self._put_times, put_times
        files = log.files_between(log.flushed_where, target)
        store_timestamp = self.committed_timestamp
        if store_timestamp is None:
            store_timestamp = log.put_state.store_timestamp
        self._target, self._store_timestamp = target, store_timestamp
        try:
            self._thread.submit(files, self._flushed)
        except (MemoryError, RuntimeError) as error:
            # Nothing was flushed, so flushing later loses nothing.
            logger.warning("log flush delayed reason=%s", repr(error))
            self._is_scheduled = True
            self._clock.call_at(self._began_at + AGAIN_S, self._flush_again)

    def _flush_again(self) -> None:
        self._is_flushing = False
        self._flush()

    def _flushed(self, error: Exception | None) -> None:
        self._is_flushing = False
        if error is not None:
            self._fail(error if isinstance(error, OSError) else OSError(str(error)))
            return
        if self.on_took is not None:
            now = self._clock.monotonic()
            with isolated("recording a flush"):
                self.on_took(Flush(self._target, now, now - self._began_at, self._together))
        self._commit_log.flushed_where = self._target
        self.flushed_timestamp = self._store_timestamp
        with isolated("reporting a flush"):
            self._on_flushed()
        if self._is_scheduled:
            self._flush()
        else:
            self._idle.set()

    def _fail(self, error: OSError) -> None:
        self.error = error
        self._is_scheduled = False
        self._idle.set()
        self._on_failed(error)


class ConsumeQueueFlusher(Service):
    """Flushes ConsumeQueues and the index, then writes the checkpoint. Event loop only."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        storage: Storage,
        files: StoreFiles,
        log_flusher: CommitLogFlusher,
        on_failed: Callable[[OSError], None],
    ) -> None:
        super().__init__()
        self._config = config
        self._clock = clock
        self._storage = storage
        self._files = files
        self._queues = files.queues
        self._index = files.index
        self._log_flusher = log_flusher
        self._on_failed = on_failed
        self._thread = ThreadPoolExecutor(1, "flush-queues")

    def start(self) -> None:
        """Start flushing at intervals."""
        begin_thread(self._thread)
        self.spawn_forever(self._clock, self._flush_by_interval, name="flush-consume-queues")

    async def shutdown(self) -> None:
        """Flush the remaining data and write the checkpoint; the log must be flushed already."""
        await super().shutdown()
        if self._log_flusher.error is None:
            await self.flush()
        self._thread.shutdown()

    async def flush(self, least_units: int = 0) -> None:
        """Flush queues with enough new units; if that covers all queues, write the checkpoint."""
        store_timestamp = self._files.put_state.store_timestamp
        index_timestamp = 0 if self._index is None else self._index.end_timestamp
        try:
            files, directories = self._queues.take_files_to_flush(least_units)
            if self._index is not None and least_units == 0:
                files += self._index.files_to_flush()
                directories += self._index.directories_to_flush()
            self._queues.is_flushing = True
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, _sync, files)
            await loop.run_in_executor(self._thread, self._sync_directories, directories)
            if store_timestamp > 0 and least_units == 0:
                page = self._files.checkpoint._replace(
                    physic_msg_timestamp=self._log_flusher.flushed_timestamp,
                    logics_msg_timestamp=store_timestamp,
                    index_msg_timestamp=index_timestamp,
                )
                await loop.run_in_executor(self._thread, self._write_checkpoint, page)
                self._files.checkpoint = page
        except OSError as error:
            self._on_failed(error)
        except (MemoryError, RuntimeError) as error:
            # The files are already off the list and won't be flushed, so no checkpoint may include
            # them.
            self._on_failed(OSError(errno.ENOMEM, str(error) or "no memory to flush the queues"))
        except Exception as error:
            logger.exception("queue flush failed")
            self._on_failed(OSError(errno.EIO, repr(error)))
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
            if dirty := len(self._queues.dirty):
                crowd = max(1, dirty // QUEUES_AT_ONCE)
                await self.flush(0 if thorough else least_units * crowd)

    def _sync_directories(self, directories: list[Path]) -> None:
        for directory in directories:
            try:
                self._storage.sync_directory(directory)
            except FileNotFoundError:
                continue  # the topic was deleted meanwhile

    def _write_checkpoint(self, page: Checkpoint) -> None:
        file = self._storage.open(self._files.paths.checkpoint, create=True)
        try:
            file.pwrite(0, checkpoint_format.encode(page))
            file.fdatasync()
        finally:
            file.close()


def _sync(files: list[StorageFile]) -> None:
    error = sync(files)
    if error is not None:
        raise error
