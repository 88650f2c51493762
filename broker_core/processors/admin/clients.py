"""Administration of connected clients, which the broker queries over their own connections.

Source: broker/processor/AdminBrokerProcessor.java callConsumer,
broker/client/net/Broker2Client.java (4.9.7).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from broker_core.access.account import Permission
from broker_core.access.message_permissions import need_of
from broker_core.errors import RemotingError, RemotingTimeoutError, RequestRefusedError
from broker_core.formats import record
from broker_core.message import names
from broker_core.message.ids import parse_offset_msg_id
from broker_core.protocol import java_json
from broker_core.protocol.codes import (
    V3_0_7_SNAPSHOT,
    V3_1_8_SNAPSHOT,
    RequestCode,
    ResponseCode,
)
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker_core.clients.consumers import Consumers
    from broker_core.processors.wrappers.guard import Gate
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore

logger = logging.getLogger(__name__)

CALL_CLIENT_TIMEOUT_S = 10.0
STATUS_TIMEOUT_S = 5.0
STATUS_BYTES_MAX = 8 << 20
"""A topic may have 65,535 queues."""
REQUESTS_AT_ONCE = 500
"""Clients queried in one turn of the event loop."""


class ClientsAdmin:
    """GET_CONSUMER_RUNNING_INFO, CONSUME_MESSAGE_DIRECTLY, INVOKE_BROKER_TO_GET_CONSUMER_STATUS.
    Event loop only.
    """

    def __init__(
        self, broker_name: str, consumers: Consumers, store: MessageStore, gate: Gate | None
    ) -> None:
        self._broker_name = broker_name
        self._consumers = consumers
        self._store = store
        self._gate = gate

    def running_info(self, request: RemotingCommand, _: Connection) -> Awaitable[RemotingCommand]:
        """GET_CONSUMER_RUNNING_INFO. Forwards the client's answer; see `_call`."""
        asked = RemotingCommand.request(request.code, dict(request.ext_fields))
        return self._call(request, asked)

    def consume_directly(
        self, request: RemotingCommand, connection: Connection
    ) -> Awaitable[RemotingCommand]:
        """CONSUME_MESSAGE_DIRECTLY: have one client consume a stored message.

        Forwards the client's answer, see `_call`; SYSTEM_ERROR when the message doesn't exist.
        """
        header = {**request.ext_fields, "brokerName": self._broker_name}
        body = b""
        msg_id = header.get("msgId")
        if msg_id:
            found = self._record(msg_id)
            if self._gate is not None:
                need = need_of(record.decode(found), Permission.SUB)
                self._gate.require(request, connection.remote_address, [need])
            body = bytes(found)
        return self._call(request, RemotingCommand.request(request.code, header, body))

    async def consumer_status(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: a group's consumer offsets in a topic, by client.

        Answers SUCCESS with a GetConsumerStatusBody of the clients that answered; SYSTEM_ERROR when
        no client is connected, or a client is too old for the request. clientAddr is a client ID.
        """
        header = request.ext_fields
        topic, group = fields.text(header, "topic"), fields.text(header, "group")
        only = header.get("clientAddr", "").strip()
        found = self._consumers.find(group)
        if found is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{group}]",
            )
        for member in found.members.values():
            if member.version < V3_0_7_SNAPSHOT:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client does not support this feature. version={member.version}",
                )
        asked = [
            (member.client_id, cast("Connection", connection))
            for connection, member in found.members.items()
            if not only or member.client_id == only
        ]
        # Query all in parallel: one silent client would use up the tool's timeout.
        loop = asyncio.get_running_loop()
        asking = []
        one_at_a_time = asyncio.Lock()
        for client_id, connection in asked:
            status = _status_of(client_id, connection, topic, group, one_at_a_time)
            asking.append(loop.create_task(status))
            if len(asking) % REQUESTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        statuses = await asyncio.gather(*asking)
        table = {
            client_id: status
            for (client_id, _), status in zip(asked, statuses, strict=True)
            if status is not None
        }
        body = {"consumerTable": table, "messageQueueTable": {}}
        text = await asyncio.to_thread(java_json.encode, body)
        return request.answer(ResponseCode.SUCCESS, body=text)

    async def _call(self, request: RemotingCommand, asked: RemotingCommand) -> RemotingCommand:
        """Forward a request to a consumer and return its answer byte for byte.

        Answers SYSTEM_ERROR when the consumer isn't connected or is too old, CONSUME_MSG_TIMEOUT
        when it doesn't answer within 10 s.
        """
        group = fields.text(request.ext_fields, "consumerGroup")
        client_id = request.ext_fields.get("clientId", "")
        found = self._consumers.find(group)
        connection = None if found is None else found.connection_of(client_id)
        if found is None or connection is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        version = found.members[connection].version
        if version < V3_1_8_SNAPSHOT:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version}> too low to finish, please upgrade "
                "it to V3_1_8_SNAPSHOT",
            )
        try:
            answer = await cast("Connection", connection).request(asked, CALL_CLIENT_TIMEOUT_S)
        except RemotingTimeoutError as error:
            raise RequestRefusedError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: {error}",
            ) from error
        except RemotingError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{client_id}> Exception: {error}",
            ) from error
        return request.answer(answer.code, answer.remark, answer.ext_fields, answer.body)

    def _record(self, msg_id: str) -> memoryview:
        parsed = parse_offset_msg_id(msg_id)
        if parsed is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"{msg_id[:80]!r} is not an offset message id"
            )
        commit_log_offset = parsed.commit_log_offset
        found = self._store.look_message(commit_log_offset)
        if found is None or record.topic_of(found) in names.HIDDEN_TOPICS:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {commit_log_offset}",
            )
        return found


async def _status_of(
    client_id: str, connection: Connection, topic: str, group: str, one_at_a_time: asyncio.Lock
) -> dict[str, Any] | None:
    """Return a client's offsets in a topic's queues, None when it doesn't answer."""
    asked = RemotingCommand.request(
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": topic, "group": group}
    )
    try:
        answer = await connection.request(asked, STATUS_TIMEOUT_S)
        if len(answer.body) > STATUS_BYTES_MAX:
            raise ValueError(f"it has {len(answer.body)} bytes, more than {STATUS_BYTES_MAX}")
        if answer.code == ResponseCode.SUCCESS and answer.body:
            # In a thread: a client's answer may take long to parse.
            async with one_at_a_time:
                return await asyncio.to_thread(_status, answer.body)
    except (RemotingError, ValueError, AttributeError) as error:
        logger.warning("consumer status missing client_id=%s reason=%s", client_id, error)
    return None


def _status(body: bytes) -> dict[str, Any]:
    return _object_keys(java_json.decode(body).get("messageQueueTable") or {})


def _object_keys(table: dict[str, Any]) -> dict[str, Any]:
    """Return a map keyed by raw MessageQueue objects, as Java writes it."""
    return {java_json.ObjectKey(key): offset for key, offset in table.items()}
