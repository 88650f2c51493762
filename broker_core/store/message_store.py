"""The store, as the services see it.

Source: store/DefaultMessageStore.java, store/CommitLog.java putMessage (4.9.8).
"""

from __future__ import annotations

import errno
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from zlib import crc32

from broker_core.errors import CorruptRecordError, StoreError, StoreUnavailableError
from broker_core.formats import batch, checkpoint
from broker_core.formats.cq_ext_unit import ADDRESS_MAX
from broker_core.formats.cq_unit import UNIT, UNIT_SIZE
from broker_core.formats.paths import StorePaths
from broker_core.formats.record import (
    CRC_MASK,
    FIXED,
    GUARDED,
    MESSAGE_MAGIC,
    PROPERTIES_SIZE,
    examine,
    with_crc_room,
)
from broker_core.message.ids import HOST_V4_SIZE, HOST_V6_SIZE, parse_host
from broker_core.message.names import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY
from broker_core.message.properties import (
    PROPERTIES_BYTES_MAX,
    decode as decode_properties,
    encode as encode_properties,
)
from broker_core.message.sys_flag import (
    BORNHOST_V6_FLAG,
    HOST_V6_MASK,
    STOREHOST_V6_FLAG,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
)
from broker_core.message.tags import tags_code as tags_code_of
from broker_core.service import Service
from broker_core.store.commit import CommitLogCommitter
from broker_core.store.commit_log import CommitLog
from broker_core.store.consume_queue import no_bit_map
from broker_core.store.consume_queues import ConsumeQueues, Extension
from broker_core.store.deleted_topics import DeletedTopics
from broker_core.store.flush import CommitLogFlusher, ConsumeQueueFlusher
from broker_core.store.index_service import IndexService
from broker_core.store.lock_file import take_lock
from broker_core.store.memory_lock import MemoryLock
from broker_core.store.quarantine import Quarantine
from broker_core.store.reads import MessageReader
from broker_core.store.recovery import Recovery
from broker_core.store.results import PutBatchResult, PutMessageResult, PutMessageStatus
from broker_core.store.retention import Retention
from broker_core.store.store_stats import StoreStats
from broker_core.store.transient_store_pool import TransientStorePool
from broker_core.store.warm_up import WarmUp

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping
    from struct import Struct

    from broker_core.clock import Clock
    from broker_core.config import StoreConfig
    from broker_core.formats.cq_ext_unit import CqExtUnit
    from broker_core.formats.record import GuardedFields
    from broker_core.message.message import MessageExt
    from broker_core.storage import Storage, StorageFile
    from broker_core.store.consume_queue import BitMapOf, ConsumeQueue
    from broker_core.store.results import GetMessageResult, MessageFilter, RecoveryReport

    Arrival = Callable[[str, int, int], None]
    Dispatch = Callable[
        [str, int, int, int, int, int, int, str | None, str | None, str | None, bytes], None
    ]

logger = logging.getLogger(__name__)

PUT_OK = PutMessageStatus.PUT_OK
pack_unit = UNIT.pack_into
pack_text_size = PROPERTIES_SIZE.pack
COLD_READ_THREADS = 4
RECORD_OVERHEAD_MAX = 64 * 1024
HELD_BACK_MAX = 200_000
"""So many messages may wait to be flushed, or committed, before they are read; then puts are
refused. A disk that stands still must not take the memory."""
DELAY_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class MessageStore(Service):
    """One store directory. `load`, `start`, use, `shutdown`; event loop only after `load`.

    Attributes:
        on_arrival: called with (topic, queue_id, max_offset_in_queue) when messages can be read.
        on_dispatch: called for each message put, with (topic, queue_id, queue_offset,
            commit_log_offset, store_timestamp, store_size, body_size, tags, keys, uniq_key,
            born_host).
        is_sync_flush: a put is not durable before `until_durable` says so.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        storage: Storage,
        store_host: bytes,
        bit_map_of: BitMapOf = no_bit_map,
    ) -> None:
        super().__init__()
        self.on_arrival: Arrival | None = None
        self.on_dispatch: Dispatch | None = None
        self._config = config
        self._clock = clock
        self._storage = storage
        self._paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
        self._store_host = store_host
        self._store_v6_flag = STOREHOST_V6_FLAG if len(store_host) == HOST_V6_SIZE else 0
        self.is_sync_flush = config.flush_disk_type == "SYNC_FLUSH"
        self._allocator = ThreadPoolExecutor(1, "allocate")
        self._cold_reads = ThreadPoolExecutor(COLD_READ_THREADS, "cold-read")
        self._memory_lock = MemoryLock(storage)
        self._pool = (
            TransientStorePool(
                storage, config.transient_store_pool_size, config.mapped_file_size_commit_log
            )
            if config.is_transient_store_pool_enabled
            else None
        )
        self._warm_up = (
            WarmUp(config, storage, self._memory_lock, self._allocator)
            if config.warm_maped_file_enable
            else None
        )
        self._log = CommitLog(
            self._paths.commit_log,
            config.mapped_file_size_commit_log,
            storage,
            self._allocator,
            self._pool,
            self._warm_up,
        )
        # What the put path would have to ask for each message is chosen here.
        self._is_guarded = config.enabled_append_prop_crc
        fixed: Mapping[tuple[int, int], Struct | GuardedFields] = (
            GUARDED if self._is_guarded else FIXED
        )
        self._fixed_v4 = fixed[HOST_V4_SIZE, len(store_host)]
        self._fixed_v6 = fixed[HOST_V6_SIZE, len(store_host)]
        self._properties_bytes: Callable[[str], bytes] = (
            with_crc_room if self._is_guarded else str.encode
        )
        self._queues = ConsumeQueues(
            self._paths.consume_queue,
            config.mapped_file_size_consume_queue
            + -config.mapped_file_size_consume_queue % UNIT_SIZE,
            storage,
            parse_delay_levels(config.message_delay_level),
            Extension(
                self._paths.consume_queue_ext, config.mapped_file_size_consume_queue_ext, bit_map_of
            )
            if config.enable_consume_queue_ext
            else None,
        )
        self._index = (
            IndexService(
                self._paths.index,
                config.max_hash_slot_num,
                config.max_index_num,
                storage,
                clock,
            )
            if config.message_index_enable
            else None
        )
        self._quarantine = Quarantine(self._paths.quarantine, storage)
        self._deleted = DeletedTopics(self._paths.deleted_topics, storage)
        self._reader = MessageReader(
            config,
            self._log,
            self._queues,
            self._index,
            self._quarantine,
            self._cold_reads,
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )
        self._stats = StoreStats(clock, self._reader)
        self._flusher = CommitLogFlusher(config, clock, self._log)
        self._flusher.on_flushed = self._log_flushed
        self._flusher.on_failed = self._io_failed
        self._committer = (
            None
            if self._pool is None
            else CommitLogCommitter(config, clock, self._log, self._flusher)
        )
        self._holds_back = self.is_sync_flush or self._committer is not None
        self._make_readable = self._flusher.schedule
        if self._committer is not None:
            self._committer.on_committed = self._log_committed
            self._committer.on_failed = self._io_failed
            self._flusher.commit_soon = self._committer.commit_all
            self._make_readable = self._committer.schedule
        self._queue_flusher = ConsumeQueueFlusher(
            config,
            clock,
            storage,
            self._paths.checkpoint,
            self._queues,
            self._index,
            self._flusher,
        )
        self._queue_flusher.on_failed = self._io_failed
        self._retention = Retention(
            config,
            clock,
            storage,
            self._log,
            self._queues,
            self._index,
            self._quarantine,
            self._deleted,
        )
        self._retention.on_disk_changed = self._decide_writable
        self._lock: StorageFile | None = None
        self._is_started = False
        self._failure: OSError | None = None
        self._is_writable = False
        self._last_store_timestamp = 0
        self._now_ms = clock.now_ms
        # Units that wait for the log to be flushed (SYNC_FLUSH) or committed (with a pool), as
        # (end in the log, queue, max_offset afterwards).
        self._held_back: list[tuple[int, ConsumeQueue, int]] = []

    # -- life

    def load(self, prepare: Callable[[], None] | None = None) -> RecoveryReport:
        """Take the directory and recover what is in it. A plain call: no loop, no threads.

        prepare is called when the directory is ours and nothing in it was touched.

        Raises:
            StoreError: another process uses it, or it is not a store of this configuration.
        """
        try:
            return self._load(prepare)
        except OSError as error:
            self.close()
            raise StoreError(_sentence(error, self._paths)) from error
        except StoreError:
            self.close()
            raise

    def _load(self, prepare: Callable[[], None] | None) -> RecoveryReport:
        storage, paths = self._storage, self._paths
        if "," in str(paths.commit_log):
            raise StoreError(f"storePathCommitLog={paths.commit_log}: one directory is supported")
        for directory in (paths.root, paths.commit_log, paths.consume_queue, paths.index):
            storage.make_directory(directory)
        self._lock = take_lock(paths.lock, storage)
        if prepare is not None:
            prepare()
        clean_exit = not storage.exists(paths.abort)
        if self._pool is not None:
            self._pool.init()
        self._quarantine.load()
        self._deleted.load()
        self._log.load()
        self._queues.load(trust_end=clean_exit)
        if self._index is not None:
            self._index.load()
        page = checkpoint.decode(storage.read(paths.checkpoint) or b"")
        self._queue_flusher.checkpoint = page
        recovery = Recovery(
            self._log,
            self._queues,
            self._index,
            self._quarantine,
            self._deleted,
            page,
            self._clock,
            clean_exit=clean_exit,
            check_crc=self._config.check_crc_on_recover,
            is_guarded=self._is_guarded,
        )
        report = recovery.run()
        if not clean_exit:
            # Written by the process that was killed, durable or not: it counts as durable from here
            # on, and the next checkpoint vouches for it.
            for directory in {paths.root, paths.commit_log}:
                storage.sync_file_system(directory)
        self._deleted.clamp(report.max_commit_log_offset)
        self._last_store_timestamp = recovery.store_timestamp
        self._flusher.store_timestamp = recovery.store_timestamp
        self._flusher.flushed_timestamp = recovery.store_timestamp
        if self._committer is not None:
            self._flusher.committed_timestamp = recovery.store_timestamp
            self._reader.read_limit = self._log.committed_where
        elif self.is_sync_flush:
            self._reader.read_limit = self._log.flushed_where
        logger.info(
            "recovered: clean_exit=%s records=%d min_commit_log_offset=%d max_commit_log_offset=%d "
            "damaged=%d duration_ms=%d",
            report.clean_exit,
            report.records,
            report.min_commit_log_offset,
            report.max_commit_log_offset,
            len(report.damaged),
            report.duration_ms,
        )
        return report

    async def start(self) -> None:
        """Take writes; flush and clean in the background."""
        self._storage.open(self._paths.abort, create=True).close()
        self._storage.sync_directory(self._paths.root)
        self._retention.check_disk()
        if self._pool is not None:
            self._allocator.submit(self._pool.lock, self._memory_lock)
        if self._committer is not None:
            self._committer.start()
        self._flusher.start()
        self._queue_flusher.start()
        self._retention.start()
        self.spawn(self._sample_forever(), name="store-stats")
        self._is_started = True
        self._decide_writable()

    async def shutdown(self) -> None:
        """Flush everything, mark the exit as clean, give the directory back."""
        was_started, self._is_started = self._is_started, False
        self._decide_writable()
        await super().shutdown()
        await self._retention.shutdown()
        if self._committer is not None:
            await self._committer.shutdown()
        await self._flusher.shutdown()
        await self._queue_flusher.shutdown()
        if was_started and self._failure is None:
            self._storage.unlink(self._paths.abort)
            self._storage.sync_directory(self._paths.root)
        self.close()

    def close(self) -> None:
        """Give back files and the lock, flushing nothing; for a store that was not started."""
        self._is_writable = False
        if self._warm_up is not None:
            self._warm_up.close()
        self._allocator.shutdown()
        self._cold_reads.shutdown()
        self._log.close()
        if self._pool is not None:
            self._pool.destroy()
        self._queues.close()
        if self._index is not None:
            self._index.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- put

    def put_message(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        properties: str,
        *,
        tags: str | None,
        keys: str | None,
        uniq_key: str | None,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> PutMessageResult:
        """Append a message, dispatch it to its queue and the index, tell who waits for it.

        This is the hot path: it packs into the mappings by itself, makes no object but the result,
        and leaves to other methods whatever does not happen for each message.
        """
        if not self._is_writable:
            return self._refused(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        try:
            queue = self._queues.table[topic][queue_id]
        except KeyError:
            created = self._queues.create(topic, queue_id)
            if created is None:
                return self._refused(PutMessageStatus.MESSAGE_ILLEGAL)
            queue = created
        properties_bytes = self._properties_bytes(properties)
        properties_size = len(properties_bytes)
        body_size = len(body)
        if len(born_host) == HOST_V4_SIZE:
            fixed = self._fixed_v4
            sys_flag = sys_flag & ~HOST_V6_MASK | self._store_v6_flag
        else:
            fixed = self._fixed_v6
            sys_flag = sys_flag & ~HOST_V6_MASK | self._store_v6_flag | BORNHOST_V6_FLAG
        topic_field = queue.topic_field
        fixed_size = fixed.size
        size = fixed_size + body_size + len(topic_field) + 2 + properties_size
        log = self._log
        position = log.position
        index = self._index if uniq_key or keys else None
        if (
            position + size > log.limit
            or queue.position >= queue.limit
            or properties_size > PROPERTIES_BYTES_MAX
            or body_size > self._config.max_message_size
            or "\0" in properties
            or (index is not None and index.room <= (len(keys) if keys else 0))
        ):
            entries = (1 if uniq_key else 0) + (len(keys) if keys else 0)
            refusal = self._make_room(queue, size, body_size, properties_bytes, entries)
            if refusal is not None:
                return self._refused(refusal)
            position = log.position
        store_timestamp = self._now_ms()
        if store_timestamp < self._last_store_timestamp:
            # The wall clock went back. Recovery and time queries need times in order.
            store_timestamp = self._last_store_timestamp
        else:
            self._last_store_timestamp = self._flusher.store_timestamp = store_timestamp
        # PREPARED and ROLLBACK (the bit is in both) are stored without a place in the queue.
        has_place = not sys_flag & TRANSACTION_PREPARED_TYPE
        queue_offset = queue.next_offset if has_place else 0

        buffer = log.buffer
        commit_log_offset = log.file_from_offset + position
        body_from = position + fixed_size
        tail_from = body_from + body_size
        end = position + size
        # The head comes last: a process that is killed here leaves zeros where it would be.
        buffer[body_from:tail_from] = body
        buffer[tail_from:end] = topic_field + pack_text_size(properties_size) + properties_bytes
        fixed.pack_into(
            buffer,
            position,
            size,
            MESSAGE_MAGIC,
            crc32(body) & CRC_MASK if body_size else 0,
            queue_id,
            flag,
            queue_offset,
            commit_log_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            self._store_host,
            reconsume_times,
            prepared_transaction_offset,
            body_size,
        )
        log.position = end

        if has_place:
            code_of = queue.code_of
            if code_of is None:
                code = tags_code_of(tags) if tags else 0
            else:
                code = code_of(store_timestamp, tags, properties)
            pack_unit(queue.buffer, queue.position, commit_log_offset, size, code)
            queue.position += UNIT_SIZE
            queue.next_offset = queue_offset + 1
            if not queue.dirty:
                queue.dirty = True
                self._queues.dirty.append(queue)
        if index is not None:
            index.put(queue.key_seed, uniq_key, keys, commit_log_offset, store_timestamp)
        stats = self._stats
        stats.put_times += 1
        stats.put_bytes += size
        if self.on_dispatch is not None:
            self.on_dispatch(
                topic,
                queue_id,
                queue_offset,
                commit_log_offset,
                store_timestamp,
                size,
                body_size,
                tags,
                keys,
                uniq_key,
                born_host,
            )
        if self._holds_back:
            self._hold_back(queue, commit_log_offset + size)
        elif has_place:
            queue.max_offset = queue_offset + 1
            if self.on_arrival is not None:
                self.on_arrival(topic, queue_id, queue_offset + 1)
        return PutMessageResult(PUT_OK, commit_log_offset, queue_offset, store_timestamp, size)

    def put_batch(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        batch_properties: str,
        *,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int = 0,
    ) -> PutBatchResult:
        """Append the messages of a batch, all or none, to one file."""
        if not self._is_writable:
            return self._batch_refused(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        queue = self._queues.find(topic, queue_id) or self._queues.create(topic, queue_id)
        if (
            queue is None
            or sys_flag & TRANSACTION_MASK
            or len(body) > self._config.max_message_size
        ):
            return self._batch_refused(PutMessageStatus.MESSAGE_ILLEGAL)
        is_v4 = len(born_host) == HOST_V4_SIZE
        fixed = self._fixed_v4 if is_v4 else self._fixed_v6
        sys_flag = sys_flag & ~HOST_V6_MASK | self._store_v6_flag
        if not is_v4:
            sys_flag |= BORNHOST_V6_FLAG
        topic_field = queue.topic_field
        overhead = fixed.size + len(topic_field) + 2
        tail = batch_properties.encode()
        # What all have in common counts, where a message says something else: it comes later.
        common = decode_properties(batch_properties).get
        common_tags, common_keys = common(PROPERTY_TAGS), common(PROPERTY_KEYS)
        common_uniq_key = common(PROPERTY_UNIQ_KEY)
        items = []
        total = entries = 0
        try:
            for flag, part, own in batch.decode(bytes(body)):
                get = decode_properties(own.decode()).get
                text = batch.joined_properties(own, tail)
                if self._is_guarded:
                    text = with_crc_room(text.decode())
                if b"\0" in text:
                    return self._batch_refused(PutMessageStatus.MESSAGE_ILLEGAL)
                if len(text) > PROPERTIES_BYTES_MAX:
                    return self._batch_refused(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
                tags = common_tags or get(PROPERTY_TAGS)
                keys = common_keys or get(PROPERTY_KEYS)
                uniq_key = common_uniq_key or get(PROPERTY_UNIQ_KEY)
                size = overhead + len(part) + len(text)
                items.append((flag, part, text, size, tags, keys, uniq_key))
                total += size
                entries += 1 + (len(keys) if keys else 0)
        except (CorruptRecordError, UnicodeDecodeError):
            return self._batch_refused(PutMessageStatus.MESSAGE_ILLEGAL)
        refusal = self._reserve(queue, total, len(items), entries)
        if not items or refusal is not None:
            return self._batch_refused(refusal or PutMessageStatus.MESSAGE_ILLEGAL)
        store_timestamp = max(self._now_ms(), self._last_store_timestamp)
        self._last_store_timestamp = self._flusher.store_timestamp = store_timestamp
        log = self._log
        buffer = log.buffer
        position = log.position
        file_from_offset = log.file_from_offset
        index = self._index
        code_of = queue.code_of
        first_queue_offset = queue_offset = queue.next_offset
        offsets: list[int] = []
        units: list[bytes] = []
        crc_mask, head_size, store_host = CRC_MASK, fixed.size, self._store_host
        for flag, part, text, size, tags, keys, uniq_key in items:
            commit_log_offset = file_from_offset + position
            body_size = len(part)
            body_from = position + head_size
            end = position + size
            # As in put_message.
            buffer[body_from:end] = b"".join((part, topic_field, pack_text_size(len(text)), text))
            fixed.pack_into(
                buffer,
                position,
                size,
                MESSAGE_MAGIC,
                crc32(part) & crc_mask if body_size else 0,
                queue_id,
                flag,
                queue_offset,
                commit_log_offset,
                sys_flag,
                born_timestamp,
                born_host,
                store_timestamp,
                store_host,
                reconsume_times,
                0,
                body_size,
            )
            log.position = position = end
            offsets.append(commit_log_offset)
            if code_of is None:
                code = tags_code_of(tags) if tags else 0
            else:
                code = code_of(store_timestamp, tags, text.decode())
            units.append(UNIT.pack(commit_log_offset, size, code))
            if index is not None and (uniq_key or keys):
                index.put(queue.key_seed, uniq_key, keys, commit_log_offset, store_timestamp)
            if self.on_dispatch is not None:
                self.on_dispatch(
                    topic,
                    queue_id,
                    queue_offset,
                    commit_log_offset,
                    store_timestamp,
                    size,
                    body_size,
                    tags,
                    keys,
                    uniq_key,
                    born_host,
                )
            queue_offset += 1
        queue.append_units(b"".join(units))
        self._stats.put_times += len(items)
        self._stats.put_bytes += total
        if not queue.dirty:
            queue.dirty = True
            self._queues.dirty.append(queue)
        if self._holds_back:
            self._hold_back(queue, log.max_offset)
        else:
            queue.max_offset = queue.next_offset
            if self.on_arrival is not None:
                self.on_arrival(topic, queue_id, queue.max_offset)
        return PutBatchResult(
            PutMessageStatus.PUT_OK, offsets, first_queue_offset, store_timestamp, total
        )

    def put_copy(
        self,
        message: MessageExt,
        topic: str,
        queue_id: int,
        properties: Mapping[str, str],
        *,
        flag: int | None = None,
        sys_flag: int | None = None,
        reconsume_times: int | None = None,
        prepared_transaction_offset: int = 0,
    ) -> PutMessageResult:
        """Put a message that was stored before to another place, with these properties.

        Differs: the copy carries this broker's address; the original repeats the one that was
        stored, and ids made of it lead to a broker that may be gone.
        """
        return self.put_message(
            topic,
            queue_id,
            message.body,
            encode_properties(properties),
            tags=properties.get(PROPERTY_TAGS),
            keys=properties.get(PROPERTY_KEYS),
            uniq_key=properties.get(PROPERTY_UNIQ_KEY),
            flag=message.flag if flag is None else flag,
            sys_flag=message.sys_flag if sys_flag is None else sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=parse_host(message.born_host),
            reconsume_times=(
                message.reconsume_times if reconsume_times is None else reconsume_times
            ),
            prepared_transaction_offset=prepared_transaction_offset,
        )

    async def flush(self) -> bool:
        """Make durable what was put so far, whatever the flush mode; False when that failed."""
        end = self._log.max_offset
        if end <= self._log.flushed_where:
            return True
        return await self._flusher.until_flushed(end) is PutMessageStatus.PUT_OK

    def until_durable(
        self,
        result: PutMessageResult | PutBatchResult,
        answer_of: Callable[[PutMessageStatus], Any] | None = None,
    ) -> asyncio.Future[Any] | None:
        """Return what will say that a put is as durable as flushDiskType promises.

        None when there is nothing to wait for. It gives the PutMessageStatus, or what answer_of
        makes of it: who answers many puts saves the waiting for each.
        """
        if not self.is_sync_flush or result.commit_log_offset < 0:
            return None
        end = result.commit_log_offset + result.wrote_size
        if end <= self._log.flushed_where:
            return None
        return self._flusher.until_flushed(end, answer_of)

    # -- read

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult | Awaitable[GetMessageResult]:
        """Return messages of a queue; awaitable only when they are likely not in memory."""
        return self._reader.get_message(topic, queue_id, queue_offset, max_msg_nums, message_filter)

    def units(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Return up to count (commit_log_offset, size, tags_code) from queue_offset on.

        None of them when that is outside what may be read; fewer than count at a file's end.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return []
        return [
            (
                commit_log_offset,
                size,
                code if code > ADDRESS_MAX else self._reader.code(queue, commit_log_offset, code),
            )
            for commit_log_offset, size, code in UNIT.iter_unpack(queue.units(queue_offset, count))
        ]

    def extended_units(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int, CqExtUnit | None]]:
        """Return what `units` does, with codes as they are stored and what addresses lead to."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return []
        return [
            (*unit, queue.ext_unit(unit[2]))
            for unit in UNIT.iter_unpack(queue.units(queue_offset, count))
        ]

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first readable queue_offset; 0 for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue_offset behind the last readable message; 0 for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """Return the first message stored from a time on; with upper the last one up to it."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        return self._reader.offset_by_time(queue, timestamp_ms, upper=upper)

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return when a message was stored, -1 when it is not there."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else self._reader.store_timestamp(queue, queue_offset)

    def look_message(self, commit_log_offset: int) -> memoryview | None:
        """Return the record that begins at an offset of the log, None when there is none."""
        found = self._reader.look_message(commit_log_offset)
        if found is None and self._committer is not None and self._failure is None:
            return self._look_uncommitted(commit_log_offset)
        return found

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool | None:
        """Tell whether a message is likely in memory, None when there is no such message."""
        queue = self._queues.find(topic, queue_id)
        return None if queue is None else self._reader.is_in_memory(queue, queue_offset)

    def query_message(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        """Return records of a topic that carry a key, oldest first."""
        return self._reader.query_message(topic, key, max_num, begin_ms, end_ms)

    @property
    def index_last_update(self) -> tuple[int, int]:
        """Store timestamp and commit_log_offset of the last message indexed, zeros for none."""
        index = self._index
        if index is None:
            return 0, 0
        return index.end_timestamp, max(0, index.end_phy_offset)

    # -- topics, state

    def topics(self) -> list[str]:
        """Return the topics that have or had messages."""
        return list(self._queues.table)

    def queue_ids(self, topic: str) -> list[int]:
        """Return the queues of a topic that have or had messages."""
        return sorted(self._queues.table.get(topic, ()))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic's queues; a topic of this name begins at queue offset 0 again."""
        if topic in self._queues.table:
            self._deleted.add(topic, self._log.max_offset)
            self._held_back = [held for held in self._held_back if held[1].topic != topic]
            self._queues.delete_topic(topic)

    def delete_expired_files_soon(self) -> None:
        """Delete expired files at whatever hour (DELETE_EXPIRED_COMMITLOG)."""
        self._retention.delete_soon()

    @property
    def max_commit_log_offset(self) -> int:
        """Where the next record goes."""
        return self._log.max_offset

    @property
    def min_commit_log_offset(self) -> int:
        """Where the oldest file begins."""
        return self._log.min_offset

    @property
    def flushed_where(self) -> int:
        """Up to here the log is durable."""
        return self._log.flushed_where

    @property
    def newest_store_timestamp(self) -> int:
        """When the last message was stored, 0 when there is none."""
        return self._last_store_timestamp

    @property
    def put_total(self) -> int:
        """How many messages were put since the start, whoever put them."""
        return self._stats.put_times

    @property
    def dispatch_behind_bytes(self) -> int:
        """Always 0: a message is dispatched before its put returns."""
        return 0

    @property
    def is_transient_store_pool_deficient(self) -> bool:
        """Whether all buffers of the pool are in use; never without one."""
        return self._pool is not None and not self._pool.available_buffer_nums

    @property
    def is_writable(self) -> bool:
        """Whether puts are taken."""
        return self._is_writable

    @property
    def earliest_message_timestamp(self) -> int:
        """When the oldest message was stored, -1 when there is none."""
        record = self._reader.look_message(self._log.min_offset)
        return -1 if record is None else int.from_bytes(_timestamp_bytes(record), "big")

    def runtime_info(self) -> dict[str, str]:
        """Return the store's rows of GET_BROKER_RUNTIME_INFO."""
        info = self._stats.runtime_info()
        used, free = self._storage.disk_usage(self._paths.commit_log)
        ratio = self._retention.used_ratio()
        info.update(
            {
                "commitLogMinOffset": str(self.min_commit_log_offset),
                "commitLogMaxOffset": str(self.max_commit_log_offset),
                "commitLogDiskRatio": str(round(ratio, 4)),
                f"commitLogDiskRatio_{self._paths.commit_log}": str(round(ratio, 4)),
                "consumeQueueDiskRatio": str(round(ratio, 4)),
                "commitLogDirCapacity": (
                    f"Total : {_readable(used + free)}, Free : {_readable(free)}."
                ),
                "dispatchBehindBytes": str(self.dispatch_behind_bytes),
                "dispatchMaxBuffer": "0",
                "earliestMessageTimeStamp": str(self.earliest_message_timestamp),
                "remainHowManyDataToFlush": _readable(
                    self._log.committed_where - self.flushed_where
                ),
                "remainTransientStoreBufferNumbs": str(
                    0x7FFFFFFF if self._pool is None else self._pool.available_buffer_nums
                ),
                "pageCacheLockTimeMills": "0",
                "storeState": self._state(),
                "damagedRanges": str(len(self._quarantine.ranges)),
            }
        )
        if self._pool is not None:
            info["remainHowManyDataToCommit"] = _readable(
                self._log.max_offset - self._log.committed_where
            )
        return info

    def require_writable(self) -> None:
        """Raise what keeps puts from being taken.

        Raises:
            StoreUnavailableError: puts are refused; the text says why.
        """
        if not self._is_writable:
            raise StoreUnavailableError(self._state())

    # -- inside

    def _state(self) -> str:
        if self._failure is not None:
            return (
                f"read-only after a failed write to the disk: {self._failure}; restart the broker"
            )
        if self._retention.is_disk_full:
            return "read-only: the disk is full"
        if len(self._held_back) >= HELD_BACK_MAX:
            return f"read-only: {HELD_BACK_MAX} messages wait for the disk"
        return "running" if self._is_started else "stopped"

    def _make_room(
        self,
        queue: ConsumeQueue,
        size: int,
        body_size: int,
        properties: bytes,
        entries: int,
    ) -> PutMessageStatus | None:
        """Check the limits, reserve space; return why the message is not taken.

        Differs: zeros in properties are refused, so that recovery can tell a torn write by them.
        """
        if b"\0" in properties:
            return PutMessageStatus.MESSAGE_ILLEGAL
        if body_size > self._config.max_message_size:
            return PutMessageStatus.MESSAGE_ILLEGAL
        if len(properties) > PROPERTIES_BYTES_MAX:
            if len(properties.decode()) > PROPERTIES_BYTES_MAX:
                return PutMessageStatus.MESSAGE_ILLEGAL
            return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
        return self._reserve(queue, size, 1, entries)

    def _reserve(
        self, queue: ConsumeQueue, size: int, units: int, entries: int
    ) -> PutMessageStatus | None:
        log = self._log
        if size > min(
            log.record_size_max, self._config.max_message_size + RECORD_OVERHEAD_MAX
        ) and (units == 1 or size > log.record_size_max):
            return PutMessageStatus.MESSAGE_ILLEGAL
        try:
            if log.position + size > log.limit:
                try:
                    log.make_room(size)
                except StoreUnavailableError:
                    if self._config.fast_fail_if_no_buffer_in_store_pool:
                        return PutMessageStatus.CREATE_MAPEDFILE_FAILED
                    return PutMessageStatus.OS_PAGE_CACHE_BUSY
                except OSError as error:
                    if error.errno == errno.ENOSPC:
                        raise
                    logger.warning("no file of the log could be made: %s", error)
                    return PutMessageStatus.CREATE_MAPEDFILE_FAILED
            if queue.position + (units - 1) * UNIT_SIZE >= queue.limit:
                queue.make_room(units)
            if self._index is not None and self._index.room < entries:
                self._index.make_room(entries)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self._retention.mark_disk_full()
                return PutMessageStatus.SERVICE_NOT_AVAILABLE
            logger.warning("no file of a queue or the index could be made or extended: %s", error)
            return PutMessageStatus.UNKNOWN_ERROR
        return None

    def _look_uncommitted(self, commit_log_offset: int) -> memoryview | None:
        """Return a copy of a record that waits in a buffer.

        Who ends a transaction names its half message right after it was put.
        """
        view = self._log.written_view(commit_log_offset)
        if view is None:
            return None
        try:
            head = examine(view, 0, len(view), commit_log_offset, check_crc=True)
        except CorruptRecordError:
            return None
        return None if head.is_blank else memoryview(bytes(view[: head.size]))

    def _refused(self, status: PutMessageStatus) -> PutMessageResult:
        self._stats.put_failed_times += 1
        return PutMessageResult(status)

    def _batch_refused(self, status: PutMessageStatus) -> PutBatchResult:
        self._stats.put_failed_times += 1
        return PutBatchResult(status, [])

    def _hold_back(self, queue: ConsumeQueue, end: int) -> None:
        """Let nobody read what is put until it is flushed, or with a pool, committed."""
        self._held_back.append((end, queue, queue.next_offset))
        if len(self._held_back) == HELD_BACK_MAX:
            logger.warning("%d messages wait for the disk, writes are refused", HELD_BACK_MAX)
            self._decide_writable()
        self._make_readable()

    def _log_flushed(self) -> None:
        if self.is_sync_flush:
            self._show_up_to(self._log.flushed_where)

    def _log_committed(self) -> None:
        if self._failure is None:
            self._show_up_to(self._log.committed_where)
            self._flusher.committed()

    def _show_up_to(self, commit_log_offset: int) -> None:
        """Let what ends at or before an offset be read."""
        self._reader.read_limit = commit_log_offset
        count = 0
        arrived: dict[ConsumeQueue, None] = {}
        for end, queue, max_offset in self._held_back:
            if end > commit_log_offset:
                break
            count += 1
            queue.max_offset = max_offset
            arrived[queue] = None
        was_full = len(self._held_back) >= HELD_BACK_MAX
        del self._held_back[:count]
        if was_full:
            self._decide_writable()
        if self.on_arrival is not None:
            for queue in arrived:
                self.on_arrival(queue.topic, queue.queue_id, queue.max_offset)

    def _io_failed(self, error: OSError) -> None:
        if self._failure is None:
            self._failure = error
            self._flusher.error = self._flusher.error or error
            if self._committer is not None:
                self._committer.error = self._committer.error or error
            logger.error(
                "a flush failed; nothing is acknowledged any more, reads go on up to "
                "commit_log_offset=%d: %s",
                self._log.flushed_where,
                error,
            )
        self._reader.read_limit = self._log.flushed_where
        self._decide_writable()

    def _decide_writable(self) -> None:
        self._is_writable = (
            self._is_started
            and self._failure is None
            and not self._retention.is_disk_full
            and len(self._held_back) < HELD_BACK_MAX
        )

    async def _sample_forever(self) -> None:
        while True:
            await self._clock.sleep(1.0)
            self._stats.sample()


def recover(config: StoreConfig, clock: Clock, storage: Storage) -> RecoveryReport:
    """Recover a store directory that no broker uses, and leave it closed."""
    store = MessageStore(config, clock, storage, bytes(HOST_V4_SIZE))
    report = store.load()
    store.close()
    return report


def parse_delay_levels(text: str) -> list[int]:
    """Return the delays of messageDelayLevel in milliseconds; level 1 is the first."""
    return [int(level[:-1]) * DELAY_UNITS_MS[level[-1]] for level in text.split()]


def _timestamp_bytes(record: memoryview) -> memoryview:
    born_v6 = int.from_bytes(record[36:40], "big") & BORNHOST_V6_FLAG
    start = 48 + (HOST_V6_SIZE if born_v6 else HOST_V4_SIZE)
    return record[start : start + 8]


def _readable(size: float) -> str:
    """Return a size as RocketMQ prints it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _sentence(error: OSError, paths: StorePaths) -> str:
    where = error.filename or paths.root
    if error.errno == errno.ENOSPC:
        return f"no space left on the device for the store {paths.root}"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"the store needs to read and write {where}, but may not"
    return f"the store {paths.root} cannot be opened: {error}"
