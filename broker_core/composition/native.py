"""Native: the compiled turn for plain requests, wired to the objects that it moves."""

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
    """Whose requests may be plain; the broker's Processors are one."""

    @property
    def send(self) -> SendProcessor: ...

    @property
    def pull(self) -> PullProcessor: ...

    @property
    def transaction(self) -> TransactionProcessor: ...


def build_plain_requests(
    foundation: Foundation, storage: StorageParts, processors: PlainProcessors
) -> PlainRequests | None:
    """Return who serves plain requests before the dispatcher sees them; None: nobody."""
    native = foundation.native
    logger.info("plain requests are served by: %s", native.words)
    if native.turn is None:
        return None
    return native.turn(
        _sends(foundation, storage, processors.send),
        _pulls(foundation, storage, processors.pull),
        _ends(foundation, storage, processors.transaction),
    )


def left_words(left: Mapping[str, int]) -> str:
    """Return for people why requests were left to Python, and how many; "" for none."""
    return " ".join(f"{reason}={count}" for reason, count in left.items() if count)


def _sends(foundation: Foundation, storage: StorageParts, send: SendProcessor) -> SendTurn | None:
    native, store = foundation.native, storage.store
    puts = store.own_puts
    if native.send_turn is None or puts is None or store.files.pool is not None:
        # A plug-in wants to see every put; records that are written elsewhere first are not plain.
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
        # A hook or a plug-in wants to see every pull.
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
        # An account may have to be asked; the rest as with sends.
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
