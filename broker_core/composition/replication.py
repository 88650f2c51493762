"""Replication: the HA service that slaves connect to, and the HA client of a slave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.ha.master import HaMaster
from broker_core.ha.slave import HaSlave
from broker_core.ha.sync_replicas import SyncReplicas
from broker_core.listening.tls import client_context
from broker_core.remoting.allowed_peers import AllowedPeers, Gate

if TYPE_CHECKING:
    from broker_core.composition.foundation import Foundation
    from broker_core.ha.role import Role
    from broker_core.store.message_store import MessageStore
    from broker_core.trace.tracer import Tracer

HA_PORT = Gate("haAllowedAddresses", "read the log over the HA port", "a slave")


@dataclass(frozen=True, slots=True)
class ReplicationParts:
    """Both ends of replication; every broker has both, and its role decides which one is active."""

    role: Role
    ha_master: HaMaster
    ha_slave: HaSlave
    sync_replicas: SyncReplicas

    def start_slave(self) -> None:
        """Follow the master, unless this broker is one."""
        if self.role.is_slave:
            self.ha_slave.start()

    async def role_changed(self) -> None:
        """Follow a master, or stop following and accept puts."""
        if not self.role.is_slave:
            await self.ha_slave.stop()
        self.sync_replicas.take_role()
        if self.role.is_slave:
            self.ha_slave.start()


def build_replication(
    foundation: Foundation, store: MessageStore, tracer: Tracer
) -> ReplicationParts:
    """Build both ends; nothing listens or connects yet.

    Raises:
        ConfigError: a certificate of tls.client.* isn't valid.
    """
    configuration = foundation.configuration
    broker, ha = configuration.broker, configuration.ha
    ha_master = HaMaster(
        ha,
        foundation.clock,
        store.files.log,
        foundation.counted_log,
        AllowedPeers(
            HA_PORT,
            ha.ha_allowed_addresses,
            [broker.broker_ip1, broker.broker_ip2],
            has_acl=broker.acl_enable,
        ),
        foundation.tls if ha.ha_tls else None,
        lambda: store.replicable_where,
    )
    if store.acknowledge.is_flush_awaited:
        store.on_flushed.append(ha_master.flushed)

    def reported(address: str, commit_log_offset: int) -> None:
        if tracer.watching:
            tracer.watched_messages.replicated(
                address, commit_log_offset, foundation.clock.monotonic()
            )

    ha_master.on_report = reported
    ha_slave = HaSlave(
        ha,
        foundation.clock,
        store,
        foundation.counted_log,
        client_context(configuration.tls) if ha.ha_tls else None,
    )
    ha_slave.follow(ha.ha_master_address or None)
    sync_replicas = SyncReplicas(ha, foundation.role, ha_master, store)
    sync_replicas.take_role()
    store.retention.needed_from = ha_master.needed_from
    parts = ReplicationParts(foundation.role, ha_master, ha_slave, sync_replicas)
    foundation.role.listen(parts.role_changed)
    return parts
