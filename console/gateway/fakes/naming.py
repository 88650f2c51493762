"""Fake NameServerGateway."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from console.gateway.fakes.broker import BROKER_NAME, NAME_SERVER
from console.gateway.naming import NameServerView, RouteQueues

if TYPE_CHECKING:
    from console.gateway.errors import GatewayError
    from console.gateway.fakes.broker import FakeBroker


class FakeNaming:
    """One name server, plus those in `broker.other_name_servers`."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker

    def views(self, topic: str, namespace: str) -> dict[str, NameServerView | GatewayError]:
        self.broker.check()
        own = (self.broker.node, *self.broker.slaves) if self.broker.has_broker else ()
        entries = {
            key: value
            for (space, key), value in self.broker.kv_entries.items()
            if space == namespace
        }
        config = self.broker.topic_configs.get(topic)
        route = None
        if config is not None:
            perm = config.perm if self.broker.is_writable else config.perm & ~2
            queues = RouteQueues(BROKER_NAME, config.read_queue_nums, config.write_queue_nums, perm)
            route = (queues,)
        nodes = (*own, *self.broker.strangers)
        return {NAME_SERVER: NameServerView(nodes, entries, route)} | self.broker.other_name_servers

    def put(self, address: str, namespace: str, key: str, value: str) -> None:
        self.broker.check()
        if address == NAME_SERVER:
            self.broker.kv_entries[namespace, key] = value
        else:
            self._elsewhere(address, {key: value})

    def remove(self, address: str, namespace: str, key: str) -> None:
        self.broker.check()
        if address == NAME_SERVER:
            self.broker.kv_entries.pop((namespace, key), None)
        else:
            self._elsewhere(address, {key: None})

    def _elsewhere(self, address: str, changed: dict[str, str | None]) -> None:
        view = self.broker.other_name_servers[address]
        if not isinstance(view, NameServerView):
            raise view
        entries = {**view.entries, **changed}
        kept = {key: value for key, value in entries.items() if value is not None}
        self.broker.other_name_servers[address] = replace(view, entries=kept)

    def set_writable(self, broker_name: str, *, is_writable: bool) -> int:
        self.broker.check()
        self.broker.is_writable = is_writable
        return len(self.broker.topic_configs)
