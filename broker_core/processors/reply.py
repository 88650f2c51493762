"""Replies: the answer to a request message, pushed to the requesting client.

Source: broker/processor/ReplyMessageProcessor.java (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from broker_core.access.account import Permission
from broker_core.access.rules import Need
from broker_core.errors import PropertiesError, RemotingError, RequestRefusedError
from broker_core.message import names, properties
from broker_core.message.ids import host_text, offset_msg_id
from broker_core.processors.send import destination_of, producer_fields, refusal_of
from broker_core.processors.send_outcomes import WARNING_CODES
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.headers import fields
from broker_core.protocol.headers.send_message import LONG_NAMES, SHORT_NAMES, SendHeader
from broker_core.store.results import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.clients.producers import Producers
    from broker_core.clock import Clock
    from broker_core.config.broker import BrokerConfig
    from broker_core.counted_log import CountedLog
    from broker_core.processors.wrappers.guard import Gate
    from broker_core.remoting.connection import Connection
    from broker_core.sending.placement import Placement
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutMessageResult

logger = logging.getLogger(__name__)

PUSH_TIMEOUT_S = 10.0
PUSHED_MSG_ID = "0"
"""The ID of a reply that isn't stored; clients can't decode an empty one."""
REPEATED = (
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "reconsumeTimes",
    "unitMode",
)
"""The fields of the reply's header that the push repeats."""


class ReplyProcessor:
    """SEND_REPLY_MESSAGE (324), SEND_REPLY_MESSAGE_V2 (325). Event loop only."""

    def __init__(
        self,
        config: BrokerConfig,
        store_host: bytes,
        placement: Placement,
        producers: Producers,
        store: MessageStore,
        stats: BrokerStats,
        counted_log: CountedLog,
        clock: Clock,
        gate: Gate | None,
    ) -> None:
        self._config = config
        self._store_host = store_host
        self._placement = placement
        self._producers = producers
        self._store = store
        self._stats = stats
        self._counted_log = counted_log
        self._clock = clock
        self._gate = gate
        self._reply_topic = names.reply_topic(config.broker_cluster_name)

    async def send_reply_message(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """SEND_REPLY_MESSAGE. Answers as send_reply_message_v2."""
        header = {
            SHORT_NAMES[name]: value
            for name, value in request.ext_fields.items()
            if name in SHORT_NAMES
        }
        return await self._serve(request, connection, header)

    async def send_reply_message_v2(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """SEND_REPLY_MESSAGE_V2.

        Answers SUCCESS when the requesting client accepts the reply; SYSTEM_ERROR when it doesn't
        or isn't connected here; otherwise as SEND_MESSAGE_V2. With storeReplyMessageEnable the
        reply is stored in both cases. With access control any account may send to the cluster's
        reply topic, to which consumers reply without a permission; any other topic needs PUB.
        """
        return await self._serve(request, connection, request.ext_fields)

    async def _serve(
        self, request: RemotingCommand, connection: Connection, header: Mapping[str, str]
    ) -> RemotingCommand:
        try:
            return await self._reply(request, connection, header)
        except (RequestRefusedError, PropertiesError) as error:
            raise refusal_of(error).with_fields(producer_fields(self._config)) from None

    async def _reply(
        self, request: RemotingCommand, connection: Connection, header: Mapping[str, str]
    ) -> RemotingCommand:
        send_header = SendHeader.of(header)
        topic = send_header.topic
        if self._gate is not None and topic != self._reply_topic:
            need = Need(topic, Permission.PUB)
            self._gate.require(request, connection.remote_address, [need])
        queue_id = self._placement.place(destination_of(send_header, connection))
        text = header.get("i", "")
        properties.require_no_nul(text)
        table = properties.decode_client_properties(text)
        refusal = None
        try:
            await self._push(request, connection, header, table)
        except RequestRefusedError as not_pushed:
            refusal = not_pushed
        ext_fields = {}
        if refusal is None:
            ext_fields = _ids(PUSHED_MSG_ID, queue_id, 0)
        if self._config.store_reply_message_enable:
            result = self._put(request, connection, header, table, topic, queue_id)
            status = result.status
            acknowledged = self._store.acknowledge.until_acknowledged(result)
            if acknowledged is not None:
                status = await acknowledged
            await self._placement.until_topic_is_written(topic)
            if status is PutMessageStatus.PUT_OK or status in WARNING_CODES:
                msg_id = offset_msg_id(self._store_host, result.commit_log_offset)
                ext_fields = _ids(msg_id, queue_id, result.queue_offset)
            else:
                self._report("replies are not stored", f"topic={topic}", status.name)
        if refusal is not None:
            raise refusal.with_fields(ext_fields)
        ext_fields |= producer_fields(self._config)
        return request.answer(ResponseCode.SUCCESS, None, ext_fields)

    async def _push(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: Mapping[str, str],
        table: Mapping[str, str],
    ) -> None:
        """Push a reply to the requesting client.

        Raises:
            RequestRefusedError: the client isn't connected here or didn't accept the reply.
        """
        client_id = table.get(names.PROPERTY_MESSAGE_REPLY_TO_CLIENT)
        if client_id is None:
            raise _not_pushed(
                f"reply message properties[{names.PROPERTY_MESSAGE_REPLY_TO_CLIENT}] is null"
            )
        found = self._producers.find(client_id)
        if found is None:
            self._report("replies are not pushed", f"client_id={client_id}", "it is not connected")
            raise _not_pushed(f"push reply message fail, channel of <{client_id}> not found.")
        asking = cast("Connection", found)
        now_ms = str(self._clock.now_ms())
        ext_fields = {
            LONG_NAMES[letter]: value
            for letter, value in header.items()
            if LONG_NAMES.get(letter) in REPEATED
        }
        ext_fields |= {
            "properties": properties.encode({**table, names.PROPERTY_PUSH_REPLY_TIME: now_ms}),
            "bornHost": host_text(connection.remote_host),
            "storeHost": host_text(self._store_host),
            "storeTimestamp": now_ms,
        }
        push = RemotingCommand.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext_fields, request.body
        )
        try:
            answer = await asking.request(push, PUSH_TIMEOUT_S)
        except RemotingError as error:
            self._report("replies are not pushed", f"client_id={client_id}", error)
            raise _not_pushed(f"push reply message to {client_id}fail.") from error
        if answer.code != ResponseCode.SUCCESS:
            self._report("replies are refused", f"client_id={client_id}", answer.remark)
            raise _not_pushed(f"push reply message to {client_id}fail.")

    def _report(self, event: str, subject: str, reason: object) -> None:
        self._counted_log.report(logger, logging.WARNING, event, subject, "reason=%s", reason)

    def _put(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: Mapping[str, str],
        table: Mapping[str, str],
        topic: str,
        queue_id: int,
    ) -> PutMessageResult:
        result = self._store.put_message(
            topic,
            queue_id,
            request.body,
            properties.encode(table),
            tags=table.get(names.PROPERTY_TAGS),
            keys=table.get(names.PROPERTY_KEYS),
            uniq_key=table.get(names.PROPERTY_UNIQ_KEY),
            flag=fields.int32(header, "h"),
            sys_flag=fields.int32(header, "f"),
            born_timestamp=fields.int64(header, "g"),
            born_host=connection.remote_host,
            reconsume_times=fields.int32(header, "j", 0),
        )
        if result.status is PutMessageStatus.PUT_OK:
            self._stats.put(topic, 1, result.wrote_size)
        return result


def _ids(msg_id: str, queue_id: int, queue_offset: int) -> dict[str, str]:
    """Return the ID fields of a reply that was pushed, stored or both."""
    return {"msgId": msg_id, "queueId": str(queue_id), "queueOffset": str(queue_offset)}


def _not_pushed(remark: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
