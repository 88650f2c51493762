"""Fake ClusterGateway."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from console.gateway.answers import Cluster, Promoted, Replication, RuntimeInfo, SlaveLink
from console.gateway.errors import (
    NO_PERMISSION,
    SYSTEM_ERROR,
    GatewayError,
    RequestFailedError,
    UnconfirmedBrokerError,
)
from console.gateway.fakes.broker import ADDRESS, NAME_SERVER
from console.gateway.internals import DiskReads, Internals, Log, Memory, Thread
from console.gateway.listeners import listeners_of
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.answers import BrokerNode
    from console.gateway.configuration import BrokerKey
    from console.gateway.fakes.broker import FakeBroker
    from console.gateway.listeners import Listener


class FakeCluster:
    """One master with an uptime of one hour."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker

    def registered(self) -> Cluster:
        self.broker.check()
        own = (self.broker.node, *self.broker.slaves) if self.broker.has_broker else ()
        nodes = (*own, *self.broker.strangers)
        return Cluster(nodes=nodes, name_server=NAME_SERVER, read_at_ms=now_ms())

    def promote(self, node: BrokerNode, *, force: bool) -> Promoted:
        """Promote a slave; the master counts as alive unless the cluster has no brokers."""
        self.broker.check()
        if node.is_master:
            raise RequestFailedError(
                node.address,
                SYSTEM_ERROR,
                "this broker is already a master",
            )
        if self.broker.has_broker and not force:
            raise RequestFailedError(
                node.address, SYSTEM_ERROR, f"the master at {ADDRESS} is alive"
            )
        return Promoted(1, 4096, "ASYNC_MASTER")

    def internals(self, node: BrokerNode) -> Internals:
        """Return the configured internals, or those of a quiet broker."""
        self.broker.check()
        found = self.broker.internals
        if isinstance(found, GatewayError):
            raise found
        return found or quiet(now_ms() - self.broker.up_for_ms)

    def configuration(self, node: BrokerNode) -> tuple[BrokerKey, ...]:
        self.broker.check()
        return tuple(self.broker.keys[key] for key in sorted(self.broker.keys))

    def listeners(self) -> dict[str, tuple[Listener, ...] | GatewayError]:
        """Return the ports in the configuration that all brokers share."""
        self.broker.check()
        nodes = self.registered().nodes
        if self.broker.silent is not None:
            return dict.fromkeys((node.address for node in nodes), self.broker.silent)
        return {node.address: listeners_of(node, self.broker.keys.values()) for node in nodes}

    def configure(self, node: BrokerNode, values: Mapping[str, str]) -> None:
        """Change live keys; change nothing if one is invalid."""
        self.broker.check()
        for key in values:
            if key not in self.broker.keys or not self.broker.keys[key].is_live:
                raise RequestFailedError(node.address, NO_PERMISSION, f"{key} is not changed so")
        for key, value in values.items():
            self.broker.keys[key] = replace(self.broker.keys[key], value=value)

    def runtime(self) -> dict[str, RuntimeInfo | GatewayError]:
        self.broker.check()
        strangers: dict[str, RuntimeInfo | GatewayError] = {
            node.address: UnconfirmedBrokerError(node.address) for node in self.broker.strangers
        }
        if not self.broker.has_broker:
            return strangers
        if self.broker.silent is not None:
            return {ADDRESS: self.broker.silent, **strangers}
        now = now_ms()
        total = sum(len(queue.store_timestamps) for queue in self.broker.queues.values())
        info = RuntimeInfo(
            node=self.broker.node,
            read_at_ms=now,
            version="V4_9_7",
            boot_timestamp_ms=now - self.broker.up_for_ms,
            put_tps=self.broker.runtime_values["put_tps"],
            get_tps=self.broker.runtime_values["get_tps"],
            put_today=total,
            get_today=total,
            commit_log_disk_ratio=0.25,
            commit_log_min_offset=0,
            commit_log_max_offset=total * 256,
            earliest_message_ms=None,
            flush_behind_bytes=0,
            store_refuses=self.broker.store_refuses,
            damaged_ranges=self.broker.damaged_ranges,
            unreachable_messages=sum(self.broker.unreachable_topics.values()),
            unreachable_topics=tuple(self.broker.unreachable_topics),
            put_before_today=self.broker.put_before_today,
        )
        slaves = {node.address: replace(info, node=node) for node in self.broker.slaves}
        return {ADDRESS: info, **slaves, **strangers}

    def replication(self) -> dict[str, Replication | GatewayError]:
        """Return the configured `replication`, or a slave that is fully in sync."""
        broker = self.broker
        broker.check()
        found: dict[str, Replication | GatewayError] = {}
        links = []
        for number, node in enumerate(broker.slaves):
            address = f"127.0.0.1:{40_000 + number}"
            links.append(SlaveLink(address, 0, 0, 800, 0, is_in_sync=True))
            found[node.address] = Replication(
                node,
                now_ms(),
                is_master=False,
                max_offset=4096,
                is_following=True,
                master_address="127.0.0.1:10912",
                local_address=address,
            )
        if broker.slaves:
            found[ADDRESS] = Replication(
                broker.node, now_ms(), is_master=True, max_offset=4096, links=tuple(links)
            )
        return found | broker.replication


def quiet(boot_ms: int) -> Internals:
    """Return the internals of a broker that has served a few sends."""
    bounds = [0.0, 1.0, 10.0]
    return Internals(
        boot_timestamp=boot_ms,
        threads=[Thread(1, "MainThread", "R", 1_200, 3), Thread(2, "flush", "S", 40, 0)],
        reads=DiskReads(disk_read_bytes=0, cold_messages=0),
        memory=Memory(1 << 20, 1 << 30, 8 << 30, 4 << 30),
        log=Log(0, 4_096, 4_096),
        latency_bounds_ms=bounds,
        latencies={"put": [0, 7, 1, 0], "get": [0, 0, 0, 0], "flush": [0, 0, 2, 0]},
        recent={"put": [0, 3, 0, 0], "get": [0, 0, 0, 0], "flush": [0, 0, 0, 0]},
        quarantine=[],
    )
