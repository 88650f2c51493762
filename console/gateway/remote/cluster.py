"""ClusterGateway over the remoting protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.errors import GatewayError
from console.gateway.listeners import listeners_of
from console.gateway.remote.brokers import each
from console.gateway.requests import cluster, configuration
from console.gateway.requests.replication import replication
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.answers import BrokerNode, Cluster, Promoted, Replication, RuntimeInfo
    from console.gateway.configuration import BrokerKey
    from console.gateway.internals import Internals
    from console.gateway.listeners import Listener
    from console.gateway.remote.brokers import RemoteBrokers


class RemoteCluster:
    """Thread-safe; calls block until the brokers answer."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def registered(self) -> Cluster:
        return self._brokers.run(self._brokers.cluster())

    def runtime(self) -> dict[str, RuntimeInfo | GatewayError]:
        return self._brokers.run(self._runtime())

    def promote(self, node: BrokerNode, *, force: bool) -> Promoted:
        return self._brokers.run(cluster.promote(self._brokers.ask, node, force=force))

    def internals(self, node: BrokerNode) -> Internals:
        return self._brokers.run(cluster.internals(self._brokers.ask, node))

    def configuration(self, node: BrokerNode) -> tuple[BrokerKey, ...]:
        return self._brokers.run(configuration.configuration(self._brokers.ask, node.address))

    def listeners(self) -> dict[str, tuple[Listener, ...] | GatewayError]:
        return self._brokers.run(self._listeners())

    def configure(self, node: BrokerNode, values: Mapping[str, str]) -> None:
        self._brokers.run(configuration.configure(self._brokers.ask, node.address, values))

    async def _runtime(self) -> dict[str, RuntimeInfo | GatewayError]:
        async def one(node: BrokerNode) -> RuntimeInfo | GatewayError:
            try:
                return await cluster.runtime_info(self._brokers.ask, node, now_ms())
            except GatewayError as error:
                return error

        found = await each((await self._brokers.cluster()).nodes, one)
        return {node.address: result for node, result in found}

    async def _listeners(self) -> dict[str, tuple[Listener, ...] | GatewayError]:
        async def one(node: BrokerNode) -> tuple[Listener, ...] | GatewayError:
            try:
                keys = await configuration.configuration(self._brokers.ask, node.address)
            except GatewayError as error:
                return error
            return listeners_of(node, keys)

        found = await each((await self._brokers.cluster()).nodes, one)
        return {node.address: result for node, result in found}

    def replication(self) -> dict[str, Replication | GatewayError]:
        return self._brokers.run(self._replication())

    async def _replication(self) -> dict[str, Replication | GatewayError]:
        async def one(node: BrokerNode) -> Replication | GatewayError:
            try:
                return await replication(self._brokers.ask, node, now_ms())
            except GatewayError as error:
                return error

        nodes = (await self._brokers.cluster()).in_sets
        return {node.address: result for node, result in await each(nodes, one)}
