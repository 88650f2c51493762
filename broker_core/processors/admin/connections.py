"""Administration of connections: list consumers and producers, disconnect a client.

Source: broker/processor/AdminBrokerProcessor.java (4.9.7). DISCONNECT_CLIENT exists only in
Trebuchet.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.protocol import java_json
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields
from broker_core.protocol.signature import ACCESS_KEY

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


logger = logging.getLogger(__name__)


class _Groups(msgspec.Struct):
    groups: list[str]


class ConnectionsAdmin:
    """GET_CONSUMER_CONNECTION_LIST, GET_PRODUCER_CONNECTION_LIST, GET_ALL_PRODUCER_INFO,
    DISCONNECT_CLIENT (Trebuchet only). Event loop only.
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

    def disconnect(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """DISCONNECT_CLIENT: list a client's connections or, with a body, close them.

        Fields: clientId, and a group that it consumes or produces in. The body, {"groups": [...]},
        names all groups that the client may be in, so that permission for one group isn't enough to
        disconnect it from another. Answers SUCCESS with the connections, possibly empty;
        SYSTEM_ERROR if the client is in an unnamed group or is the caller. Clients can reconnect
        and do so automatically.
        """
        header = request.ext_fields
        client_id, group = fields.text(header, "clientId"), fields.text(header, "group")
        found = self._connections_of(client_id, group)
        groups = {
            each: (self._consumers.groups_of(each), self._producers.groups_of(each))
            for each in found
        }
        if found and request.body:
            if connection in groups:
                raise _refusal("a client can't close its own connection")
            allowed = _named_groups(request.body)
            others = {name for pair in groups.values() for names in pair for name in names}
            if others := others - allowed:
                raise _refusal(
                    f"the client is in {len(others)} groups that the request does not name: "
                    f"{', '.join(sorted(others)[:3])}"
                )
            for each in found:
                _close(cast("Connection", each))
            logger.warning(
                "client disconnected by request client_id=%s group=%s connections=%d access_key=%s "
                "peer=%s",
                client_id,
                group,
                len(found),
                header.get(ACCESS_KEY),
                connection.remote_address,
            )
        rows = [
            {
                "clientAddr": each.remote_address,
                "consumerGroups": sorted(consumed),
                "producerGroups": sorted(produced),
            }
            for each, (consumed, produced) in groups.items()
        ]
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode({"connections": rows}))

    def _connections_of(self, client_id: str, group: str) -> list[ClientConnection]:
        """Return a client's connections in a group, in any role."""
        consumed = self._consumers.find(group)
        members: dict[ClientConnection, ConsumerMember | ProducerMember] = {
            **({} if consumed is None else consumed.members),
            **self._producers.groups.get(group, {}),
        }
        return [each for each, member in members.items() if member.client_id == client_id]

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


def _refusal(remark: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)


def _named_groups(body: bytes) -> set[str]:
    try:
        return set(java_json.decode_request(body, _Groups).groups)
    except ValueError as error:
        raise _refusal(f"the body does not name groups: {error}") from error


def _close(connection: Connection) -> None:
    # A peer that doesn't read would keep the connection closing forever.
    if connection.is_writable:
        connection.close()
    else:
        connection.abort()


# The JSON below is byte-identical to fastjson's: the keys are sorted and all are strings.


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
