"""The complete name server, alone in a process or embedded in a broker's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker_core.config.namesrv import NamesrvConfig
from broker_core.isolation import isolated
from broker_core.namesrv.kv_configs import KvConfigs
from broker_core.namesrv.processor import NameServerProcessor
from broker_core.namesrv.routes import RouteTable
from broker_core.protocol.bodies.route import MASTER_ID
from broker_core.protocol.codes import RequestCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.body_bounds import bounded
from broker_core.remoting.connection import Connection
from broker_core.remoting.limits import RemotingLimits
from broker_core.remoting.server import RemotingServer, ServerEvents
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from broker_core.clock import Clock, Timer
    from broker_core.listening.budgets import Budgets
    from broker_core.listening.proxies import TrustedProxies
    from broker_core.listening.tls import TlsGate
    from broker_core.remoting.dispatch import Handler
    from broker_core.storage import Storage

EXPIRE_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Entrance:
    """Controls access to a name server."""

    limits: RemotingLimits = field(default_factory=RemotingLimits)
    tls: TlsGate | None = None
    proxies: TrustedProxies | None = None
    guard_handlers: Callable[[dict[int, Handler]], dict[int, Handler]] | None = None
    """Adds access control to the handlers that change something; None allows changes by any client.
    """
    budgets: Budgets | None = None
    """Budgets shared with the other servers of this process; None creates separate budgets."""


OPEN = Entrance()


class NameServer(Service):
    """Serves routes on a port. Event loop only.

    After `start`, `port` is the bound port. A broker in the same process may write to `routes`
    directly.
    """

    def __init__(
        self,
        host: str,
        port: int,
        clock: Clock,
        storage: Storage,
        kv_config_path: Path,
        *,
        entrance: Entrance = OPEN,
        config: NamesrvConfig | None = None,
        keep: Callable[[Mapping[str, str]], None] | None = None,
    ) -> None:
        """Create a name server; `keep` writes changed keys to the configuration file."""
        super().__init__()
        self.host = host
        self.port = port
        config = config or NamesrvConfig()
        limits = entrance.limits
        self.routes = RouteTable(clock, config)
        self.kv_configs = KvConfigs(storage, kv_config_path)
        self._clock = clock
        self._expire_timer: Timer | None = None
        shown = {
            "bindAddress": host,
            "listenPort": str(port),
            "serverChannelMaxIdleTimeSeconds": f"{limits.idle_s:.0f}",
            "serverSocketBacklog": str(limits.backlog),
            "serverSocketRcvBufSize": str(limits.receive_buffer_bytes),
            "serverSocketSndBufSize": str(limits.send_buffer_bytes),
            "clusterTest": "false",
        }
        self._processor = NameServerProcessor(
            self.routes,
            self.kv_configs,
            config,
            shown,
            keep or _forget,
            _is_proven if entrance.guard_handlers is not None else None,
        )
        self._guard_handlers = entrance.guard_handlers
        self.routes.master_listeners.append(self._notify_slaves)
        self._server = RemotingServer(
            "name server",
            self.handlers(),
            clock,
            limits,
            entrance.tls,
            proxies=entrance.proxies,
            events=ServerEvents(on_connection_lost=self.routes.owner_lost),
            budgets=entrance.budgets,
        )

    def handlers(self) -> dict[int, Handler]:
        """Return the table from request code to handler."""
        handlers = self._processor.handlers()
        return bounded(handlers if self._guard_handlers is None else self._guard_handlers(handlers))

    def override(self, handlers: Mapping[int, Handler]) -> None:
        """Replace handlers on the port for some codes; `handlers` stays unchanged."""
        self._server.override(handlers)

    def order_topics(self) -> Mapping[str, str]:
        """Return the ordered topics and their queues, as a registering broker receives them."""
        return self._processor.order_topics()

    async def start(self) -> None:
        """Load the KV configuration, then serve.

        Raises:
            StoreError: the KV configuration is damaged.
            RemotingError: the server can't listen on the port.
        """
        self.kv_configs.load()
        self.port = await self._server.start(self.host, self.port)
        self._expire_later()

    async def shutdown(self) -> None:
        """Close the port and its connections."""
        if self._expire_timer is not None:
            self._expire_timer.cancel()
        await self._server.shutdown()
        self.routes.shutdown()
        await super().shutdown()

    def _notify_slaves(self, broker_name: str) -> None:
        """Notify the slaves of a broker that its master has registered, moved or left.

        Differs: 5.x notifies all members of a set through a connection to their own ports, and only
        with notifyMinBrokerIdChanged. Here slaves are notified on the connection that they
        registered
        with; a 4.9 slave logs that it doesn't support the request.
        """
        master = self.routes.master_of(broker_name)
        fields = {
            "brokerName": broker_name,
            "minBrokerId": str(MASTER_ID),
            "minBrokerAddr": master.master_addr,
            "haBrokerAddr": master.ha_server_addr,
        }
        for slave in self.routes.slaves_of(broker_name):
            if not master.master_addr:
                fields["minBrokerId"] = str(slave.identity.broker_id)
            for owner in slave.owners:
                if isinstance(owner, Connection) and owner.is_open:
                    code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
                    owner.oneway(RemotingCommand.request(code, dict(fields)))

    def _expire_later(self) -> None:
        self._expire_timer = self._clock.call_at(
            self._clock.monotonic() + EXPIRE_EVERY_S, self._expire
        )

    def _expire(self) -> None:
        self._expire_later()
        for owner in self.routes.expire():
            if isinstance(owner, Connection):
                with isolated("disconnecting a silent broker", owner):
                    owner.close()


def _is_proven(_: RemotingCommand, __: Connection) -> bool:
    """Return True: the guard has already checked the account of every request."""
    return True


def _forget(_: Mapping[str, str]) -> None:
    """Store nothing, without a configuration file."""
