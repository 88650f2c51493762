"""Clients: the tables of connected clients, and the services that watch them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.clients.consumers import Consumers
from broker_core.clients.housekeeping import ClientHousekeeping
from broker_core.clients.producers import Producers
from broker_core.clients.rebalance_locks import RebalanceLocks
from broker_core.delivery.slow_consumers import SlowConsumers
from broker_core.processors.heartbeat import notify_consumer_ids_changed
from broker_core.processors.transaction import ProducerInquiry
from broker_core.processors.wrappers.transaction_listener import ListenerAdapter
from broker_core.transaction.check import CheckedHalf, CheckSettings, TransactionCheck

if TYPE_CHECKING:
    from broker_core.composition.foundation import Foundation
    from broker_core.composition.storage import StorageParts
    from broker_core.processors.wrappers.guard import Gate

MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class ClientParts:
    """Consumers and producers, and the services that watch them."""

    consumers: Consumers
    producers: Producers
    locks: RebalanceLocks
    housekeeping: ClientHousekeeping
    slow_consumers: SlowConsumers
    transaction_check: TransactionCheck


def build_clients(foundation: Foundation, storage: StorageParts, gate: Gate | None) -> ClientParts:
    """Build the tables of clients and the services that watch them."""
    clock = foundation.clock
    limits = foundation.configuration.limits
    consumers = Consumers(notify_consumer_ids_changed, storage.filters.unregister, limits)
    producers = Producers(limits)
    locks = RebalanceLocks(clock, limits)
    return ClientParts(
        consumers=consumers,
        producers=producers,
        locks=locks,
        housekeeping=ClientHousekeeping(consumers, producers, clock, locks),
        slow_consumers=SlowConsumers(
            foundation.configuration.broker.consumer_fallbehind_threshold,
            storage.store,
            storage.groups,
            clock,
        ),
        transaction_check=_transaction_check(foundation, storage, producers, gate),
    )


def _transaction_check(
    foundation: Foundation, storage: StorageParts, producers: Producers, gate: Gate | None
) -> TransactionCheck:
    config, store_config = foundation.configuration.broker, foundation.configuration.store
    extensions, transactions = foundation.extensions, storage.transactions

    def settings() -> CheckSettings:
        return CheckSettings(
            timeout_ms=config.transaction_time_out,
            interval_ms=config.transaction_check_interval,
            check_max=config.transaction_check_max,
            reserved_ms=store_config.file_reserved_time * MS_PER_HOUR,
        )

    clock, steady, counted_log = foundation.clock, foundation.steady, foundation.counted_log
    inquiry = ProducerInquiry(foundation.store_host, producers, gate)

    def ask(half: CheckedHalf) -> bool:
        is_asked = inquiry.ask(half)
        if is_asked:
            storage.trace.checked(half.message)
        return is_asked

    if extensions.transaction_listener is None:
        return TransactionCheck(settings, transactions, ask, counted_log, clock, steady)
    listened = ListenerAdapter(extensions.transaction_listener, extensions.failures, ask)
    return TransactionCheck(
        settings,
        transactions,
        listened.ask,
        counted_log,
        clock,
        steady,
        listened.resolve_discard,
    )
