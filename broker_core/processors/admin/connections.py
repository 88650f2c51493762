"""Administration of connections: who consumes, who produces.

Source: broker/processor/AdminBrokerProcessor.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.protocol import java_json
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from broker_core.clients.client import ClientConnection
    from broker_core.clients.consumers import ConsumerMember, Consumers
    from broker_core.clients.producers import ProducerMember, Producers
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection


class ConnectionsAdmin:
    """GET_CONSUMER_CONNECTION_LIST, GET_PRODUCER_CONNECTION_LIST, GET_ALL_PRODUCER_INFO. Event loop
    only.
    """

    def __init__(self, consumers: Consumers, producers: Producers) -> None:
        self._consumers = consumers
        self._producers = producers

    def consumers_of(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_CONSUMER_CONNECTION_LIST. Answers SUCCESS, or CONSUMER_NOT_ONLINE."""
        group = fields.text(request.ext_fields, "consumerGroup")
        found = self._consumers.find(group)
        if found is None:
            raise RequestRefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online"
            )
        body = {
            "connectionSet": [
                _connection(connection, member) for connection, member in found.members.items()
            ],
            "consumeFromWhere": found.consume_from_where,
            "consumeType": found.consume_type,
            "messageModel": found.message_model,
            "subscriptionTable": {
                topic: msgspec.to_builtins(subscription.data)
                for topic, subscription in found.subscriptions.items()
            },
        }
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode(body))

    def producers_of(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_PRODUCER_CONNECTION_LIST. Answers SUCCESS, or SYSTEM_ERROR."""
        group = fields.text(request.ext_fields, "producerGroup")
        members = self._producers.groups.get(group)
        if not members:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist"
            )
        body = {
            "connectionSet": [
                _connection(connection, member) for connection, member in members.items()
            ]
        }
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode(body))

    def all_producers(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_ALL_PRODUCER_INFO. Answers SUCCESS with every producer group's clients."""
        data = {
            group: [
                {
                    "clientId": member.client_id,
                    "language": member.language,
                    "lastUpdateTimestamp": member.last_update_timestamp,
                    "remoteIP": f"/{connection.remote_address}",
                    "version": member.version,
                }
                for connection, member in members.items()
            ]
            for group, members in self._producers.groups.items()
        }
        return request.answer(ResponseCode.SUCCESS, body=java_json.encode({"data": data}))


def _connection(
    connection: ClientConnection, member: ConsumerMember | ProducerMember
) -> dict[str, Any]:
    return {
        "clientAddr": connection.remote_address,
        "clientId": member.client_id,
        "language": member.language,
        "version": member.version,
    }
