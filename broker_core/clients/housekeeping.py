"""Housekeeping of clients: disconnects silent clients, forgets disconnected ones and old locks.

Source: broker/client/ClientHousekeepingService.java (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.backlog import Backlog
from broker_core.isolation import isolated
from broker_core.service import Service

if TYPE_CHECKING:
    from broker_core.clients.client import ClientConnection
    from broker_core.clients.consumers import Consumers
    from broker_core.clients.producers import Producers
    from broker_core.clients.rebalance_locks import RebalanceLocks
    from broker_core.clock import Clock

logger = logging.getLogger(__name__)

SCAN_SECONDS = 10.0
SILENCE_SECONDS_MAX = 120.0
FORGOTTEN_AT_ONCE = 1_000
"""Memberships forgotten per turn of the loop: 10 ms."""


class ClientHousekeeping(Service):
    """Scan for silent clients every ten seconds. Event loop only."""

    def __init__(
        self,
        consumers: Consumers,
        producers: Producers,
        clock: Clock,
        locks: RebalanceLocks | None = None,
    ) -> None:
        super().__init__()
        self._consumers = consumers
        self._producers = producers
        self._clock = clock
        self._locks = locks
        self._lost = Backlog(self._forget, FORGOTTEN_AT_ONCE)

    def start(self) -> None:
        self.spawn_forever(self._clock, self._scan_forever, name="client-housekeeping")

    def on_connection_lost(self, connection: ClientConnection) -> None:
        """Forget a client, immediately unless very many leave at the same time."""
        self._lost.add(connection)

    def _forget(self, connection: ClientConnection) -> int:
        """Forget a client; return the amount of work."""
        return 1 + len(self._consumers.close(connection)) + len(self._producers.close(connection))

    def scan(self) -> int:
        """Close the connections that have been silent for too long; return how many."""
        before = self._clock.monotonic() - SILENCE_SECONDS_MAX
        silent = {
            *self._consumers.silent_since(before),
            *self._producers.silent_since(before),
        }
        for connection in silent:
            logger.warning("silent client disconnected address=%s", connection.remote_address)
            with isolated("disconnecting a silent client", connection.remote_address):
                self.on_connection_lost(connection)
                connection.close()
        return len(silent)

    async def _scan_forever(self) -> None:
        while True:
            await self._clock.sleep(SCAN_SECONDS)
            self.scan()
            if self._locks is not None:
                self._locks.purge()
