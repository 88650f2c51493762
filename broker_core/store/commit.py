"""Committing: copies messages from a TransientStorePool buffer into their file.

A separate thread writes the messages put since its last run: as soon as there are
commitCommitLogLeastPages, and any amount after commitCommitLogThoroughInterval; it checks every
commitIntervalCommitLog. Data in the file survives the process; the flush follows.

A failed write is never retried: as after a failed flush, nothing is acknowledged from then on.

Source: store/CommitLog.java CommitRealTimeService (4.9.8).
Differs: enough pages are committed immediately, not at the next check.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from broker_core.isolation import isolated
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock
    from broker_core.config.store import StoreConfig
    from broker_core.store.commit_log import CommitLog, Piece
    from broker_core.store.flush import CommitLogFlusher

PAGE_SIZE = 4096
PIECE_BYTES_MAX = 8 << 20
"""Limits a commit, so that readers see each piece without waiting for the whole backlog."""


class CommitLogCommitter(Service):
    """Event loop only; a separate thread writes the files.

    Attributes:
        error: the failure that ended committing, here or elsewhere; None without a failure.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        commit_log: CommitLog,
        flusher: CommitLogFlusher,
        on_committed: Callable[[], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        """Call `on_committed` when committed_where has moved, `on_failed` with a failed write."""
        super().__init__()
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._config = config
        self._clock = clock
        self._log = commit_log
        self._flusher = flusher
        self._is_scheduled = False
        self._is_committing = False
        self._is_thorough = False
        self.error: OSError | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = ThreadPoolExecutor(1, "commit")

    def start(self) -> None:
        """Start committing at intervals."""
        self.spawn_forever(self._clock, self._commit_by_interval, name="commit-commit-log")

    async def shutdown(self) -> None:
        """Commit the remaining data, unless something has failed."""
        await super().shutdown()
        while self.error is None and self._log.committed_where < self._log.max_offset:
            self.commit_all()
            await self._idle.wait()
        self._thread.shutdown()

    def schedule(self) -> None:
        """Commit after the current turn of the loop, if enough was put."""
        if not self._is_scheduled and self.error is None:
            self._is_scheduled = True
            self._idle.clear()
            if not self._is_committing:
                asyncio.get_running_loop().call_soon(self._commit)

    def commit_all(self) -> None:
        """Commit soon, even if there is little data."""
        self._is_thorough = True
        self.schedule()

    def flush_up_to(self, commit_log_offset: int) -> None:
        """Commit and flush soon, because a caller waits for an offset to be durable."""
        if commit_log_offset > self._log.committed_where:
            self.commit_all()
        self._flusher.flush_up_to(commit_log_offset)

    async def _commit_by_interval(self) -> None:
        config = self._config
        thorough_at = self._clock.monotonic()
        while self.error is None:
            await self._clock.sleep(config.commit_interval_commit_log / 1000)
            now = self._clock.monotonic()
            if now >= thorough_at + config.commit_commit_log_thorough_interval / 1000:
                thorough_at = now
                self._is_thorough = True
            if self._log.committed_where < self._log.max_offset:
                self.schedule()

    def _commit(self) -> None:
        self._is_scheduled = False
        log, flusher = self._log, self._flusher
        piece = None if self.error is not None else log.piece_to_commit(PIECE_BYTES_MAX)
        if piece is None:
            self._is_thorough = False
            self._idle.set()
            if self.error is None and log.committed_where == log.max_offset:
                # A file that existed at the start is written without a buffer.
                flusher.committed_timestamp = log.put_state.store_timestamp
                self._on_committed()
            return
        least = self._config.commit_commit_log_least_pages * PAGE_SIZE
        if not self._is_thorough and len(piece.data) < least and not piece.mapped.is_rolled:
            self._idle.set()
            return
        end = piece.mapped.file_from_offset + piece.position + len(piece.data)
        store_timestamp = None
        if end == log.max_offset:
            self._is_thorough = False
            store_timestamp = log.put_state.store_timestamp
        self._is_committing = True
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(
            self._thread, piece.mapped.file.pwrite, piece.position, piece.data
        )
        done.add_done_callback(lambda done: self._committed(done, piece, store_timestamp))

    def _committed(
        self, done: asyncio.Future[None], piece: Piece, store_timestamp: int | None
    ) -> None:
        self._is_committing = False
        error = done.exception()
        if error is not None:
            self._fail(error if isinstance(error, OSError) else OSError(str(error)))
            return
        self._log.committed(piece)
        if store_timestamp is not None:
            self._flusher.committed_timestamp = store_timestamp
        with isolated("reporting a commit"):
            self._on_committed()
        self._commit()

    def _fail(self, error: OSError) -> None:
        self.error = error
        self._idle.set()
        self._on_failed(error)
