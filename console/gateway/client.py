"""RemotingGateway: the gateway over the remoting protocol."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.utils.translation import gettext as _

from broker_core.errors import (
    FrameError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
)
from broker_core.remoting.client import RemotingClient
from console.gateway import requests
from console.gateway.answers import (
    BrokerNode,
    Cluster,
    ConsumeProgress,
    Group,
    GroupConnections,
    Member,
    QueueProgress,
    Topic,
    Traffic,
)
from console.gateway.credentials import broker_credentials
from console.gateway.errors import (
    BrokerDownError,
    GatewayError,
    NameServerDownError,
    NotFoundError,
    UnreadableAnswerError,
)
from console.gateway.kinds import is_system_group, topic_kind
from console.gateway.loop import LoopThread
from console.gateway.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    from broker_core.protocol.command import RemotingCommand
    from console.gateway.answers import GroupConfig, QueueStatus, RuntimeInfo, TopicConfig
    from console.gateway.gateway import QueueKey

# What a page waits for all its requests to brokers together.
OPERATION_TIMEOUT_S = 10.0
# How many requests of one page may be under way at once.
REQUESTS_AT_ONCE_MAX = 32

T = TypeVar("T")
Item = TypeVar("Item")
NO_TRAFFIC = Traffic(minute_tps=0.0, hour_sum=0, day_sum=0)


class RemotingGateway:
    """Asks name servers, brokers over one connection each, on a loop of its own.

    Any thread. Holds no state besides connections: what a page shows is what brokers say now.
    """

    def __init__(
        self, name_servers: Iterable[str] | None = None, timeout_s: float | None = None
    ) -> None:
        self._name_servers = list(name_servers or settings.TREBUCHET_NAMESRV)
        self._timeout_s = timeout_s or settings.GATEWAY_TIMEOUT_S
        self._thread = LoopThread("gateway")
        self._client: RemotingClient | None = None

    # --- Calls --------------------------------------------------------------------------------

    def cluster(self) -> Cluster:
        return self._run(self._cluster())

    def runtime(self) -> dict[str, RuntimeInfo | GatewayError]:
        return self._run(self._runtime())

    def topics(self) -> dict[str, Topic]:
        return self._run(self._topics())

    def topic_status(self, topic: str) -> tuple[QueueStatus, ...]:
        return self._run(self._topic_status(topic))

    def topic_traffic(self, topics: Iterable[str]) -> dict[str, Traffic]:
        return self._run(self._topic_traffic(list(topics)))

    def topic_groups(self, topic: str) -> tuple[str, ...]:
        return self._run(self._topic_groups(topic))

    def save_topic(self, config: TopicConfig, broker_names: Iterable[str]) -> None:
        self._run(
            self._on_named(
                broker_names, lambda node: requests.update_topic(self._ask, node.address, config)
            )
        )

    def delete_topic(self, topic: str) -> None:
        self._run(self._delete_topic(topic))

    def groups(self) -> dict[str, Group]:
        return self._run(self._groups())

    def connections(self, group: str) -> GroupConnections:
        return self._run(self._connections(group))

    def progress(self, group: str) -> ConsumeProgress:
        return self._run(self._progresses([group]))[group]

    def progresses(self, groups: Iterable[str]) -> dict[str, ConsumeProgress]:
        return self._run(self._progresses(list(groups)))

    def online_groups(self, groups: Iterable[str]) -> dict[str, GroupConnections]:
        return self._run(self._online_groups(list(groups)))

    def save_group(self, config: GroupConfig, broker_names: Iterable[str]) -> None:
        self._run(
            self._on_named(
                broker_names, lambda node: requests.update_group(self._ask, node.address, config)
            )
        )

    def delete_group(self, group: str, *, remove_offset: bool) -> None:
        self._run(self._delete_group(group, remove_offset=remove_offset))

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[QueueKey, int]:
        return self._run(self._offsets_at(topic, timestamp_ms))

    def commit_offsets(self, group: str, topic: str, offsets: Mapping[QueueKey, int]) -> None:
        self._run(self._commit_offsets(group, topic, offsets))

    def reset_online(self, group: str, topic: str, timestamp_ms: int) -> dict[QueueKey, int]:
        return self._run(self._reset_online(group, topic, timestamp_ms))

    def close(self) -> None:
        """Close all connections; only for tests, a process just ends."""
        if self._client is not None:
            self._run(self._client.shutdown())
            self._client = None
        self._thread.stop()

    # --- The loop's side ------------------------------------------------------------------------

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return self._thread.run(coroutine, OPERATION_TIMEOUT_S)
        except TimeoutError as error:
            raise GatewayError(
                _("The brokers took longer than %(seconds)d seconds.")
                % {"seconds": OPERATION_TIMEOUT_S},
                _("They may be busy. Try again, or look at their log."),
            ) from error

    async def _ask(self, address: str, command: RemotingCommand) -> RemotingCommand:
        if self._client is None:
            self._client = RemotingClient(credentials=broker_credentials())
        try:
            return await self._client.request(address, command, self._timeout_s)
        except RemotingTimeoutError as error:
            reason = _("no answer within %(seconds)g seconds") % {"seconds": self._timeout_s}
            raise BrokerDownError(address, reason) from error
        except RemotingConnectError as error:
            raise BrokerDownError(address, reason_of(error, address)) from error
        except RemotingError as error:
            raise BrokerDownError(address, _("the connection broke off")) from error
        except (FrameError, ValueError) as error:
            raise UnreadableAnswerError(address, str(command.code), str(error)) from error

    async def _cluster(self) -> Cluster:
        reasons = []
        for address in self._name_servers:
            try:
                nodes = await requests.cluster_info(self._ask, address)
            except BrokerDownError as error:
                reasons.append(error.reason)
            else:
                return Cluster(nodes=nodes, name_server=address, read_at_ms=now_ms())
        raise NameServerDownError(self._name_servers, "; ".join(sorted(set(reasons))))

    async def _masters(self) -> tuple[BrokerNode, ...]:
        masters = (await self._cluster()).masters
        if not masters:
            raise GatewayError(
                _("No broker is registered at the name server."),
                _("Start a broker whose namesrvAddr is %(address)s.")
                % {"address": "; ".join(self._name_servers)},
            )
        return masters

    async def _on_masters(
        self, work: Callable[[BrokerNode], Awaitable[T]]
    ) -> list[tuple[BrokerNode, T]]:
        return await each(await self._masters(), work)

    async def _on_named(
        self, broker_names: Iterable[str], work: Callable[[BrokerNode], Awaitable[T]]
    ) -> None:
        wanted = set(broker_names)
        masters = [node for node in await self._masters() if node.broker_name in wanted]
        missing = wanted - {node.broker_name for node in masters}
        if missing:
            raise GatewayError(
                _("No broker named %(names)s is registered.")
                % {"names": ", ".join(sorted(missing))}
            )
        await each(masters, work)

    async def _runtime(self) -> dict[str, RuntimeInfo | GatewayError]:
        async def one(node: BrokerNode) -> RuntimeInfo | GatewayError:
            try:
                return await requests.runtime_info(self._ask, node, now_ms())
            except GatewayError as error:
                return error

        found = await each((await self._cluster()).nodes, one)
        return {node.address: result for node, result in found}

    async def _topics(self) -> dict[str, Topic]:
        found = await self._on_masters(lambda node: requests.topic_configs(self._ask, node.address))
        configs: dict[str, dict[str, TopicConfig]] = {}
        for node, table in found:
            for name, config in table.items():
                configs.setdefault(name, {})[node.broker_name] = config
        # A broker makes a topic of its cluster's name, another of its own, for its own use.
        own = frozenset(
            name for node, _table in found for name in (node.cluster_name, node.broker_name)
        )
        return {
            name: Topic(name=name, kind=topic_kind(name, own), configs=each_broker)
            for name, each_broker in sorted(configs.items())
        }

    async def _topic_status(self, topic: str) -> tuple[QueueStatus, ...]:
        async def one(node: BrokerNode) -> tuple[QueueStatus, ...] | NotFoundError:
            try:
                return await requests.topic_stats(self._ask, node.address, topic)
            except NotFoundError as error:
                return error

        found = [result for _node, result in await self._on_masters(one)]
        absent = [result for result in found if isinstance(result, NotFoundError)]
        if len(absent) == len(found):
            raise absent[0]
        return tuple(row for rows in found if not isinstance(rows, NotFoundError) for row in rows)

    async def _topic_traffic(self, topics: list[str]) -> dict[str, Traffic]:
        masters = await self._masters()

        async def one(pair: tuple[str, BrokerNode]) -> Traffic | None:
            topic, node = pair
            return await requests.traffic(self._ask, node.address, requests.TOPIC_PUT_NUMS, topic)

        pairs = [(topic, node) for topic in topics for node in masters]
        total = dict.fromkeys(topics, NO_TRAFFIC)
        for (topic, _node), part in await each(pairs, one):
            if part is not None:
                total[topic] = added(total[topic], part)
        return total

    async def _topic_groups(self, topic: str) -> tuple[str, ...]:
        found = await self._on_masters(
            lambda node: requests.topic_groups(self._ask, node.address, topic)
        )
        return tuple(sorted({group for _node, groups in found for group in groups}))

    async def _delete_topic(self, topic: str) -> None:
        await self._on_masters(
            lambda node: requests.delete_topic_in_broker(self._ask, node.address, topic)
        )
        for address in self._name_servers:
            await requests.delete_topic_in_namesrv(self._ask, address, topic)

    async def _groups(self) -> dict[str, Group]:
        async def one(node: BrokerNode) -> tuple[dict[str, GroupConfig], set[str]]:
            configs = await requests.group_configs(self._ask, node.address)
            offsets = await requests.consumer_offsets(self._ask, node.address)
            return configs, set(offsets)

        by_group: dict[str, dict[str, GroupConfig]] = {}
        for node, (table, with_offsets) in await self._on_masters(one):
            # A group may have offsets without a configuration, after that was deleted.
            for name in with_offsets:
                by_group.setdefault(name, {})
            for name, config in table.items():
                by_group.setdefault(name, {})[node.broker_name] = config
        return {
            name: Group(name=name, is_system=is_system_group(name), configs=configs)
            for name, configs in sorted(by_group.items())
        }

    async def _connections(self, group: str) -> GroupConnections:
        return merged(
            group,
            await self._on_masters(
                lambda node: requests.group_connections(self._ask, node.address, group)
            ),
        )

    async def _online_groups(self, groups: list[str]) -> dict[str, GroupConnections]:
        masters = await self._masters()

        async def one(pair: tuple[str, BrokerNode]) -> requests.Connections | None:
            return await requests.group_connections(self._ask, pair[1].address, pair[0])

        pairs = [(group, node) for group in groups for node in masters]
        parts: dict[str, list[tuple[BrokerNode, requests.Connections | None]]] = {}
        for (group, node), connections in await each(pairs, one):
            parts.setdefault(group, []).append((node, connections))
        return {group: merged(group, found) for group, found in parts.items()}

    async def _progresses(self, groups: list[str]) -> dict[str, ConsumeProgress]:
        masters = await self._masters()
        committed = {
            node.broker_name: table
            for node, table in await each(
                masters, lambda node: requests.consumer_offsets(self._ask, node.address)
            )
        }

        async def one(pair: tuple[str, BrokerNode]) -> requests.ConsumeStats:
            return await requests.consume_stats(self._ask, pair[1].address, pair[0])

        rows: dict[str, list[QueueProgress]] = {group: [] for group in groups}
        tps = dict.fromkeys(groups, 0.0)
        pairs = [(group, node) for group in groups for node in masters]
        for (group, node), stats in await each(pairs, one):
            tps[group] += stats.consume_tps
            stored = committed[node.broker_name].get(group, {})
            for (topic, queue_id), consumed in stats.queues.items():
                rows[group].append(
                    QueueProgress(
                        topic=topic,
                        broker_name=node.broker_name,
                        queue_id=queue_id,
                        broker_offset=consumed.broker_offset,
                        # The statistics say 0 for a queue without a committed offset.
                        consumer_offset=consumed.consumer_offset
                        if (topic, queue_id) in stored
                        else None,
                        last_timestamp_ms=consumed.last_timestamp_ms,
                    )
                )
        read_at_ms = now_ms()
        return {
            group: ConsumeProgress(
                group=group,
                consume_tps=tps[group],
                queues=tuple(
                    sorted(queues, key=lambda row: (row.topic, row.broker_name, row.queue_id))
                ),
                read_at_ms=read_at_ms,
            )
            for group, queues in rows.items()
        }

    async def _delete_group(self, group: str, *, remove_offset: bool) -> None:
        await self._on_masters(
            lambda node: requests.delete_group(
                self._ask, node.address, group, remove_offset=remove_offset
            )
        )

    async def _offsets_at(self, topic: str, timestamp_ms: int) -> dict[QueueKey, int]:
        status = await self._topic_status(topic)
        address = {node.broker_name: node.address for node in await self._masters()}
        found = await each(
            status,
            lambda row: requests.search_offset(
                self._ask, address[row.broker_name], topic, row.queue_id, timestamp_ms
            ),
        )
        return {(row.broker_name, row.queue_id): offset for row, offset in found}

    async def _commit_offsets(
        self, group: str, topic: str, offsets: Mapping[QueueKey, int]
    ) -> None:
        address = {node.broker_name: node.address for node in await self._masters()}
        await each(
            list(offsets.items()),
            lambda item: requests.update_consumer_offset(
                self._ask, address[item[0][0]], group, topic, item[0][1], item[1]
            ),
        )

    async def _reset_online(self, group: str, topic: str, timestamp_ms: int) -> dict[QueueKey, int]:
        # The topic may live on some brokers of the cluster only; the others would refuse.
        having = {row.broker_name for row in await self._topic_status(topic)}
        masters = [node for node in await self._masters() if node.broker_name in having]
        found = await each(
            masters,
            lambda node: requests.invoke_reset_offset(
                self._ask, node.address, group, topic, timestamp_ms
            ),
        )
        return {
            (node.broker_name, queue_id): offset
            for node, offsets in found
            for queue_id, offset in offsets.items()
        }


async def each(items: Iterable[Item], work: Callable[[Item], Awaitable[T]]) -> list[tuple[Item, T]]:
    """Do work for each item, several at once; the first failure ends all."""
    items = list(items)
    room = asyncio.Semaphore(REQUESTS_AT_ONCE_MAX)

    async def one(item: Item) -> T:
        async with room:
            return await work(item)

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(one(item)) for item in items]
    try:
        return list(zip(items, await asyncio.gather(*tasks), strict=True))
    finally:
        for task in tasks:
            task.cancel()


def merged(
    group: str, found: list[tuple[BrokerNode, requests.Connections | None]]
) -> GroupConnections:
    """Return one view of what each broker knows of a group's members."""
    members: dict[str, Member] = {}
    known = [(node, part) for node, part in found if part is not None]
    for node, part in known:
        for member in part.members:
            seen = members.get(member.client_id, member)
            members[member.client_id] = replace(
                seen, broker_names=(*seen.broker_names, node.broker_name)
            )
    first = known[0][1] if known else None
    subscriptions = {each.topic: each for _node, part in known for each in part.subscriptions}
    return GroupConnections(
        group=group,
        members=tuple(members.values()),
        subscriptions=tuple(subscriptions[topic] for topic in sorted(subscriptions)),
        consume_type=first.consume_type if first else "",
        message_model=first.message_model if first else "",
        consume_from_where=first.consume_from_where if first else "",
        read_at_ms=now_ms(),
    )


def added(one: Traffic, other: Traffic) -> Traffic:
    return Traffic(
        minute_tps=one.minute_tps + other.minute_tps,
        hour_sum=sum_if_known(one.hour_sum, other.hour_sum),
        day_sum=sum_if_known(one.day_sum, other.day_sum),
    )


def sum_if_known(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def reason_of(error: RemotingConnectError, address: str) -> str:
    """Return why there is no connection, without the address that the sentence around it names."""
    text = str(error).removesuffix(".")
    return text.replace(f" to {address}", "").removeprefix("no connection: ")
