"""Administration of connections: who consumes, who produces.

Source: broker/processor/AdminBrokerProcessor.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from broker_core.clients.client import ClientConnection
    from broker_core.clients.consumers import ConsumerGroup, ConsumerMember, Consumers
    from broker_core.clients.producers import ProducerMember, Producers
    from broker_core.processors.long_answers import LongAnswers, Steps
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection

    LongAnswer = RemotingCommand | Awaitable[RemotingCommand]
    Members = Iterable[tuple[ClientConnection, ConsumerMember | ProducerMember]]


class ConnectionsAdmin:
    """GET_CONSUMER_CONNECTION_LIST, GET_PRODUCER_CONNECTION_LIST, GET_ALL_PRODUCER_INFO. Event loop
    only.
    """

    def __init__(
        self, consumers: Consumers, producers: Producers, long_answers: LongAnswers
    ) -> None:
        self._consumers = consumers
        self._producers = producers
        self._long_answers = long_answers

    def consumers_of(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """GET_CONSUMER_CONNECTION_LIST. Answers SUCCESS, or CONSUMER_NOT_ONLINE."""
        group = fields.text(request.ext_fields, "consumerGroup")
        found = self._consumers.find(group)
        if found is None:
            raise RequestRefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online"
            )
        return self._long_answers.answer(request, connection, _consumers(found))

    def producers_of(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """GET_PRODUCER_CONNECTION_LIST. Answers SUCCESS, or SYSTEM_ERROR."""
        group = fields.text(request.ext_fields, "producerGroup")
        members = self._producers.groups.get(group)
        if not members:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist"
            )
        steps = _producers(list(members.items()))
        return self._long_answers.answer(request, connection, steps)

    def all_producers(self, request: RemotingCommand, connection: Connection) -> LongAnswer:
        """GET_ALL_PRODUCER_INFO. Answers SUCCESS with every producer group's clients."""
        return self._long_answers.answer(request, connection, self._all_producers())

    def _all_producers(self) -> Steps:
        data: dict[str, Any] = {}
        for group, members in sorted(self._producers.groups.items()):
            data[group] = infos = []
            for connection, member in list(members.items()):
                infos.append(
                    {
                        "clientId": member.client_id,
                        "language": member.language,
                        "lastUpdateTimestamp": member.last_update_timestamp,
                        "remoteIP": f"/{connection.remote_address}",
                        "version": member.version,
                    }
                )
                yield
        return msgspec.json.encode({"data": data})


# What follows is fastjson's text as well: the keys are in order, and all of them texts.


def _consumers(group: ConsumerGroup) -> Steps:
    subscriptions = sorted(group.subscriptions.items())
    connections = yield from _connections(list(group.members.items()))
    return msgspec.json.encode(
        {
            "connectionSet": connections,
            "consumeFromWhere": group.consume_from_where,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {topic: one.data for topic, one in subscriptions},
        }
    )


def _producers(members: Members) -> Steps:
    connections = yield from _connections(members)
    return msgspec.json.encode({"connectionSet": connections})


def _connections(members: Members) -> Steps:
    connections = []
    for connection, member in members:
        connections.append(_connection(connection, member))
        yield
    return connections


def _connection(
    connection: ClientConnection, member: ConsumerMember | ProducerMember
) -> dict[str, Any]:
    return {
        "clientAddr": connection.remote_address,
        "clientId": member.client_id,
        "language": member.language,
        "version": member.version,
    }
