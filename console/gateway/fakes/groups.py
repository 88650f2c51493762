"""Fake GroupGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.answers import ConsumeProgress, Group, GroupConnections, QueueProgress
from console.gateway.connections import Connected, every_group
from console.gateway.errors import RequestFailedError
from console.gateway.fakes.broker import ADDRESS, BROKER_NAME
from console.gateway.kinds import is_system_group
from console.gateway.running import RunningInfo
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.gateway.answers import GroupConfig, Member
    from console.gateway.connections import Producer
    from console.gateway.errors import GatewayError
    from console.gateway.fakes.broker import FakeBroker


class FakeGroups:
    """The groups of one broker."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def all(self) -> dict[str, Group]:
        self._broker.check()
        configs = self._broker.group_configs
        with_offsets = {group for group, _topic, _queue in self._broker.offsets}
        return {
            name: Group(
                name,
                is_system_group(name),
                {BROKER_NAME: configs[name]} if name in configs else {},
            )
            for name in sorted(configs.keys() | with_offsets)
        }

    def connections(self, group: str) -> GroupConnections:
        return self.connections_of([group])[group]

    def connections_of(self, groups: Iterable[str]) -> dict[str, GroupConnections]:
        self._broker.check()
        return {
            group: GroupConnections(
                group=group,
                members=tuple(self._broker.members.get(group, ())),
                subscriptions=tuple(self._broker.subscriptions.get(group, ())),
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                consume_from_where="CONSUME_FROM_LAST_OFFSET",
                read_at_ms=now_ms(),
            )
            for group in groups
        }

    def running(
        self, group: str, members: Iterable[Member], *, with_threads: bool = False
    ) -> dict[str, RunningInfo | GatewayError]:
        self._broker.check()
        return {
            member.client_id: self._broker.running.get(member.client_id)
            or RunningInfo(
                client_id=member.client_id,
                properties={"PROP_CONSUMEORDERLY": "false"},
                subscriptions=tuple(self._broker.subscriptions.get(group, ())),
                queues=(),
                topics=(),
                threads="TID: 1 STATE: RUNNABLE" if with_threads else "",
            )
            for member in members
        }

    def progress(self, group: str) -> ConsumeProgress:
        return self.progress_of([group])[group]

    def progress_of(self, groups: Iterable[str]) -> dict[str, ConsumeProgress]:
        self._broker.check()
        return {group: self._progress(group) for group in groups}

    def save(self, config: GroupConfig, broker_names: Iterable[str]) -> None:
        self._broker.check()
        self._broker.group_configs[config.group] = config

    def delete(self, group: str, *, remove_offset: bool) -> None:
        self._broker.check()
        self._broker.group_configs.pop(group, None)
        if remove_offset:
            for key in [key for key in self._broker.offsets if key[0] == group]:
                del self._broker.offsets[key]

    def producers(self) -> tuple[Producer, ...]:
        self._broker.check()
        return tuple(sorted(self._broker.producers, key=lambda each: (each.group, each.client_id)))

    def connected(self, group: str, client_id: str) -> tuple[Connected, ...]:
        self._broker.check()
        if self._broker.disconnect_fails is not None:
            raise self._broker.disconnect_fails
        consumed = {
            name: each.client_addr
            for name, members in self._broker.members.items()
            for each in members
            if each.client_id == client_id
        }
        produced = {
            each.group: each.client_addr
            for each in self._broker.producers
            if each.client_id == client_id
        }
        if group not in {*consumed, *produced}:
            return ()
        address = {**produced, **consumed}[group]
        return (Connected(BROKER_NAME, address, tuple(sorted(consumed)), tuple(sorted(produced))),)

    def disconnect(
        self, group: str, client_id: str, groups: Iterable[str]
    ) -> tuple[Connected, ...]:
        found = self.connected(group, client_id)
        others = sorted(set(every_group(found)) - set(groups))
        if others:
            remark = f"the client is in {len(others)} groups that the request does not name"
            raise RequestFailedError(ADDRESS, 1, remark)
        for members in self._broker.members.values():
            members[:] = [each for each in members if each.client_id != client_id]
        self._broker.producers[:] = [
            each for each in self._broker.producers if each.client_id != client_id
        ]
        return found

    def _progress(self, group: str) -> ConsumeProgress:
        topics = {topic for name, topic, _queue in self._broker.offsets if name == group} | {
            each.topic for each in self._broker.subscriptions.get(group, ())
        }
        rows = [
            QueueProgress(
                topic=topic,
                broker_name=BROKER_NAME,
                queue_id=queue_id,
                broker_offset=queue.max_offset,
                consumer_offset=self._broker.offsets.get((group, topic, queue_id)),
                last_timestamp_ms=None,
                in_flight=self._broker.in_flight.get((group, topic, queue_id), 0),
                oldest_lease_ms=now_ms() - 5_000
                if (group, topic, queue_id) in self._broker.in_flight
                else None,
            )
            for topic in sorted(topics & self._broker.topic_configs.keys())
            for queue_id, queue in self._broker.queues_of(topic).items()
        ]
        return ConsumeProgress(group, 1.5, tuple(rows), now_ms())
