"""Housekeeping of clients: who fell silent is disconnected, who disconnected is forgotten.

Source: broker/client/ClientHousekeepingService.java (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.service import Service

if TYPE_CHECKING:
    from broker_core.clients.client import ClientConnection
    from broker_core.clients.consumers import Consumers
    from broker_core.clients.producers import Producers
    from broker_core.clock import Clock

logger = logging.getLogger(__name__)

SCAN_SECONDS = 10.0
SILENCE_SECONDS_MAX = 120.0


class ClientHousekeeping(Service):
    """Scan for silent clients every ten seconds. Event loop only."""

    def __init__(self, consumers: Consumers, producers: Producers, clock: Clock) -> None:
        super().__init__()
        self._consumers = consumers
        self._producers = producers
        self._clock = clock

    def start(self) -> None:
        self.spawn(self._scan_forever(), name="client-housekeeping")

    def on_connection_lost(self, connection: ClientConnection) -> None:
        self._consumers.close(connection)
        self._producers.close(connection)

    def scan(self) -> int:
        """Close the connections that were silent too long; returns how many."""
        before = self._clock.monotonic() - SILENCE_SECONDS_MAX
        silent = {
            *self._consumers.silent_since(before),
            *self._producers.silent_since(before),
        }
        for connection in silent:
            logger.warning("client is silent, closing: address=%s", connection.remote_address)
            self.on_connection_lost(connection)
            connection.close()
        return len(silent)

    async def _scan_forever(self) -> None:
        while True:
            await self._clock.sleep(SCAN_SECONDS)
            self.scan()
