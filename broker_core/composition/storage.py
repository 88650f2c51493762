"""Storage: the message store, the metadata files, and the services that put messages."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.composition.pop import PopParts, build_pop
from broker_core.delay.delay_offsets import DelayOffsets
from broker_core.delay.schedule import ScheduleService
from broker_core.delivery.filter_bit_maps import FilterBitMaps
from broker_core.delivery.parked_pulls import ParkedPulls
from broker_core.delivery.sql_filter import compile_filter
from broker_core.errors import StoreError
from broker_core.extensions.plugged_store import plug
from broker_core.formats.paths import StorePaths
from broker_core.ha.epochs import Epochs
from broker_core.message.names import (
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TIMER_TOPIC,
    SCHEDULE_CONSUMER_GROUP,
)
from broker_core.metadata.consumer_filters import ConsumerFilters
from broker_core.metadata.consumer_offsets import ConsumerOffsets
from broker_core.metadata.former_offsets import FormerOffsets
from broker_core.metadata.lost_topics import warn_of_unreachable
from broker_core.metadata.persistence import MetadataPersistence
from broker_core.metadata.subscription_groups import SubscriptionGroups
from broker_core.metadata.topics import Topics
from broker_core.processors.send_trace import SendTrace
from broker_core.stats.counters import BrokerStats
from broker_core.store.message_store import MessageStore
from broker_core.store.self_check import SelfCheck
from broker_core.timers.checkpoint import read_checkpoint
from broker_core.timers.events import Events
from broker_core.timers.service import TimerService
from broker_core.trace.stored import StoredTrace
from broker_core.trace.tracer import Tracer
from broker_core.transaction.resolve import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from broker_core.composition.foundation import Foundation
    from broker_core.delivery.sql92.expression import Expression
    from broker_core.message.message import MessageExt
    from broker_core.pop.takeover import Takeover
    from broker_core.remoting.connection import Connection
    from broker_core.store.flush import Flush
    from broker_core.store.results import PutMessageResult

logger = logging.getLogger(__name__)

TRANSACTION_QUEUE_NUMS = 1
TIMER_CHECKPOINT = "timercheck"


@dataclass(frozen=True, slots=True)
class StorageParts:
    """The store, the metadata files, the services that put messages, and their counters."""

    topics: Topics
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    filters: ConsumerFilters[Expression]
    persistence: MetadataPersistence
    store: MessageStore
    epochs: Epochs
    parked_pulls: ParkedPulls
    pop: PopParts
    schedule: ScheduleService
    timers: TimerService
    transactions: Transactions
    stats: BrokerStats
    tracer: Tracer
    trace: StoredTrace
    sends: SendTrace
    self_check: SelfCheck

    def drop_waiting(self, connection: Connection) -> None:
        """Drop the pulls and pops of a lost connection."""
        self.parked_pulls.close(connection)
        self.pop.pollers.close(connection)

    def resume_waiting(self, connection: Hashable) -> None:
        """Retry the pulls and pops of a connection whose client reads again."""
        self.parked_pulls.resume(connection)
        self.pop.pollers.resume(connection)


def build_storage(foundation: Foundation) -> StorageParts:
    """Build the store and its related parts; nothing is read yet.

    Raises:
        ConfigError: a store plug-in refuses.
    """
    configuration, clock, files = foundation.configuration, foundation.clock, foundation.files
    config, store_config, limits = configuration.broker, configuration.store, configuration.limits
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
        # `store` is created below; it builds its bitmaps from these filters.
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
    store.retention.on_expired = _expiry_listener(tracer, trace, offsets)
    sends = SendTrace(tracer, store, foundation.store_host, retries_of, foundation.levels.delay_ms)
    store.note_slow_puts(sends.slow_offset)
    pop = build_pop(foundation, store, topics, groups, offsets, parked_pulls, stats, trace)
    return StorageParts(
        topics=topics,
        groups=groups,
        offsets=offsets,
        filters=filters,
        persistence=_persistence(foundation, topics, groups, offsets, filters, pop),
        store=store,
        epochs=Epochs(store.files.paths.epoch, files),
        parked_pulls=parked_pulls,
        pop=pop,
        schedule=_schedule(foundation, store, stats, trace),
        timers=_timers(foundation, store, stats, trace, pop.takeover),
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


def _persistence(
    foundation: Foundation,
    topics: Topics,
    groups: SubscriptionGroups,
    offsets: ConsumerOffsets,
    filters: ConsumerFilters[Expression],
    pop: PopParts,
) -> MetadataPersistence:
    config = foundation.configuration.broker
    return MetadataPersistence(
        (topics.writer, groups.writer, pop.modes.writer),
        offsets,
        filters,
        lambda: config.flush_consumer_offset_interval / 1000,
        foundation.clock,
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
            tracer.watched_messages.flushed(flush.flushed_where, flush.at_s, flush.together)

    store.time_flushes(flushed)
    return tracer


def _retries_of(groups: SubscriptionGroups) -> Callable[[str], int | None]:
    def retries_of(group: str) -> int | None:
        found = groups.table.get(group)
        return None if found is None else found.retry_max_times

    return retries_of


def _expiry_listener(
    tracer: Tracer, trace: StoredTrace, offsets: ConsumerOffsets
) -> Callable[[str, int, int, int], None]:
    """Return a listener that reports messages deleted before a group had read them."""

    def expired(topic: str, queue_id: int, first: int, end: int) -> None:
        if not tracer.notes_errors:
            return
        for group in sorted(offsets.groups_of(topic)):
            offset = offsets.query(group, topic, queue_id)
            if 0 <= offset < end:
                trace.expired(group, topic, queue_id, max(first, offset), end)

    return expired


def load_storage(foundation: Foundation, parts: StorageParts) -> None:
    """Lock the store directory, recover it, read the configuration files.

    Raises:
        StoreError: one sentence for the operator.
    """
    epochs = parts.epochs
    epochs.load()
    cut_at = epochs.cut_at
    try:
        # Recovery rebuilds missing bitmaps, so it needs the filters.
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
        epochs.clear_cut()
        logger.warning("log cut where it differs from the master commit_log_offset=%d", cut_at)
    elif not foundation.role.is_slave:
        # A power cut removes unflushed log data, and the offsets file may be newer.
        lower_offsets(parts)
    parts.schedule.load()
    parts.pop.modes.load()
    if not foundation.role.is_slave:
        # A slave receives messages before it receives their topics from its master.
        warn_of_unreachable(parts.topics, parts.store)
        parts.schedule.begin()
        parts.timers.begin()
        parts.transactions.load()
        parts.pop.load()


def lower_offsets(parts: StorageParts) -> None:
    """Lower consumer offsets past the ends of their queues, where new messages would be skipped.

    The new offset is the end, because a power cut or a promotion removed the messages after it. In
    a topic that was deleted it is the first message, because the offset may be from the former
    topic. A slave's offsets may be past the end: they arrive from its master before the messages.
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
        logger.warning("consumer offsets beyond the end lowered count=%d", lowered)


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


def _timers(
    foundation: Foundation,
    store: MessageStore,
    stats: BrokerStats,
    trace: StoredTrace,
    takeover: Takeover,
) -> TimerService:
    def on_delivered(
        message: MessageExt, topic: str, queue_id: int, result: PutMessageResult
    ) -> None:
        stats.put_again(topic, result.wrote_size)
        trace.due(message, topic, queue_id, result)
        takeover.note_delivered(message, topic, queue_id, result)

    def on_deferred(queue_id: int, result: PutMessageResult) -> None:
        stats.deferred(RMQ_SYS_TIMER_TOPIC, queue_id, result.wrote_size)

    configuration, files = foundation.configuration, foundation.files
    timers = TimerService(
        store,
        configuration.store,
        configuration.limits,
        foundation.counted_log,
        foundation.clock,
        foundation.steady,
        foundation.store_host,
        lambda: read_checkpoint(files, foundation.config_directory / TIMER_CHECKPOINT),
        Events(on_delivered, on_deferred, takeover.claim, takeover.store, takeover.finish),
    )
    store.retention.may_delete_before = timers.may_delete_before
    return timers
