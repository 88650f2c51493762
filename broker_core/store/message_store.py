"""MessageStore: the store's interface to the services.

Source: store/DefaultMessageStore.java (4.9.8).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from broker_core.errors import StoreError
from broker_core.isolation import isolated
from broker_core.message.ids import parse_host
from broker_core.message.names import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY
from broker_core.message.properties import encode as encode_properties
from broker_core.service import Service, begin_thread
from broker_core.store.acknowledge import Acknowledgement, counts_when_flushed
from broker_core.store.availability import Availability
from broker_core.store.commit import CommitLogCommitter
from broker_core.store.consume_queue import no_bit_map
from broker_core.store.flush import CommitLogFlusher, ConsumeQueueFlusher
from broker_core.store.message_calls import MessageCalls
from broker_core.store.put import MessagePut
from broker_core.store.reads import MessageReader
from broker_core.store.replay import Replay
from broker_core.store.results import PutMessageStatus
from broker_core.store.retention import Retention
from broker_core.store.runtime_info import runtime_info
from broker_core.store.store_files import StoreFiles
from broker_core.store.store_stats import StoreStats
from broker_core.store.visibility import Visibility

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.clock import Clock
    from broker_core.config.store import StoreConfig
    from broker_core.message.message import MessageExt
    from broker_core.storage import Storage
    from broker_core.store.acknowledge import ReplicaTerms
    from broker_core.store.consume_queue import BitMapOf
    from broker_core.store.flush import Flush
    from broker_core.store.results import PutMessageResult, RecoveryReport
    from broker_core.store.visibility import Arrival

logger = logging.getLogger(__name__)

COLD_READ_THREADS = 4


class MessageStore(Service):
    """One store directory. `load`, `start`, use, `shutdown`; event loop only after `load`.

    Attributes:
        put_message, put_batch: see MessagePut.
        own_puts: the MessagePut behind them; None while the calls are wrapped.
        own_reads: the MessageReader behind `get_message`; None while the calls are wrapped.
        get_message, look_message, query_message, units, extended_units, min_offset_in_queue,
            max_offset_in_queue, offset_in_queue_by_time, store_timestamp, is_in_memory, glance: see
            MessageReader.
        acknowledge: decides when a put counts.
        availability: whether puts are accepted.
        files, retention, queue_flusher, stats: parts with their own background tasks; tests can
        drive them. replay: checks and dispatches the log data that a slave receives. on_flushed:
        called when more of the log is durable.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        storage: Storage,
        store_host: bytes,
        bit_map_of: BitMapOf = no_bit_map,
        on_arrival: Arrival | None = None,
    ) -> None:
        """`on_arrival` is called with (topic, queue_id, max_offset) when messages can be read."""
        super().__init__()
        self._config = config
        self._clock = clock
        self._storage = storage
        self._allocator = ThreadPoolExecutor(1, "allocate")
        self._cold_reads = ThreadPoolExecutor(COLD_READ_THREADS, "cold-read")
        self.files = StoreFiles(config, clock, storage, self._allocator, bit_map_of)
        self.on_flushed: list[Callable[[], None]] = []
        self._log = self.files.log
        self._queues = self.files.queues
        self._state = self.files.put_state
        self.availability = Availability(self._state)
        self._flusher = CommitLogFlusher(
            config, clock, self._log, self._log_flushed, self._write_failed
        )
        self._committer = self._new_committer()
        until_durable = self._committer or self._flusher
        self.acknowledge = Acknowledgement(config, clock, self._log, until_durable.flush_up_to)
        self._make_durable = until_durable.schedule
        self._visibility = Visibility(
            self.availability,
            until_durable.schedule,
            waits=counts_when_flushed(config) or self._committer is not None,
            on_arrival=on_arrival,
        )
        self.acknowledge.on_promised = self._show
        self._reader = MessageReader(
            config, self.files, self._visibility, self.availability, self._cold_reads, clock
        )
        puts = MessagePut(
            config, clock, store_host, self.files, self.availability, self._visibility
        )
        self.own_puts: MessagePut | None = puts
        self.own_reads: MessageReader | None = self._reader
        self._put_watch = puts.watch
        self.queue_flusher = ConsumeQueueFlusher(
            config, clock, storage, self.files, self._flusher, self._write_failed
        )
        self.replay = Replay(config, self.files, self._visibility.show, self._delete_queues)
        self.retention = Retention(config, clock, storage, self.files, self.availability)
        self.stats = StoreStats(clock, self._state, self._reader)
        # Bound here, so that a call goes directly to the implementation.
        self.put_message = puts.put_message
        self.put_batch = puts.put_batch
        reader = self._reader
        self.get_message = reader.get_message
        self.look_message = reader.look_message
        self.query_message = reader.query_message
        self.units = reader.units
        self.extended_units = reader.extended_units
        self.min_offset_in_queue = reader.min_offset_in_queue
        self.max_offset_in_queue = reader.max_offset_in_queue
        self.offset_in_queue_by_time = reader.offset_in_queue_by_time
        self.store_timestamp = reader.store_timestamp
        self.is_in_memory = reader.is_in_memory
        self.glance = reader.glance

    def wrap_calls(self, wrap: Callable[[MessageCalls], MessageCalls]) -> None:
        """Wrap the put and get calls: callers then use the object that `wrap` returns.

        Call it before any other code has the store.
        """
        own = MessageCalls(
            self.put_message,
            self.put_batch,
            self.get_message,
            self.look_message,
            self.query_message,
        )
        self.own_puts = None
        self.own_reads = None
        calls = wrap(own)
        self.put_message = calls.put_message
        self.put_batch = calls.put_batch
        self.get_message = calls.get_message
        self.look_message = calls.look_message
        self.query_message = calls.query_message

    def time_flushes(self, on_took: Callable[[Flush], None]) -> None:
        """Call `on_took` with each flush of the log."""
        self._flusher.on_took = on_took

    def note_slow_puts(self, on_noted: Callable[[int, float], None]) -> None:
        """Call `on_noted` with the log offset and the duration in seconds of each slow put."""
        self._put_watch.on_noted = on_noted

    def time_puts(self, is_timed: bool) -> None:
        """Make puts record their times in the put state, or stop it."""
        self._state.is_timed = is_timed

    def load(
        self, prepare: Callable[[], None] | None = None, cut_at: int | None = None
    ) -> RecoveryReport:
        """Lock the directory and recover its data. A plain call: no loop, no threads.

        prepare is called once the directory is locked and before anything in it is changed. cut_at:
        the offset at which to end the log, if it is longer.

        Raises:
            StoreError: another process uses it, or the store has a different configuration.
        """
        try:
            report = self.files.load(prepare, cut_at)
        except OSError as error:
            self.close()
            raise StoreError(self.files.failure_text(error)) from error
        except StoreError:
            self.close()
            raise
        self._flusher.flushed_timestamp = self._state.store_timestamp
        if self._committer is not None:
            self._flusher.committed_timestamp = self._state.store_timestamp
        self.acknowledge.promised_where = self._log.max_offset
        self._show()
        self.replay.start()
        return report

    def take_role(self, *, is_slave: bool, terms: ReplicaTerms | None = None) -> None:
        """Accept puts as a master, or the log of a master as its slave.

        With terms, which make a SYNC_MASTER, puts wait for slaves. When a slave becomes a master,
        its log is cut to whole messages.
        """
        if self.availability.is_slave and not is_slave:
            self.replay.cut()
        waits_for_disk = counts_when_flushed(self._config) or self._committer is not None
        self.acknowledge.replicate(terms)
        visibility = self._visibility
        visibility.make_readable = self._make_durable
        if terms is not None:
            note_put = self.acknowledge.note_put
            visibility.make_readable = self._note_put if waits_for_disk else note_put
        visibility.waits = not is_slave and (waits_for_disk or terms is not None)
        if visibility.waits:
            self._show()
        else:
            visibility.show_all()
        self.availability.follow(is_slave=is_slave)

    async def start(self) -> None:
        """Accept writes; flush and clean up in the background."""
        self.files.mark_running()
        begin_thread(self._allocator)
        self.retention.check_disk()
        if self._committer is not None:
            self._committer.start()
        self._flusher.start()
        self.queue_flusher.start()
        self.retention.start()
        self.spawn_forever(self._clock, self._sample_forever, name="store-stats")
        self.availability.start()

    async def shutdown(self) -> None:
        """Flush everything, mark the exit as clean, unlock the directory."""
        was_started = self.availability.is_started
        self.availability.stop()
        await super().shutdown()
        await self.retention.shutdown()
        if self.availability.is_slave:
            self.replay.cut()
        self.replay.close()
        if self._committer is not None:
            await self._committer.shutdown()
        await self._flusher.shutdown()
        self.acknowledge.close()
        await self.queue_flusher.shutdown()
        if was_started and self.availability.failure is None:
            self.files.mark_clean_exit()
        self.close()

    def close(self) -> None:
        """Close the files and release the lock without a flush; for a store that wasn't started."""
        self.availability.stop()
        self.replay.close()
        self._cold_reads.shutdown()
        self.files.close()

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
        """Put a copy of a stored message in another queue, with these properties.

        Differs: the copy has this broker's address; RocketMQ keeps the address of the stored
        message, and IDs derived from it lead to a broker that may no longer exist.
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
        """Make all previous puts durable in any flush mode; return False if that failed."""
        end = self._log.max_offset
        if end <= self._log.flushed_where:
            return True
        return await self.acknowledge.until_flushed(end) is PutMessageStatus.PUT_OK

    def flush_soon(self) -> None:
        """Make all previous puts durable, without waiting; see `on_flushed`."""
        self._flusher.flush_up_to(self._log.max_offset)

    @property
    def replicable_where(self) -> int:
        """Slaves may have, and show, the log up to here.

        Differs: with SYNC_FLUSH a master of RocketMQ sends data that a power cut can remove.
        """
        log = self._log
        return log.flushed_where if self.acknowledge.is_flush_awaited else log.committed_where

    @property
    def index_last_update(self) -> tuple[int, int]:
        """Store timestamp and commit_log_offset of the last indexed message, else zeros."""
        index = self.files.index
        if index is None:
            return 0, 0
        return index.end_timestamp, max(0, index.end_phy_offset)

    def topics(self) -> list[str]:
        """Return the topics that have or had messages."""
        return list(self._queues.table)

    def queue_ids(self, topic: str) -> list[int]:
        """Return the queues of a topic that have or had messages."""
        return sorted(self._queues.table.get(topic, ()))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic's queues; a new topic of this name begins at queue offset 0 again."""
        if topic in self._queues.table:
            self._delete_queues({topic: self._log.max_offset})

    def delete_topics(self, deleted_before: Mapping[str, int]) -> list[str]:
        """Record the log offsets at which topics were deleted, and delete their remaining queues.

        A queue with messages after that position belongs to a newer topic and stays: a slave may
        learn about a deletion before or after its log reaches that position. Returns the topics
        whose deletion is new.
        """
        known, begin = self.files.deleted, self._log.min_offset
        new = {
            topic: before
            for topic, before in deleted_before.items()
            if before > max(known.deleted_before(topic), begin)
        }
        if new:
            self._delete_queues(new)
        return list(new)

    def deleted_topics(self) -> dict[str, int]:
        """Return the deleted topics with the log offsets of their deletions."""
        return self.files.deleted.all()

    def _delete_queues(self, before: Mapping[str, int]) -> None:
        self.files.deleted.add(before)
        for topic, offset in before.items():
            self._visibility.forget_topic(topic)
            self._queues.delete_topic(topic, offset)
        self.replay.forget_queues()

    def delete_expired_files_soon(self) -> None:
        """Delete expired files at any hour (DELETE_EXPIRED_COMMITLOG)."""
        self.retention.delete_soon()

    @property
    def max_commit_log_offset(self) -> int:
        """The offset of the next record."""
        return self._log.max_offset

    @property
    def min_commit_log_offset(self) -> int:
        """The start of the oldest file."""
        return self._log.min_offset

    @property
    def flushed_where(self) -> int:
        """The log is durable up to here."""
        return self._log.flushed_where

    def is_damaged(self, commit_log_offset: int) -> bool:
        """Return whether an offset is in a damaged range of the log."""
        return self.files.quarantine.contains(commit_log_offset)

    @property
    def newest_store_timestamp(self) -> int:
        """When the last message was stored; 0 without messages."""
        return self._state.store_timestamp

    @property
    def earliest_message_timestamp(self) -> int:
        """When the oldest message was stored; -1 without messages."""
        return self._reader.earliest_message_timestamp

    @property
    def put_total(self) -> int:
        """How many messages were put since the start, by any caller."""
        return self._state.put_times

    @property
    def dispatch_behind_bytes(self) -> int:
        """How many bytes a slave has received but not dispatched.

        0 on a master: a message is dispatched before its put returns.
        """
        return self.replay.behind_bytes if self.availability.is_slave else 0

    @property
    def is_transient_store_pool_deficient(self) -> bool:
        """Whether all buffers of the pool are in use; always false without a pool."""
        return self.files.pool is not None and not self.files.pool.available_buffer_nums

    @property
    def is_writable(self) -> bool:
        """Whether puts are accepted."""
        return self._state.is_writable

    def runtime_info(self) -> dict[str, str]:
        """Return the store's rows of GET_BROKER_RUNTIME_INFO."""
        earliest = self.earliest_message_timestamp
        disk = self._storage.disk_usage(self.files.paths.commit_log)
        return self.stats.runtime_info() | runtime_info(
            self.files, self.availability, disk, earliest
        )

    def _new_committer(self) -> CommitLogCommitter | None:
        if self.files.pool is None:
            return None
        told = (self._log_committed, self._write_failed)
        return CommitLogCommitter(self._config, self._clock, self._log, self._flusher, *told)

    def _log_flushed(self) -> None:
        self.acknowledge.flushed()
        if self._committer is None:
            self._show()
        for listener in self.on_flushed:
            with isolated("a flush listener", listener):
                listener()

    def _log_committed(self) -> None:
        if self.availability.failure is None:
            self._show()
            self._flusher.committed()

    def _note_put(self) -> None:
        self.acknowledge.note_put()
        self._make_durable()

    def _show(self) -> None:
        """Show the messages that have become readable."""
        if self.availability.failure is not None:
            return
        if counts_when_flushed(self._config):
            limit = self._log.flushed_where
        else:
            limit = self._log.committed_where
        if self.acknowledge.is_replicating:
            limit = min(limit, self.acknowledge.promised_where)
        self._visibility.show_up_to(limit)

    def _write_failed(self, error: OSError) -> None:
        if self.availability.failure is None:
            self._flusher.error = self._flusher.error or error
            if self._committer is not None:
                self._committer.error = self._committer.error or error
            self.acknowledge.fail()
            logger.error(
                "flush failed, refusing writes until a restart readable_up_to=%d reason=%s",
                self._log.flushed_where,
                error,
            )
        self._visibility.stop_at(self._log.flushed_where)
        self.availability.fail(error)

    async def _sample_forever(self) -> None:
        while True:
            await self._clock.sleep(1.0)
            self.stats.sample()
