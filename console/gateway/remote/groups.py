"""GroupGateway over the remoting protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from console.gateway.answers import ConsumeProgress, Group, GroupConnections, Member, QueueProgress
from console.gateway.errors import GatewayError
from console.gateway.kinds import is_system_group
from console.gateway.remote.brokers import each
from console.gateway.requests import clients, groups as requests, offsets
from console.gateway.requests.running import running_info
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.gateway.answers import BrokerNode, GroupConfig
    from console.gateway.connections import Connected, Producer
    from console.gateway.remote.brokers import RemoteBrokers
    from console.gateway.requests.groups import Connections, ConsumeStats
    from console.gateway.running import RunningInfo


class RemoteGroups:
    """Thread-safe; calls block until the brokers answer."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        self._brokers = brokers

    def all(self) -> dict[str, Group]:
        return self._brokers.run(self._all())

    def connections(self, group: str) -> GroupConnections:
        return self.connections_of([group])[group]

    def connections_of(self, groups: Iterable[str]) -> dict[str, GroupConnections]:
        return self._brokers.run(self._connections_of(list(groups)))

    def running(
        self, group: str, members: Iterable[Member], *, with_threads: bool = False
    ) -> dict[str, RunningInfo | GatewayError]:
        return self._brokers.run(self._running(group, list(members), with_threads=with_threads))

    def progress(self, group: str) -> ConsumeProgress:
        return self.progress_of([group])[group]

    def progress_of(self, groups: Iterable[str]) -> dict[str, ConsumeProgress]:
        return self._brokers.run(self._progress_of(list(groups)))

    def save(self, config: GroupConfig, broker_names: Iterable[str]) -> None:
        self._brokers.run(
            self._brokers.on_named(
                broker_names,
                lambda node: requests.update_group(self._brokers.ask, node.address, config),
            )
        )

    def delete(self, group: str, *, remove_offset: bool) -> None:
        self._brokers.run(self._delete(group, remove_offset=remove_offset))

    def producers(self) -> tuple[Producer, ...]:
        return self._brokers.run(self._producers())

    def connected(self, group: str, client_id: str) -> tuple[Connected, ...]:
        return self._brokers.run(self._connected(group, client_id))

    def disconnect(
        self, group: str, client_id: str, groups: Iterable[str]
    ) -> tuple[Connected, ...]:
        return self._brokers.run(self._connected(group, client_id, list(groups)))

    async def _producers(self) -> tuple[Producer, ...]:
        found: dict[tuple[str, str], Producer] = {}
        answers = await self._brokers.on_masters(
            lambda node: clients.producers(self._brokers.ask, node)
        )
        for node, producers in answers:
            for one in producers:
                key = one.group, one.client_id
                seen = found.get(key)
                if seen is None:
                    found[key] = one
                elif node.broker_name not in seen.broker_names:
                    latest = max(seen.last_heartbeat_ms, one.last_heartbeat_ms)
                    names = (*seen.broker_names, node.broker_name)
                    found[key] = replace(seen, broker_names=names, last_heartbeat_ms=latest)
        return tuple(found[key] for key in sorted(found))

    async def _connected(
        self, group: str, client_id: str, closing: list[str] | None = None
    ) -> tuple[Connected, ...]:
        answers = await self._brokers.on_masters(
            lambda node: clients.connected(self._brokers.ask, node, client_id, group, closing)
        )
        return tuple(one for _node, connections in answers for one in connections)

    async def _all(self) -> dict[str, Group]:
        async def one(node: BrokerNode) -> tuple[dict[str, GroupConfig], set[str]]:
            configs = await requests.group_configs(self._brokers.ask, node.address)
            committed = await offsets.consumer_offsets(self._brokers.ask, node.address)
            return configs, set(committed)

        by_group: dict[str, dict[str, GroupConfig]] = {}
        for node, (table, with_offsets) in await self._brokers.on_masters(one):
            # A group without configuration may still have offsets.
            for name in with_offsets:
                by_group.setdefault(name, {})
            for name, config in table.items():
                by_group.setdefault(name, {})[node.broker_name] = config
        return {
            name: Group(name=name, is_system=is_system_group(name), configs=configs)
            for name, configs in sorted(by_group.items())
        }

    async def _progress_of(self, names: list[str]) -> dict[str, ConsumeProgress]:
        masters = await self._brokers.masters()
        committed = {
            node.broker_name: table
            for node, table in await each(
                masters, lambda node: offsets.consumer_offsets(self._brokers.ask, node.address)
            )
        }

        async def one(pair: tuple[str, BrokerNode]) -> ConsumeStats:
            return await requests.consume_stats(self._brokers.ask, pair[1].address, pair[0])

        rows: dict[str, list[QueueProgress]] = {group: [] for group in names}
        tps = dict.fromkeys(names, 0.0)
        pairs = [(group, node) for group in names for node in masters]
        for (group, node), stats in await each(pairs, one):
            tps[group] += stats.consume_tps
            stored = committed[node.broker_name].get(group, {})
            for queue, consumed in stats.queues.items():
                rows[group].append(
                    QueueProgress(
                        topic=queue.topic,
                        broker_name=node.broker_name,
                        queue_id=queue.queue_id,
                        broker_offset=consumed.broker_offset,
                        # The statistics report 0 for a queue without a committed offset.
                        consumer_offset=consumed.consumer_offset if queue in stored else None,
                        last_timestamp_ms=consumed.last_timestamp_ms,
                        in_flight=consumed.in_flight,
                        oldest_lease_ms=consumed.oldest_lease_ms,
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

    async def _running(
        self, group: str, members: list[Member], *, with_threads: bool
    ) -> dict[str, RunningInfo | GatewayError]:
        address = {node.broker_name: node.address for node in await self._brokers.masters()}

        async def one(member: Member) -> RunningInfo | GatewayError:
            at = next((address[name] for name in member.broker_names if name in address), None)
            if at is None:
                return GatewayError(_("This consumer isn't connected to any available broker."))
            try:
                return await running_info(
                    self._brokers.ask, at, group, member.client_id, with_threads=with_threads
                )
            except GatewayError as error:
                return error

        found = await each(members, one)
        return {member.client_id: info for member, info in found}

    async def _delete(self, group: str, *, remove_offset: bool) -> None:
        await self._brokers.on_masters(
            lambda node: requests.delete_group(
                self._brokers.ask, node.address, group, remove_offset=remove_offset
            )
        )

    async def _connections_of(self, names: list[str]) -> dict[str, GroupConnections]:
        masters = await self._brokers.masters()

        async def one(pair: tuple[str, BrokerNode]) -> Connections | None:
            return await requests.group_connections(self._brokers.ask, pair[1].address, pair[0])

        pairs = [(group, node) for group in names for node in masters]
        parts: dict[str, list[tuple[BrokerNode, Connections | None]]] = {}
        for (group, node), connections in await each(pairs, one):
            parts.setdefault(group, []).append((node, connections))
        return {group: merged(group, found) for group, found in parts.items()}


def merged(group: str, found: list[tuple[BrokerNode, Connections | None]]) -> GroupConnections:
    """Merge the brokers' views of a group's consumers."""
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
