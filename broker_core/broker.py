"""The broker: its parts, which `composition` builds, and the order in which they start and stop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker_core.composition.access import build_access
from broker_core.composition.clients import build_clients
from broker_core.composition.duties import MastersDuties
from broker_core.composition.foundation import build_foundation
from broker_core.composition.grpc import grpc_stages
from broker_core.composition.lifecycle import Stage, shut_down_all, start_all
from broker_core.composition.metrics import metrics_stages
from broker_core.composition.naming import announcement, build_naming
from broker_core.composition.promotion import (
    build_peers,
    build_promotion,
    configured_role,
    with_stored_role,
)
from broker_core.composition.replication import build_replication
from broker_core.composition.requests import build_requests
from broker_core.composition.slave_sync import build_following
from broker_core.composition.storage import build_storage, load_storage, lower_offsets
from broker_core.config.lists import parse_admin_listener
from broker_core.errors import BrokerError
from broker_core.ha.shutdown import Shutdown
from broker_core.storage import FileStorage

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.config.configuration import Configuration
    from broker_core.storage import Storage

VIP_PORT_STEP = 2
"""The VIP port is this far below the listening port."""


class Broker:
    """The broker's full lifecycle, from `load` to `shutdown`. Event loop only, except `load`."""

    def __init__(
        self,
        configuration: Configuration,
        clock: Clock | None = None,
        files: Storage | None = None,
    ) -> None:
        configured = configured_role(configuration)
        files = files or FileStorage()
        self.ending = Shutdown()
        self.foundation = build_foundation(with_stored_role(configuration, files), clock, files)
        try:
            self.access = build_access(self.foundation)
            self.storage = build_storage(self.foundation)
            self.replication = build_replication(
                self.foundation, self.storage.store, self.storage.tracer
            )
            self.clients = build_clients(self.foundation, self.storage, self.access.gate)
            self.duties = MastersDuties(
                self.foundation.role,
                self.storage.schedule,
                self.storage.timers,
                self.storage.transactions,
                self.clients.transaction_check,
                self.storage.pop,
                partial(lower_offsets, self.storage),
            )
            self.naming = build_naming(
                self.foundation,
                self.storage.topics,
                self.access.gate,
                lambda: self.storage.epochs.newest,
                self._outranked,
            )
            following = build_following(
                self.foundation, self.storage, self.access, self.naming, self.replication
            )
            self.metadata_sync = following.metadata_sync
            self._ha_admin = following.ha_admin
            self.promotion = build_promotion(
                self.foundation,
                configured,
                self.storage,
                self.replication,
                self.metadata_sync,
                build_peers(self.foundation, self.naming),
                self.ending,
            )
            self.requests = build_requests(
                self.foundation,
                self.storage,
                self.clients,
                self.access,
                self.naming,
                self.promotion,
                self._ha_admin,
            )
            self._grpc = grpc_stages(self.foundation, self.storage, self.access, self.requests)
        except BrokerError:
            self.foundation.extensions.close()
            raise
        self.configuration = self.foundation.configuration
        self._stages = self._in_order_of_start()

    @property
    def listen_port(self) -> int:
        return self.configuration.server.listen_port

    def load(self) -> None:
        """Lock the store directory, recover it, read the configuration files.

        Raises:
            StoreError: one sentence for the operator.
        """
        try:
            load_storage(self.foundation, self.storage)
            if self.access.acl is not None:
                self.access.acl.load()
        except BrokerError:
            self.foundation.extensions.close()
            raise

    async def start(self) -> None:
        """Serve.

        Raises:
            RemotingError: a port can't be opened; `shutdown` stops the parts already started.
        """
        await start_all(self._stages)

    async def shutdown(self) -> None:
        """Stop announcing, then serving, then storing; parked pulls are answered, offsets written.

        Also call it after a failed start, because `load` has locked the store.
        """
        await shut_down_all(self._stages)

    def announcement(self) -> str:
        """Return the sentence for a successful start."""
        return announcement(self.foundation, self.naming)

    def _in_order_of_start(self) -> list[Stage]:
        """Return the stages in start order: storage, then serving, then registration.

        When a client finds this broker in a name server, it can connect to it.
        """
        storage, clients, requests, naming = (
            self.storage,
            self.clients,
            self.requests,
            self.naming,
        )
        stages = [
            Stage(shutdown=self.foundation.extensions.close),
            Stage(shutdown=self.foundation.counted_log.shutdown),
        ]
        if naming.name_server is not None:
            stages.append(Stage(naming.name_server.start, naming.name_server.shutdown))
        # Check before anything is served: another broker may have become the set's master.
        mastership = self.promotion.mastership
        stages.append(Stage(mastership.start, mastership.shutdown))
        stages += [
            Stage(storage.store.start, storage.store.shutdown),
            # Started before the ports, so that offsets are written after the last request could
            # move them.
            Stage(storage.persistence.start, storage.persistence.shutdown),
            Stage(storage.stats.start, storage.stats.shutdown),
        ]
        if self.access.acl is not None:
            stages.append(Stage(self.access.acl.start, self.access.acl.shutdown))
        stages += [
            Stage(clients.housekeeping.start, clients.housekeeping.shutdown),
            Stage(self.duties.start, self.duties.shutdown),
            Stage(self._start_slow_consumers, clients.slow_consumers.shutdown),
            Stage(self._listen, requests.server.shutdown),
            Stage(self._listen_fast, requests.fast_server.shutdown),
            *self._grpc,
            *self._administration(),
            Stage(self._serve_slaves, self.replication.ha_master.shutdown),
            Stage(self.replication.start_slave, self.replication.ha_slave.shutdown),
            *metrics_stages(self.foundation, storage, self.replication, requests, self._ha_admin),
            # A server waits for pending answers, so watchers and parked pulls end first.
            Stage(shutdown=storage.tracer.shutdown),
            Stage(shutdown=storage.parked_pulls.shutdown),
            Stage(shutdown=storage.pop.pollers.shutdown),
            Stage(requests.water_mark.start, requests.water_mark.shutdown),
            Stage(storage.self_check.start, storage.self_check.shutdown),
            Stage(requests.overload.start, requests.overload.shutdown),
        ]
        if naming.address_server is not None:
            stages.append(Stage(naming.address_server.start, naming.address_server.shutdown))
        stages.append(Stage(naming.registration.start, naming.registration.shutdown))
        stages.append(Stage(self.metadata_sync.start, self.metadata_sync.shutdown))
        return stages

    def _outranked(self, epoch: int, name_server: str) -> None:
        self.promotion.mastership.outranked(epoch, name_server)

    def _administration(self) -> list[Stage]:
        server = self.requests.admin_server
        if server is None:
            return []
        listener = parse_admin_listener(self.configuration.broker.admin_listen_address)

        async def listen() -> None:
            if isinstance(listener, str):
                server.start_at_path(listener)
            else:
                await server.start(*listener)

        return [Stage(listen, server.shutdown)]

    def _start_slow_consumers(self) -> None:
        self.clients.slow_consumers.watch(
            watching=self.configuration.broker.disable_consume_if_consumer_read_slowly
        )

    async def _listen(self) -> None:
        await self.requests.server.start(self.configuration.broker.bind_address, self.listen_port)

    async def _serve_slaves(self) -> None:
        await self.replication.ha_master.start(
            self.configuration.broker.bind_address, self.configuration.ha.ha_listen_port
        )

    async def _listen_fast(self) -> None:
        await self.requests.fast_server.start(
            self.configuration.broker.bind_address, self.listen_port - VIP_PORT_STEP
        )
