"""OffsetGateway over the remoting protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.remote.brokers import each
from console.gateway.remote.topics import status
from console.gateway.requests import offsets as requests
from console.lib.stored import BrokerQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.remote.brokers import RemoteBrokers


class RemoteOffsets:
    """Thread-safe; calls block until the brokers answer."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def at(self, topic: str, timestamp_ms: int) -> dict[BrokerQueue, int]:
        return self._brokers.run(self._at(topic, timestamp_ms))

    def commit(self, group: str, topic: str, offsets: Mapping[BrokerQueue, int]) -> None:
        self._brokers.run(self._commit(group, topic, offsets))

    def reset_online(self, group: str, topic: str, timestamp_ms: int) -> dict[BrokerQueue, int]:
        return self._brokers.run(self._reset_online(group, topic, timestamp_ms))

    def move_online(self, group: str, topic: str, offsets: Mapping[BrokerQueue, int]) -> None:
        self._brokers.run(self._move_online(group, topic, offsets))

    async def _at(self, topic: str, timestamp_ms: int) -> dict[BrokerQueue, int]:
        rows = await status(self._brokers, topic)
        address = {node.broker_name: node.address for node in await self._brokers.masters()}
        found = await each(
            rows,
            lambda row: requests.search_offset(
                self._brokers.ask, address[row.broker_name], topic, row.queue_id, timestamp_ms
            ),
        )
        return {row.queue: offset for row, offset in found}

    async def _commit(self, group: str, topic: str, offsets: Mapping[BrokerQueue, int]) -> None:
        address = {node.broker_name: node.address for node in await self._brokers.masters()}
        await each(
            list(offsets.items()),
            lambda item: requests.update_consumer_offset(
                self._brokers.ask,
                address[item[0].broker_name],
                group,
                topic,
                item[0].queue_id,
                item[1],
            ),
        )

    async def _reset_online(
        self, group: str, topic: str, timestamp_ms: int
    ) -> dict[BrokerQueue, int]:
        # The topic may exist on some brokers only; the others would refuse.
        having = {row.broker_name for row in await status(self._brokers, topic)}
        masters = [node for node in await self._brokers.masters() if node.broker_name in having]
        found = await each(
            masters,
            lambda node: requests.invoke_reset_offset(
                self._brokers.ask, node.address, group, topic, timestamp_ms
            ),
        )
        return {
            BrokerQueue(node.broker_name, queue_id): offset
            for node, moved in found
            for queue_id, offset in moved.items()
        }

    async def _move_online(
        self, group: str, topic: str, offsets: Mapping[BrokerQueue, int]
    ) -> None:
        by_broker: dict[str, dict[int, int]] = {}
        for queue, offset in offsets.items():
            by_broker.setdefault(queue.broker_name, {})[queue.queue_id] = offset
        await self._brokers.on_named(
            by_broker,
            lambda node: requests.reset_offsets(
                self._brokers.ask, node.address, group, topic, by_broker[node.broker_name]
            ),
        )
