"""Metrics: the port for Prometheus, if metricsListenPort is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.composition.lifecycle import Stage
from broker_core.metrics.listener import MetricsListener
from broker_core.metrics.own import Replication
from broker_core.metrics.page import MetricsPage
from broker_core.remoting.allowed_peers import AllowedPeers, Gate

if TYPE_CHECKING:
    from broker_core.composition.foundation import Foundation
    from broker_core.composition.replication import ReplicationParts
    from broker_core.composition.requests import RequestParts
    from broker_core.composition.storage import StorageParts
    from broker_core.processors.admin.ha import HaAdmin

METRICS_PORT = Gate("metricsAllowedAddresses", "ask for metrics", "your Prometheus")


def metrics_stages(
    foundation: Foundation,
    storage: StorageParts,
    replication: ReplicationParts,
    requests: RequestParts,
    ha: HaAdmin,
) -> list[Stage]:
    """Return the stages that serve metrics; empty without a port."""
    configuration = foundation.configuration
    broker, server = configuration.broker, configuration.server
    if not server.metrics_listen_port:
        return []
    page = MetricsPage(
        {
            "cluster": broker.broker_cluster_name,
            "node_type": "broker",
            "node_id": broker.broker_name,
        },
        requests.readings,
        Replication(
            role=foundation.role,
            epoch=lambda: storage.epochs.newest,
            slaves=replication.ha_master.connections,
            following=replication.ha_slave.state,
            behind_master=ha.behind_master,
            min_in_sync_replicas=lambda: configuration.ha.min_in_sync_replicas,
        ),
        foundation.clock,
        permission=lambda: broker.broker_permission,
        parked_pulls=lambda: len(storage.parked_pulls),
        budgets=foundation.budgets,
        series_max=lambda: server.metrics_series_max,
        fallbacks=None if foundation.native.turn is None else requests.fallbacks,
        pop=(storage.pop.engine, storage.pop.revival, storage.pop.pollers),
    )
    listener = MetricsListener(
        page.text,
        AllowedPeers(
            METRICS_PORT,
            server.metrics_allowed_addresses,
            [broker.broker_ip1, broker.broker_ip2],
            has_acl=broker.acl_enable,
        ),
        foundation.counted_log,
        foundation.clock,
    )

    async def start() -> None:
        await listener.start(
            server.metrics_listen_address or broker.bind_address, server.metrics_listen_port
        )

    return [Stage(start, listener.shutdown)]
