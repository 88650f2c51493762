"""A master that serves a store's log on a separate port."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from broker_core.composition.replication import HA_PORT
from broker_core.config.ha import HaConfig
from broker_core.counted_log import CountedLog
from broker_core.ha.master import HaMaster
from broker_core.remoting.allowed_peers import AllowedPeers

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable
    from typing import Any

    from broker_core.listening.tls import TlsGate
    from broker_core.store.message_store import MessageStore
    from tests.support.clock import ManualClock

EVERYBODY = AllowedPeers(HA_PORT, "", [], has_acl=False)


class Gate:
    """The master's certificate settings."""

    def __init__(self, found: ssl.SSLContext | None = None) -> None:
        self.found = found
        self.read = asyncio.Event()
        """Set when the certificate files have been read."""

    async def context(self) -> ssl.SSLContext | None:
        await self.read.wait()
        return self.found


@asynccontextmanager
async def serving(
    store: MessageStore,
    clock: ManualClock,
    allowed: AllowedPeers = EVERYBODY,
    sendable_where: Callable[[], int] | None = None,
    tls: Gate | None = None,
    **keys: Any,
) -> AsyncIterator[tuple[HaMaster, int]]:
    counted_log = CountedLog(clock)
    log = store.files.log
    gate = cast("TlsGate | None", tls)
    master = HaMaster(HaConfig(**keys), clock, log, counted_log, allowed, gate, sendable_where)
    port = await master.start("127.0.0.1", 0)
    try:
        yield master, port
    finally:
        await master.shutdown()
        counted_log.shutdown()
