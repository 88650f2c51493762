"""FileGateway over the remoting protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.gateway.requests import files, groups, topics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from console.gateway.answers import BrokerNode
    from console.gateway.files import ConfigFile, GroupFilter
    from console.gateway.remote.brokers import RemoteBrokers


class RemoteFiles:
    """Thread-safe; calls block until the brokers answer."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def read(
        self, file: ConfigFile, broker_names: Iterable[str]
    ) -> dict[str, dict[str, Any] | None]:
        return self._brokers.run(self._read(file, list(broker_names)))

    def drop_topic(self, topic: str, broker_name: str) -> None:
        self._brokers.run(self._drop_topic(topic, broker_name))

    def drop_group(self, group: str, broker_name: str) -> None:
        self._brokers.run(
            self._brokers.on_named(
                [broker_name],
                lambda node: groups.delete_group(
                    self._brokers.ask, node.address, group, remove_offset=False
                ),
            )
        )

    def move_delay(self, level: int, offset: int, broker_name: str) -> None:
        ask = self._brokers.ask
        self._on(broker_name, lambda node: files.move_delay(ask, node.address, level, offset))

    def check_filter(self, wanted: GroupFilter, broker_name: str) -> str:
        found: list[str] = []

        async def one(node: BrokerNode) -> None:
            found.append(await files.check_filter(self._brokers.ask, node.address, wanted))

        self._on(broker_name, one)
        return found[0]

    def save_filter(self, wanted: GroupFilter, broker_name: str) -> None:
        ask = self._brokers.ask
        self._on(broker_name, lambda node: files.save_filter(ask, node.address, wanted))

    def drop_filter(self, group: str, topic: str, broker_name: str) -> None:
        ask = self._brokers.ask
        self._on(broker_name, lambda node: files.drop_filter(ask, node.address, group, topic))

    def _on(self, broker_name: str, act: Callable[[BrokerNode], Awaitable[None]]) -> None:
        self._brokers.run(self._brokers.on_named([broker_name], act))

    async def _read(
        self, file: ConfigFile, broker_names: list[str]
    ) -> dict[str, dict[str, Any] | None]:
        found: dict[str, dict[str, Any] | None] = {}

        async def one(node: BrokerNode) -> None:
            found[node.broker_name] = await files.config_file(self._brokers.ask, node.address, file)

        await self._brokers.on_named(broker_names, one)
        return {name: found[name] for name in broker_names}

    async def _drop_topic(self, topic: str, broker_name: str) -> None:
        ask = self._brokers.ask
        await self._brokers.on_named(
            [broker_name], lambda node: topics.delete_topic_in_broker(ask, node.address, topic)
        )
        left = await self._brokers.on_masters(lambda node: topics.topic_configs(ask, node.address))
        if all(topic not in table for _node, table in left):
            # Name servers keep a topic's route until it is explicitly deleted.
            for address in self._brokers.name_servers:
                await topics.delete_topic_in_namesrv(ask, address, topic)
