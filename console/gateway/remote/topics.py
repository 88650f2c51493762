"""TopicGateway over the remoting protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.answers import Topic, Traffic
from console.gateway.errors import GatewayError, NotFoundError
from console.gateway.kinds import topic_kind
from console.gateway.remote.brokers import each
from console.gateway.requests import cluster, naming, offsets, topics as requests

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.gateway.answers import BrokerNode, QueueStatus, TopicConfig
    from console.gateway.naming import RouteQueues
    from console.gateway.remote.brokers import RemoteBrokers
    from console.lib.stored import BrokerQueue

NO_TRAFFIC = Traffic(minute_tps=0.0, hour_sum=0, day_sum=0)


class RemoteTopics:
    """Thread-safe; calls block until the brokers answer."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def all(self) -> dict[str, Topic]:
        return self._brokers.run(self._all())

    def status(self, topic: str) -> tuple[QueueStatus, ...]:
        return self._brokers.run(status(self._brokers, topic))

    def oldest(self, queues: Iterable[QueueStatus], topic: str) -> dict[BrokerQueue, int | None]:
        return self._brokers.run(self._oldest(list(queues), topic))

    def traffic(self, topics: Iterable[str]) -> dict[str, Traffic]:
        return self._brokers.run(self._traffic(list(topics)))

    def consumers(self, topic: str) -> tuple[str, ...]:
        return self._brokers.run(self._consumers(topic))

    def save(self, config: TopicConfig, broker_names: Iterable[str]) -> None:
        self._brokers.run(
            self._brokers.on_named(
                broker_names,
                lambda node: requests.update_topic(self._brokers.ask, node.address, config),
            )
        )

    def delete(self, topic: str) -> None:
        self._brokers.run(self._delete(topic))

    async def _all(self) -> dict[str, Topic]:
        found = await self._brokers.on_masters(
            lambda node: requests.topic_configs(self._brokers.ask, node.address)
        )
        configs: dict[str, dict[str, TopicConfig]] = {}
        for node, table in found:
            for name, config in table.items():
                configs.setdefault(name, {})[node.broker_name] = config
        # Brokers create topics named after themselves and their cluster for internal use.
        own = frozenset(
            name for node, _table in found for name in (node.cluster_name, node.broker_name)
        )
        return {
            name: Topic(name=name, kind=topic_kind(name, own), configs=each_broker)
            for name, each_broker in sorted(configs.items())
        }

    async def _oldest(self, queues: list[QueueStatus], topic: str) -> dict[BrokerQueue, int | None]:
        address = {node.broker_name: node.address for node in await self._brokers.masters()}
        known = [queue for queue in queues if queue.broker_name in address]
        found = await each(
            known,
            lambda queue: offsets.earliest_store_time(
                self._brokers.ask, address[queue.broker_name], topic, queue.queue_id
            ),
        )
        return {queue.queue: at_ms for queue, at_ms in found}

    async def _traffic(self, names: list[str]) -> dict[str, Traffic]:
        masters = await self._brokers.masters()

        async def one(pair: tuple[str, BrokerNode]) -> Traffic | None:
            topic, node = pair
            return await cluster.traffic(
                self._brokers.ask, node.address, cluster.TOPIC_PUT_NUMS, topic
            )

        pairs = [(topic, node) for topic in names for node in masters]
        total = dict.fromkeys(names, NO_TRAFFIC)
        for (topic, _node), part in await each(pairs, one):
            if part is not None:
                total[topic] = added(total[topic], part)
        return total

    async def _consumers(self, topic: str) -> tuple[str, ...]:
        found = await self._brokers.on_masters(
            lambda node: requests.topic_groups(self._brokers.ask, node.address, topic)
        )
        return tuple(sorted({group for _node, groups in found for group in groups}))

    async def _delete(self, topic: str) -> None:
        await self._brokers.on_masters(
            lambda node: requests.delete_topic_in_broker(self._brokers.ask, node.address, topic)
        )
        for address in self._brokers.name_servers:
            await requests.delete_topic_in_namesrv(self._brokers.ask, address, topic)


async def status(brokers: RemoteBrokers, topic: str) -> tuple[QueueStatus, ...]:
    """Return the ends of a topic's queues on the masters that have it.

    Brokers only report writable queues. Other readable queues are in the route and are requested
    one by one.
    """
    routed = {queues.broker_name: queues for queues in await routes(brokers, topic)}

    async def one(node: BrokerNode) -> tuple[QueueStatus, ...] | NotFoundError:
        try:
            rows = await requests.topic_stats(brokers.ask, node.address, topic)
        except NotFoundError as error:
            return error
        queues = routed.get(node.broker_name)
        if queues is None:
            return rows
        known = {row.queue_id for row in rows}
        rest = await each(
            [number for number in range(queues.read_queue_nums) if number not in known],
            lambda number: requests.queue_ends(
                brokers.ask, node.address, topic, node.broker_name, number
            ),
        )
        return (*rows, *(row for _number, row in rest))

    found = [result for _node, result in await brokers.on_masters(one)]
    absent = [result for result in found if isinstance(result, NotFoundError)]
    if len(absent) == len(found):
        raise absent[0]
    return tuple(row for rows in found if not isinstance(rows, NotFoundError) for row in rows)


async def routes(brokers: RemoteBrokers, topic: str) -> tuple[RouteQueues, ...]:
    """Return a topic's queues by broker, from the first name server that has its route."""
    for address in brokers.name_servers:
        try:
            found = await naming.route(brokers.ask, address, topic)
        except GatewayError:
            continue
        if found is not None:
            return found
    return ()


def added(one: Traffic, other: Traffic) -> Traffic:
    return Traffic(
        minute_tps=one.minute_tps + other.minute_tps,
        hour_sum=sum_if_known(one.hour_sum, other.hour_sum),
        day_sum=sum_if_known(one.day_sum, other.day_sum),
    )


def sum_if_known(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
