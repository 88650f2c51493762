"""StoreFiles: the contents of one store directory, from its lock to its checkpoint."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from broker_core.errors import StoreError
from broker_core.formats import checkpoint as checkpoint_format
from broker_core.formats.cq_unit import UNIT_SIZE
from broker_core.formats.paths import StorePaths
from broker_core.message.delay_levels import parse_delay_levels
from broker_core.store.acknowledge import counts_when_flushed
from broker_core.store.commit_log import CommitLog
from broker_core.store.consume_queues import ConsumeQueues, Extension
from broker_core.store.deleted_topics import DeletedTopics
from broker_core.store.index_service import IndexService
from broker_core.store.lock_file import acquire_lock
from broker_core.store.memory_lock import MemoryLock
from broker_core.store.put_state import PutState
from broker_core.store.quarantine import Quarantine
from broker_core.store.recovery import Recovery
from broker_core.store.transient_store_pool import TransientStorePool
from broker_core.store.warm_up import WarmUp

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from broker_core.clock import Clock
    from broker_core.config.store import StoreConfig
    from broker_core.storage import Storage, StorageFile
    from broker_core.store.consume_queue import BitMapOf
    from broker_core.store.results import RecoveryReport

logger = logging.getLogger(__name__)


class StoreFiles:
    """`load`, use, `close`. Event loop only after `load`.

    Attributes:
        paths: the locations of all files.
        put_state: where the next record goes.
        log, queues, index: the messages and their lookup structures; index is None without one.
        quarantine: damaged ranges of the log.
        deleted: deleted topics with the log offsets of their deletions.
        pool: buffers that the log is written through, None without transientStorePoolEnable.
        checkpoint: the data that was durable at the last flush of the queues.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        storage: Storage,
        allocator: Executor,
        bit_map_of: BitMapOf,
    ) -> None:
        self.paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
        self.put_state = PutState()
        self.checkpoint = checkpoint_format.Checkpoint()
        self.quarantine = Quarantine(self.paths.quarantine, storage)
        self.deleted = DeletedTopics(self.paths.deleted_topics, storage)
        self._config = config
        self._clock = clock
        self._storage = storage
        self._allocator = allocator
        self._memory_lock = MemoryLock(storage)
        self._lock: StorageFile | None = None
        self.pool = self._new_pool()
        self._warm_up = self._new_warm_up()
        self.log = CommitLog(
            self.paths.commit_log,
            config.mapped_file_size_commit_log,
            storage,
            allocator,
            self.put_state,
            self.pool,
            self._warm_up,
        )
        self.queues = self._new_queues(bit_map_of)
        self.index = self._new_index()

    def load(
        self, prepare: Callable[[], None] | None = None, cut_at: int | None = None
    ) -> RecoveryReport:
        """Lock the directory and recover its data. A plain call: no loop, no threads.

        prepare is called once the directory is locked and before anything in it is changed. cut_at:
        the offset at which to end the log, if it is longer; after a load was killed, the same load
        can be repeated.

        Raises:
            StoreError: another process uses it, or the store has a different configuration.
            OSError: a file can't be read or created.
        """
        storage, paths = self._storage, self.paths
        if "," in str(paths.commit_log):
            raise StoreError(f"storePathCommitLog={paths.commit_log}: one directory is supported")
        for directory in (paths.root, paths.commit_log, paths.consume_queue, paths.index):
            storage.make_directory(directory)
        self._lock = acquire_lock(paths.lock, storage)
        if prepare is not None:
            prepare()
        # After a cut the queues and the index have more messages than the log.
        clean_exit = cut_at is None and not storage.exists(paths.abort)
        if self.pool is not None:
            self.pool.init()
        self.quarantine.load()
        self.deleted.load()
        self.log.load()
        if cut_at is not None:
            self.log.cut_at(cut_at)
        self.queues.load(trust_end=clean_exit)
        if self.index is not None:
            self.index.load()
        self.checkpoint = checkpoint_format.decode(storage.read(paths.checkpoint) or b"")
        return self._recover(clean_exit=clean_exit)

    def mark_running(self) -> None:
        """Create the abort file, kept until `mark_clean_exit`; lock the pool in memory."""
        self._storage.open(self.paths.abort, create=True).close()
        self._storage.sync_directory(self.paths.root)
        if self.pool is not None:
            self._allocator.submit(self.pool.lock, self._memory_lock)

    def mark_clean_exit(self) -> None:
        """Mark the exit as clean: the next start needn't look for damage."""
        self._storage.unlink(self.paths.abort)
        self._storage.sync_directory(self.paths.root)

    def close(self) -> None:
        """Close the files and release the lock without a flush."""
        if self._warm_up is not None:
            self._warm_up.close()
        self._allocator.shutdown()
        self.log.close()
        if self.pool is not None:
            self.pool.destroy()
        self.queues.close()
        if self.index is not None:
            self.index.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def failure_text(self, error: OSError) -> str:
        """Return why the directory can't be used, for the operator."""
        root = self.paths.root
        if error.errno == errno.ENOSPC:
            return f"no space left on the device for the store {root}"
        if error.errno in {errno.EACCES, errno.EPERM}:
            return f"no permission to read and write {error.filename or root}"
        return f"the store {root} cannot be opened: {error}"

    def _recover(self, *, clean_exit: bool) -> RecoveryReport:
        recovery = Recovery(
            self.log,
            self.queues,
            self.index,
            self.quarantine,
            self.deleted,
            self.checkpoint,
            self._clock,
            clean_exit=clean_exit,
            check_crc=self._config.check_crc_on_recover,
            is_guarded=self._config.enabled_append_prop_crc,
        )
        report = recovery.run(follows=self._config.broker_role == "SLAVE")
        if not clean_exit:
            # Written by the killed process, durable or not: it counts as durable from now on, and
            # the next checkpoint will cover it.
            for directory in {self.paths.root, self.paths.commit_log}:
                self._storage.sync_file_system(directory)
        self.deleted.clamp(report.max_commit_log_offset)
        self.put_state.store_timestamp = recovery.store_timestamp
        logger.info(
            "store recovered clean_exit=%s records=%d min_commit_log_offset=%d "
            "max_commit_log_offset=%d damaged=%d duration_ms=%d",
            report.clean_exit,
            report.records,
            report.min_commit_log_offset,
            report.max_commit_log_offset,
            len(report.damaged),
            report.duration_ms,
        )
        return report

    def _new_pool(self) -> TransientStorePool | None:
        config = self._config
        if not config.is_transient_store_pool_enabled:
            return None
        return TransientStorePool(
            self._storage, config.transient_store_pool_size, config.mapped_file_size_commit_log
        )

    def _new_warm_up(self) -> WarmUp | None:
        config = self._config
        if not config.warm_maped_file_enable:
            return None
        return WarmUp(
            config.flush_least_pages_when_warm_maped_file,
            self._storage,
            self._memory_lock,
            self._allocator,
            is_flushed=counts_when_flushed(config),
        )

    def _new_queues(self, bit_map_of: BitMapOf) -> ConsumeQueues:
        config = self._config
        size = config.mapped_file_size_consume_queue
        extension = None
        if config.enable_consume_queue_ext:
            extension = Extension(
                self.paths.consume_queue_ext, config.mapped_file_size_consume_queue_ext, bit_map_of
            )
        return ConsumeQueues(
            self.paths.consume_queue,
            size + -size % UNIT_SIZE,
            self._storage,
            parse_delay_levels(config.message_delay_level),
            extension,
        )

    def _new_index(self) -> IndexService | None:
        config = self._config
        if not config.message_index_enable:
            return None
        return IndexService(
            self.paths.index,
            config.max_hash_slot_num,
            config.max_index_num,
            self._storage,
            self._clock,
        )
