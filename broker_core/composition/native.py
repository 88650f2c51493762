"""Native: the compiled turn for plain sends, wired to the objects that it moves."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.composition.foundation import Foundation
    from broker_core.composition.storage import StorageParts
    from broker_core.processors.send import SendProcessor
    from broker_core.remoting.plain_sends import PlainSends

logger = logging.getLogger(__name__)


def build_plain_sends(
    foundation: Foundation, storage: StorageParts, send: SendProcessor
) -> PlainSends | None:
    """Return who serves plain sends before the dispatcher sees them; None: nobody."""
    native, store = foundation.native, storage.store
    puts = store.own_puts
    logger.info("plain sends are served by: %s", native.words)
    if native.send_turn is None or puts is None or puts.is_guarded or store.files.pool is not None:
        # A plug-in wants to see every put; records that are guarded or written elsewhere first are
        # not plain.
        return None
    return native.send_turn(
        send,
        puts,
        foundation.configuration.store,
        storage.stats,
        storage.tracer,
        storage.store.acknowledge,
        foundation.clock,
    )
