"""Native: connects the compiled code for plain requests to the objects that it changes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.composition.foundation import Foundation
    from broker_core.composition.storage import StorageParts
    from broker_core.native.turn import EndTurn, PullTurn, SendTurn
    from broker_core.processors.pull import PullProcessor
    from broker_core.processors.send import SendProcessor
    from broker_core.processors.transaction import TransactionProcessor
    from broker_core.remoting.plain_requests import PlainRequests

logger = logging.getLogger(__name__)


class PlainProcessors(Protocol):
    """The processors of requests that may be plain; the broker's Processors implement it."""

    @property
    def send(self) -> SendProcessor: ...

    @property
    def pull(self) -> PullProcessor: ...

    @property
    def transaction(self) -> TransactionProcessor: ...


def build_plain_requests(
    foundation: Foundation, storage: StorageParts, processors: PlainProcessors
) -> PlainRequests | None:
    """Return the handler of plain requests that runs before the dispatcher; None: no handler."""
    native = foundation.native
    logger.info("plain requests served by=%s", native.words)
    if native.turn is None:
        return None
    return native.turn(
        _sends(foundation, storage, processors.send),
        _pulls(foundation, storage, processors.pull),
        _ends(foundation, storage, processors.transaction),
    )


def fallback_summary(left: Mapping[str, int]) -> str:
    """Return a summary of why requests were left to Python, and how many; "" without any."""
    return " ".join(f"{reason}={count}" for reason, count in left.items() if count)


def _sends(foundation: Foundation, storage: StorageParts, send: SendProcessor) -> SendTurn | None:
    native, store = foundation.native, storage.store
    puts = store.own_puts
    if native.send_turn is None or puts is None or store.files.pool is not None:
        # A plug-in must see every put, or records aren't plain because they are first written
        # elsewhere.
        return None
    return native.send_turn(
        send,
        puts,
        foundation.configuration.store,
        storage.stats,
        storage.tracer,
        store.acknowledge,
        storage.parked_pulls,
        foundation.clock,
    )


def _pulls(foundation: Foundation, storage: StorageParts, pull: PullProcessor) -> PullTurn | None:
    native, store = foundation.native, storage.store
    if native.pull_turn is None or pull.plain is None or store.own_reads is None:
        # A hook or a plug-in must see every pull.
        return None
    return native.pull_turn(
        pull, store.own_reads, store.files.put_state, storage.stats, foundation.clock
    )


def _ends(
    foundation: Foundation, storage: StorageParts, transaction: TransactionProcessor
) -> EndTurn | None:
    native, store = foundation.native, storage.store
    puts = store.own_puts
    if (
        native.end_turn is None
        or not transaction.is_plain
        or puts is None
        or store.own_reads is None
        or store.files.pool is not None
        or puts.is_guarded
    ):
        # Access control may have to check an account; the rest is the same as for sends.
        return None
    return native.end_turn(
        transaction.end_transaction,
        storage.transactions,
        puts,
        foundation.configuration.store,
        storage.tracer,
        store.acknowledge,
        foundation.clock,
    )
