"""Storage: the message store, the metadata files, and the services that put messages."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.delay.delay_offsets import DelayOffsets
from broker_core.delay.schedule import ScheduleService
from broker_core.delivery.filter_bit_maps import FilterBitMaps
from broker_core.delivery.parked_pulls import ParkedPulls
from broker_core.delivery.sql_filter import compile_filter
from broker_core.errors import StoreError
from broker_core.extensions.plugged_store import plug
from broker_core.formats.paths import StorePaths
from broker_core.ha.epochs import Epochs
from broker_core.message.names import RMQ_SYS_SCHEDULE_TOPIC, SCHEDULE_CONSUMER_GROUP
from broker_core.metadata.consumer_filters import ConsumerFilters
from broker_core.metadata.consumer_offsets import ConsumerOffsets
from broker_core.metadata.former_offsets import FormerOffsets
from broker_core.metadata.persistence import MetadataPersistence
from broker_core.metadata.subscription_groups import SubscriptionGroups
from broker_core.metadata.topics import Topics
from broker_core.metadata.unreachable import warn_of_unreachable
from broker_core.processors.send_trace import SendTrace
from broker_core.stats.counters import BrokerStats
from broker_core.store.message_store import MessageStore
from broker_core.store.self_check import SelfCheck
from broker_core.trace.stored import StoredTrace
from broker_core.trace.tracer import Tracer
from broker_core.transaction.resolve import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.composition.foundation import Foundation
    from broker_core.delivery.sql92.expression import Expression
    from broker_core.message.message import MessageExt
    from broker_core.store.flush import Flush
    from broker_core.store.results import PutMessageResult

logger = logging.getLogger(__name__)

TRANSACTION_QUEUE_NUMS = 1


@dataclass(frozen=True, slots=True)
class StorageParts:
    """The store, the metadata files, the services that put messages, and what counts them."""

    topics: Topics
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    filters: ConsumerFilters[Expression]
    persistence: MetadataPersistence
    store: MessageStore
    epochs: Epochs
    parked_pulls: ParkedPulls
    schedule: ScheduleService
    transactions: Transactions
    stats: BrokerStats
    tracer: Tracer
    trace: StoredTrace
    sends: SendTrace
    self_check: SelfCheck


def build_storage(foundation: Foundation) -> StorageParts:
    """Build the store with its surroundings; nothing is read yet.

    Raises:
        ConfigError: a store plug-in refuses.
    """
    config, store_config = foundation.configuration.broker, foundation.configuration.store
    clock, files = foundation.clock, foundation.files
    limits = foundation.configuration.limits
    topics = Topics(config, clock, foundation.document("topics.json"), limits)
    groups = SubscriptionGroups(
        config, clock, foundation.document("subscriptionGroup.json"), limits
    )
    offsets = ConsumerOffsets(
        foundation.document("consumerOffset.json"),
        lambda group, topic: topic in topics.table and group in groups.table,
        limits,
        FormerOffsets(clock),
    )
    filters = ConsumerFilters(
        compile_filter,
        foundation.bloom,
        lambda: config.filter_data_clean_time_span,
        clock,
        foundation.document("consumerFilter.json"),
        # Of the store below, whose bitmaps are made of these filters.
        lambda: store.newest_store_timestamp,
        limits,
    )
    parked_pulls = ParkedPulls(clock, foundation.configuration.limits)
    store = _store(foundation, filters, parked_pulls)
    stats = BrokerStats(
        config.broker_cluster_name,
        clock,
        lambda: store.put_total,
        is_detailed=config.enable_detail_stat,
    )
    tracer = _tracer(foundation, store, stats)
    retries_of = _retries_of(groups)
    trace = StoredTrace(tracer, foundation.store_host, retries_of, foundation.levels.delay_ms)
    store.retention.on_expired = _expiry_told(tracer, trace, offsets)
    sends = SendTrace(tracer, store, foundation.store_host, retries_of, foundation.levels.delay_ms)
    store.note_slow_puts(sends.slow_offset)
    return StorageParts(
        topics=topics,
        groups=groups,
        offsets=offsets,
        filters=filters,
        persistence=MetadataPersistence(
            (topics.writer, groups.writer),
            offsets,
            filters,
            lambda: config.flush_consumer_offset_interval / 1000,
            clock,
        ),
        store=store,
        epochs=Epochs(store.files.paths.epoch, files),
        parked_pulls=parked_pulls,
        schedule=_schedule(foundation, store, stats, trace),
        transactions=Transactions(
            store,
            offsets,
            lambda topic: topics.create_retry(topic, TRANSACTION_QUEUE_NUMS),
            foundation.store_host,
            foundation.steady,
            trace.committed,
            trace.rolled_back,
        ),
        stats=stats,
        tracer=tracer,
        trace=trace,
        sends=sends,
        self_check=SelfCheck(
            StorePaths.of(store_config.store_path_root_dir, store_config.store_path_commit_log),
            store_config.mapped_file_size_commit_log,
            store_config.mapped_file_size_consume_queue,
            clock,
            files,
        ),
    )


def _tracer(foundation: Foundation, store: MessageStore, stats: BrokerStats) -> Tracer:
    config = foundation.configuration.broker
    tracer = Tracer(
        foundation.clock,
        foundation.configuration.limits,
        recorder_bytes_max=config.trace_recorder_max_bytes,
        recorder_minutes=config.trace_recorder_minutes,
        span_type=foundation.native.span,
        numbered_type=foundation.native.numbered,
    )
    tracer.on_watching = store.time_puts
    if config.trace_level != tracer.level:
        tracer.set_level(config.trace_level)

    def flushed(flush: Flush) -> None:
        stats.flush_latency.record(flush.took_s)
        if tracer.watching:
            tracer.followed.flushed(flush.flushed_where, flush.at_s, flush.together)

    store.time_flushes(flushed)
    return tracer


def _retries_of(groups: SubscriptionGroups) -> Callable[[str], int | None]:
    def retries_of(group: str) -> int | None:
        found = groups.table.get(group)
        return None if found is None else found.retry_max_times

    return retries_of


def _expiry_told(
    tracer: Tracer, trace: StoredTrace, offsets: ConsumerOffsets
) -> Callable[[str, int, int, int], None]:
    """Return what tells of messages that went before a group had read them."""

    def expired(topic: str, queue_id: int, first: int, end: int) -> None:
        if not tracer.notes_errors:
            return
        for group in sorted(offsets.groups_of(topic)):
            offset = offsets.query(group, topic, queue_id)
            if 0 <= offset < end:
                trace.expired(group, topic, queue_id, max(first, offset), end)

    return expired


def load_storage(foundation: Foundation, parts: StorageParts) -> None:
    """Take the store directory, recover it, read the configuration files.

    Raises:
        StoreError: one sentence for the operator.
    """
    epochs = parts.epochs
    epochs.load()
    cut_at = epochs.cut_at
    try:
        # Recovery makes again the bitmaps that are missing, so it must know the filters.
        parts.store.load(parts.filters.load, cut_at)
        foundation.files.make_directory(foundation.config_directory)
    except OSError as error:
        root = foundation.configuration.store.store_path_root_dir
        raise StoreError(f"the store directory {root} cannot be used: {error.strerror}") from error
    parts.topics.load()
    parts.groups.load()
    parts.offsets.load()
    if cut_at is not None:
        lower_offsets(parts)
        epochs.cut_done()
        logger.warning(
            "the log was cut where it parts from the master's: commit_log_offset=%d", cut_at
        )
    elif not foundation.role.is_slave:
        # A power cut takes of the log what was not flushed, and the file of the offsets is newer.
        lower_offsets(parts)
    parts.schedule.load()
    if not foundation.role.is_slave:
        # A slave receives messages before it receives their topics from its master.
        warn_of_unreachable(parts.topics, parts.store)
        parts.schedule.begin()
        parts.transactions.load()


def lower_offsets(parts: StorageParts) -> None:
    """Lower consumer offsets beyond the ends of their queues, where new messages would be skipped.

    An offset goes to the end, whose messages a power cut or a promotion has taken back. In a topic
    that was deleted it goes to the first message: it may be one of the former topic.
    A slave's may be beyond the end: they come from its master sooner than the messages.
    """
    store = parts.store
    deleted = store.deleted_topics()

    def instead(topic: str, queue_id: int) -> int:
        if topic in deleted:
            return store.min_offset_in_queue(topic, queue_id)
        return store.max_offset_in_queue(topic, queue_id)

    lowered = parts.offsets.lower(store.max_offset_in_queue, instead)
    if lowered:
        parts.offsets.persist()
        logger.warning("consumer offsets were beyond the ends of their queues: lowered=%d", lowered)


def _store(
    foundation: Foundation, filters: ConsumerFilters[Expression], parked_pulls: ParkedPulls
) -> MessageStore:
    config, extensions = foundation.configuration.broker, foundation.extensions
    bit_maps = FilterBitMaps(filters.of_topic, lambda: config.enable_calc_filter_bit_map)
    store = MessageStore(
        foundation.configuration.store,
        foundation.clock,
        foundation.files,
        foundation.store_host,
        bit_maps.bit_map,
        parked_pulls.on_arrival,
    )
    if foundation.native.plain_replay is not None:
        store.replay.use(foundation.native.plain_replay)
    if foundation.native.write_entries is not None and store.files.index is not None:
        store.files.index.use(foundation.native.write_entries)
    if extensions.store_plug_ins:
        plug(store, extensions.store_plug_ins, extensions.failures)
    return store


def _schedule(
    foundation: Foundation, store: MessageStore, stats: BrokerStats, trace: StoredTrace
) -> ScheduleService:
    store_config = foundation.configuration.store

    def on_delivered(
        message: MessageExt, topic: str, queue_id: int, result: PutMessageResult
    ) -> None:
        if store_config.enable_schedule_message_stats:
            stats.delivered(
                SCHEDULE_CONSUMER_GROUP,
                RMQ_SYS_SCHEDULE_TOPIC,
                message.queue_id,
                topic,
                result.wrote_size,
            )
        trace.due(message, topic, queue_id, result)

    def on_deferred(queue_id: int, result: PutMessageResult) -> None:
        stats.deferred(RMQ_SYS_SCHEDULE_TOPIC, queue_id, result.wrote_size)

    return ScheduleService(
        foundation.levels,
        store,
        DelayOffsets(foundation.document("delayOffset.json")),
        foundation.counted_log,
        foundation.clock,
        foundation.steady,
        flush_interval_ms=store_config.flush_delay_offset_interval,
        on_delivered=on_delivered,
        on_deferred=on_deferred,
    )
