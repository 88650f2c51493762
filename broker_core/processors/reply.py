"""Replies: the answer to a request message, pushed to the client that asked.

Source: broker/processor/ReplyMessageProcessor.java (4.9.7).
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, cast

from broker_core.errors import RemotingError
from broker_core.message import names, properties
from broker_core.message.ids import host_text, offset_msg_id
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.headers import fields
from broker_core.protocol.headers.send_message import LONG_NAMES, SHORT_NAMES, SendHeader
from broker_core.store.results import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.clients.producers import Producers
    from broker_core.clock import Clock
    from broker_core.config import BrokerConfig
    from broker_core.processors.send import SendProcessor
    from broker_core.remoting.connection import Connection
    from broker_core.stats.counters import BrokerStats
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutMessageResult

logger = logging.getLogger(__name__)

PUSH_TIMEOUT_S = 10.0
PUSHED_MSG_ID = "0"
"""The id of a reply that is not stored; clients cannot decode an empty one."""
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
        sends: SendProcessor,
        producers: Producers,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store_host = store_host
        self._sends = sends
        self._producers = producers
        self._store = store
        self._stats = stats
        self._clock = clock

    async def send_reply_message(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """SEND_REPLY_MESSAGE. Answers as send_reply_message_v2."""
        header = {
            SHORT_NAMES[name]: value
            for name, value in request.ext_fields.items()
            if name in SHORT_NAMES
        }
        return await self._reply(request, connection, header)

    async def send_reply_message_v2(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """SEND_REPLY_MESSAGE_V2.

        Answers SUCCESS when the asking client has taken the reply; SYSTEM_ERROR when it has not,
        or is not connected here; otherwise as SEND_MESSAGE_V2. The reply is stored in both cases.
        """
        return await self._reply(request, connection, request.ext_fields)

    async def _reply(
        self, request: RemotingCommand, connection: Connection, header: Mapping[str, str]
    ) -> RemotingCommand:
        send_header = SendHeader.of(header)
        topic, queue_id = send_header.topic, send_header.queue_id
        topic_config = self._sends.require_topic(send_header, connection)
        if queue_id < 0:
            queue_id = random.randrange(max(1, topic_config.write_queue_nums))
        table = properties.decode(header.get("i", ""))
        failure = await self._push(request, connection, header, table)
        ext_fields = {**self._sends.ext_fields, "msgId": PUSHED_MSG_ID}
        ext_fields |= {"queueId": str(queue_id), "queueOffset": "0"}
        if self._config.store_reply_message_enable:
            result = self._put(request, connection, header, table, topic, queue_id)
            status = result.status
            durable = self._store.until_durable(result)
            if durable is not None:
                status = await durable
            if status is PutMessageStatus.PUT_OK:
                ext_fields["msgId"] = offset_msg_id(self._store_host, result.commit_log_offset)
                ext_fields["queueOffset"] = str(result.queue_offset)
            else:
                logger.warning("reply is not stored: topic=%s status=%s", topic, status.name)
        code = ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR
        return request.answer(code, failure, ext_fields)

    async def _push(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: Mapping[str, str],
        table: Mapping[str, str],
    ) -> str | None:
        """Push a reply to who asked; return why that failed, if so."""
        client_id = table.get(names.PROPERTY_MESSAGE_REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{names.PROPERTY_MESSAGE_REPLY_TO_CLIENT}] is null"
        found = self._producers.find(client_id)
        if found is None:
            logger.warning("reply to a client that is not connected: client_id=%s", client_id)
            return f"push reply message fail, channel of <{client_id}> not found."
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
            logger.warning("reply is not pushed: client_id=%s reason=%s", client_id, error)
            return f"push reply message to {client_id}fail."
        if answer.code != ResponseCode.SUCCESS:
            logger.warning("reply is refused: client_id=%s remark=%s", client_id, answer.remark)
            return f"push reply message to {client_id}fail."
        return None

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
