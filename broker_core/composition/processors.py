"""Processors: one for each group of related requests."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker_core.composition.handler_wrappers import consume_hooks_of
from broker_core.composition.live_update import LiveUpdate
from broker_core.composition.naming import outer_client
from broker_core.composition.native import fallback_summary
from broker_core.composition.pop import queues_of
from broker_core.metadata.lost_topics import runtime_info as unreachable_rows
from broker_core.processors import registry
from broker_core.processors.admin.access import AccessAdmin
from broker_core.processors.admin.broker import BrokerAdmin
from broker_core.processors.admin.clients import ClientsAdmin
from broker_core.processors.admin.connections import ConnectionsAdmin
from broker_core.processors.admin.delays import DelaysAdmin
from broker_core.processors.admin.filters import FiltersAdmin
from broker_core.processors.admin.groups import GroupsAdmin
from broker_core.processors.admin.internals import InternalsAdmin
from broker_core.processors.admin.messages import MessagesAdmin
from broker_core.processors.admin.sample import SampleAdmin
from broker_core.processors.admin.timers import TimersAdmin
from broker_core.processors.admin.topics import TopicsAdmin
from broker_core.processors.admin.transactions import TransactionAdmin
from broker_core.processors.assignment import AssignmentProcessor
from broker_core.processors.commit_check import CommitCheck
from broker_core.processors.consumer_trace import ConsumerTrace
from broker_core.processors.heads import Heads
from broker_core.processors.heartbeat import HeartbeatProcessor
from broker_core.processors.long_answers import LongAnswers
from broker_core.processors.offset_commits import OffsetCommits
from broker_core.processors.offsets import OffsetsProcessor
from broker_core.processors.pop import PopProcessor
from broker_core.processors.pop_acks import PopAcksProcessor
from broker_core.processors.pull import PullProcessor, PullWatchers
from broker_core.processors.pull_redirect import PullRedirect
from broker_core.processors.query import QueryProcessor
from broker_core.processors.recall import RecallProcessor
from broker_core.processors.reply import ReplyProcessor
from broker_core.processors.send import SendProcessor
from broker_core.processors.send_back import SendBackProcessor
from broker_core.processors.subscription_check import SubscriptionCheck
from broker_core.processors.trace import TraceProcessor
from broker_core.processors.transaction import TransactionProcessor
from broker_core.sending.dead_letters import DeadLetters
from broker_core.sending.detours import Detours
from broker_core.sending.placement import Placement
from broker_core.stats.recent_records import RecentRecords
from broker_core.trace.records import sample_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.composition.access import AccessParts
    from broker_core.composition.clients import ClientParts
    from broker_core.composition.foundation import Foundation
    from broker_core.composition.naming import NamingParts
    from broker_core.composition.promotion import PromotionParts
    from broker_core.composition.storage import StorageParts
    from broker_core.metrics.readings import Readings
    from broker_core.processors.admin.ha import HaAdmin


class Sending(NamedTuple):
    """The processors that put messages."""

    send: SendProcessor
    send_back: SendBackProcessor
    transaction: TransactionProcessor
    recall: RecallProcessor
    reply: ReplyProcessor


class ConsumerProcessors(NamedTuple):
    """The processors that deliver messages and keep consumers' progress."""

    pull: PullProcessor
    pop: PopProcessor
    pop_acks: PopAcksProcessor
    offsets: OffsetsProcessor


def build_processors(
    foundation: Foundation,
    storage: StorageParts,
    clients: ClientParts,
    access: AccessParts,
    naming: NamingParts,
    promotion: PromotionParts,
    ha: HaAdmin,
    late_ms: Callable[[], float],
    readings: Readings,
    left: Callable[[], dict[str, int]],
) -> registry.Processors:
    """Build all processors.

    `late_ms` returns the last delay of the event loop, `left` how many requests the compiled code
    left to Python.
    """
    config, clock = foundation.configuration.broker, foundation.clock
    topics, offsets = storage.topics, storage.offsets
    store, stats, consumers = storage.store, storage.stats, clients.consumers
    sending = _sending(foundation, storage, clients, access)
    consuming = build_consuming(foundation, storage, clients)
    long_answers = LongAnswers(foundation.clock)
    live_update = LiveUpdate(
        foundation, topics, naming.registration, sending.send, clients.slow_consumers
    )
    return registry.Processors(
        send=sending.send,
        send_back=sending.send_back,
        transaction=sending.transaction,
        recall=sending.recall,
        reply=sending.reply,
        pull=consuming.pull,
        pop=consuming.pop,
        pop_acks=consuming.pop_acks,
        assignment=_assignment(foundation, storage, clients, naming),
        offsets=consuming.offsets,
        heartbeat=_heartbeat(foundation, storage, clients),
        query=QueryProcessor(foundation.configuration.store, store, access.gate),
        trace=_trace(foundation, storage, access),
        access=AccessAdmin(config, foundation.address, access.acl, access.plain),
        topics=TopicsAdmin(
            config,
            topics,
            offsets,
            consumers,
            store,
            stats,
            storage.parked_pulls,
            naming.registration.announced,
            long_answers,
        ),
        groups=_groups(foundation, storage, clients, long_answers),
        connections=ConnectionsAdmin(consumers, clients.producers, long_answers),
        clients=ClientsAdmin(config.broker_name, consumers, store, access.gate),
        messages=MessagesAdmin(
            topics, consumers, storage.filters, store, storage.offsets, long_answers
        ),
        ha=ha,
        transactions=_undecided(foundation, storage, clients, long_answers),
        replication=promotion.admin,
        broker=BrokerAdmin(
            foundation.configuration,
            topics,
            store,
            storage.schedule,
            clients.slow_consumers,
            stats,
            late_ms,
            clock,
            live_update.apply,
            lambda: _runtime_info(foundation, storage, ha, left()),
        ),
        delays=DelaysAdmin(storage.schedule),
        timers=TimersAdmin(storage.timers, long_answers),
        filters=_filters(foundation, storage, clients, long_answers),
        sample=_sample(foundation, storage, readings, ha),
        internals=_internals(foundation, readings),
    )


def _trace(foundation: Foundation, storage: StorageParts, access: AccessParts) -> TraceProcessor:
    heads = Heads(storage.store, foundation.store_host)
    return TraceProcessor(storage.tracer, access.gate, heads, foundation.clock)


def _assignment(
    foundation: Foundation, storage: StorageParts, clients: ClientParts, naming: NamingParts
) -> AssignmentProcessor:
    queues = queues_of(foundation, storage.topics, naming, outer_client(foundation))
    return AssignmentProcessor(clients.consumers, storage.pop.modes, queues)


def _groups(
    foundation: Foundation, storage: StorageParts, clients: ClientParts, long_answers: LongAnswers
) -> GroupsAdmin:
    admin = GroupsAdmin(
        foundation.configuration,
        storage.topics,
        storage.groups,
        storage.offsets,
        clients.consumers,
        storage.store,
        storage.stats,
        storage.parked_pulls,
        foundation.clock,
        long_answers,
    )
    admin.in_flight_of = storage.pop.engine.in_flight_of
    return admin


def _filters(
    foundation: Foundation, storage: StorageParts, clients: ClientParts, long_answers: LongAnswers
) -> FiltersAdmin:
    return FiltersAdmin(
        foundation.configuration.broker,
        foundation.configuration.limits,
        storage.topics,
        storage.filters,
        clients.consumers,
        storage.parked_pulls,
        long_answers,
    )


def _internals(foundation: Foundation, readings: Readings) -> InternalsAdmin:
    size = foundation.configuration.store.mapped_file_size_commit_log
    return InternalsAdmin(readings, foundation.files, size)


def _runtime_info(
    foundation: Foundation, storage: StorageParts, ha: HaAdmin, left: dict[str, int]
) -> dict[str, str]:
    # A slave receives messages before it receives their topics from its master.
    lost = {} if foundation.role.is_slave else unreachable_rows(storage.topics, storage.store)
    return {
        **foundation.extensions.runtime_info(),
        **ha.runtime_info(),
        **lost,
        "plainSends": foundation.native.words,
        "plainRequestsLeft": fallback_summary(left),
    }


def _sample(
    foundation: Foundation, storage: StorageParts, readings: Readings, ha: HaAdmin
) -> SampleAdmin:
    store = foundation.configuration.store
    recent = RecentRecords(
        storage.store, storage.stats, lambda: store.max_message_size, foundation.clock
    )
    return SampleAdmin(
        foundation.configuration, foundation.role, readings, ha.gauges, recent, foundation.clock
    )


def _heartbeat(
    foundation: Foundation, storage: StorageParts, clients: ClientParts
) -> HeartbeatProcessor:
    return HeartbeatProcessor(
        foundation.configuration.broker,
        storage.topics,
        storage.groups,
        storage.filters,
        clients.consumers,
        clients.producers,
        clients.locks,
        foundation.clock,
        foundation.configuration.limits,
    )


def _sending(
    foundation: Foundation, storage: StorageParts, clients: ClientParts, access: AccessParts
) -> Sending:
    config, clock = foundation.configuration.broker, foundation.clock
    store_host, max_message_size = (
        foundation.store_host,
        foundation.configuration.store.max_message_size,
    )
    topics, store, stats = storage.topics, storage.store, storage.stats
    placement = Placement(config, topics, foundation.counted_log, clock)
    dead_letters = DeadLetters(topics, storage.groups, foundation.counted_log)
    return Sending(
        send=SendProcessor(
            config,
            store_host,
            max_message_size,
            placement,
            dead_letters,
            Detours(
                config,
                foundation.levels,
                storage.schedule,
                storage.timers,
                storage.transactions,
            ),
            store,
            stats,
            storage.sends,
            clock,
        ),
        send_back=SendBackProcessor(
            placement,
            dead_letters,
            topics,
            store,
            foundation.levels,
            storage.schedule,
            stats,
            storage.trace,
            access.gate,
        ),
        transaction=TransactionProcessor(
            store_host,
            max_message_size,
            storage.transactions,
            store,
            foundation.counted_log,
            access.gate,
            foundation.role,
        ),
        recall=RecallProcessor(
            config,
            foundation.configuration.store,
            foundation.role,
            topics,
            store,
            storage.timers,
            clock,
        ),
        reply=ReplyProcessor(
            config,
            store_host,
            placement,
            clients.producers,
            store,
            stats,
            foundation.counted_log,
            clock,
            access.gate,
        ),
    )


def _undecided(
    foundation: Foundation, storage: StorageParts, clients: ClientParts, long_answers: LongAnswers
) -> TransactionAdmin:
    check = clients.transaction_check
    return TransactionAdmin(storage.transactions, check, foundation.steady, long_answers)


def build_consuming(
    foundation: Foundation, storage: StorageParts, clients: ClientParts
) -> ConsumerProcessors:
    """Build the processors that deliver messages."""
    config, clock = foundation.configuration.broker, foundation.clock
    store, consumers = storage.store, clients.consumers
    consumer_trace = ConsumerTrace(
        storage.tracer,
        consumers,
        store,
        foundation.store_host,
        clock,
        foundation.native.sample_records or sample_records,
    )
    consume_hooks = consume_hooks_of(foundation)
    check = CommitCheck(storage.topics, storage.offsets, store, foundation.role, consumers)
    commits = OffsetCommits(
        storage.offsets, check, consumer_trace, foundation.counted_log, consume_hooks
    )
    subscriptions = SubscriptionCheck(
        config,
        storage.topics,
        storage.groups,
        storage.filters,
        consumers,
        foundation.configuration.limits,
    )
    pull = PullProcessor(
        config,
        subscriptions,
        commits,
        store,
        storage.parked_pulls,
        PullWatchers(consumer_trace, clients.slow_consumers, consume_hooks),
        PullRedirect(config, foundation.configuration.store, foundation.role, storage.groups),
        storage.stats,
        foundation.counted_log,
        clock,
    )
    parts = storage.pop
    pop = PopProcessor(
        config,
        storage.topics,
        subscriptions,
        parts.engine,
        parts.pollers,
        consumer_trace,
        storage.stats,
        partial(parts.revival.spawn, name="pop"),
        clock,
    )
    acks = PopAcksProcessor(
        config.broker_name, storage.topics, store, parts.engine, consumer_trace, clock
    )
    return ConsumerProcessors(pull, pop, acks, OffsetsProcessor(storage.offsets, commits, store))
