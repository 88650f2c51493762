"""NameServer: the name server as a whole, alone in a process or embedded in a broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.namesrv.kv_configs import KvConfigs
from broker_core.namesrv.processor import NameServerProcessor
from broker_core.namesrv.routes import RouteTable
from broker_core.remoting.connection import Connection
from broker_core.remoting.server import RemotingServer
from broker_core.service import Service

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.clock import Clock, Timer
    from broker_core.remoting.dispatch import Handler
    from broker_core.remoting.limits import RemotingLimits
    from broker_core.remoting.tls import TlsGate
    from broker_core.storage import Storage

EXPIRE_EVERY_S = 5.0


class NameServer(Service):
    """Serves routes on a port. Event loop only.

    `port` is the bound one after `start`. `routes` may be written by a broker in the same
    process, which then needs no connection.
    """

    def __init__(
        self,
        host: str,
        port: int,
        clock: Clock,
        storage: Storage,
        kv_config_path: Path,
        *,
        limits: RemotingLimits | None = None,
        tls: TlsGate | None = None,
        is_proxied: bool = False,
        is_order_message_enabled: bool = False,
    ) -> None:
        super().__init__()
        self.host = host
        self.port = port
        self.routes = RouteTable(clock)
        self.kv_configs = KvConfigs(storage, kv_config_path)
        self._clock = clock
        self._expire_timer: Timer | None = None
        shown = {
            "bindAddress": host,
            "listenPort": str(port),
            "orderMessageEnable": str(is_order_message_enabled).lower(),
        }
        self._processor = NameServerProcessor(self.routes, self.kv_configs, shown)
        self._server = RemotingServer(
            "name server", self.handlers(), clock, limits, tls, is_proxied=is_proxied
        )
        self._server.on_connection_lost = self.routes.owner_lost

    def handlers(self) -> dict[int, Handler]:
        """Return the table from request code to handler."""
        return self._processor.handlers()

    async def start(self) -> None:
        """Read what was kept, then serve.

        Raises:
            StoreError: the KV configuration is damaged.
            RemotingError: the port cannot be listened on.
        """
        self.kv_configs.load()
        self.port = await self._server.start(self.host, self.port)
        self._expire_later()

    async def shutdown(self) -> None:
        """Close the port with its connections."""
        if self._expire_timer is not None:
            self._expire_timer.cancel()
        await self._server.shutdown()
        await super().shutdown()

    def _expire_later(self) -> None:
        self._expire_timer = self._clock.call_at(
            self._clock.monotonic() + EXPIRE_EVERY_S, self._expire
        )

    def _expire(self) -> None:
        for owner in self.routes.expire():
            if isinstance(owner, Connection):
                owner.close()
        self._expire_later()
