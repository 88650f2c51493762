"""SendMessage, EndTransaction and RecallMessage.

Source: proxy/grpc/v2/producer/SendMessageActivity.java, transaction/EndTransactionActivity.java
(5.3.3).
Differs: each message of a request has an entry in the answer; RocketMQ answers several messages
with one entry.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_core.access.rules import publish_needs
from broker_core.errors import (
    CallStatusError,
    PropertiesError,
    RequestRefusedError,
)
from broker_core.grpc_messages.enums import (
    Code,
    Encoding,
    MessageType,
    TransactionResolution,
)
from broker_core.grpc_messages.sending import (
    EndTransactionResponse,
    RecallMessageResponse,
    SendMessageResponse,
    SendResultEntry,
)
from broker_core.grpc_messages.shared import Status
from broker_core.grpc_messages.times import milliseconds_of
from broker_core.grpc_services.message_checks import check_batch, check_message
from broker_core.grpc_services.message_groups import queue_of_group
from broker_core.grpc_services.name_checks import full_name, topic_of
from broker_core.grpc_services.property_names import (
    BORN_HOST,
    BORN_TIMESTAMP,
    DELIVER_MS,
    SHARDING_KEY,
    TRACE_CONTEXT,
)
from broker_core.grpc_services.statuses import OK, status_of, status_of_error
from broker_core.message import names
from broker_core.message.properties import encode as encode_properties
from broker_core.message.sys_flag import (
    COMPRESSED_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand, SendCommand
from broker_core.protocol.headers.send_message import SendHeader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.clock import Clock
    from broker_core.config.broker import BrokerConfig
    from broker_core.grpc_messages.sending import (
        EndTransactionRequest,
        RecallMessageRequest,
        SendMessageRequest,
    )
    from broker_core.grpc_messages.shared import Message, SystemProperties
    from broker_core.grpc_services.callers import CallAccess, Caller
    from broker_core.grpc_services.handlers import Handlers
    from broker_core.grpc_services.topic_types import TopicTypes
    from broker_core.message.message import MessageExt
    from broker_core.metadata.topics import Topics
    from broker_core.transaction.resolve import Transactions

ANY_QUEUE = -1
STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
RESOLUTIONS = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT_TYPE,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK_TYPE,
}
TRANSACTION_ID_CHARS_MAX = 255
MESSAGES_MAX = 1_024
"""Messages in one request. Official clients send only one."""


class SendingService:
    """Event loop only. `delay_ms_max` returns how far ahead a delivery time may be."""

    def __init__(
        self,
        config: BrokerConfig,
        handlers: Handlers,
        access: CallAccess,
        topics: Topics,
        types: TopicTypes,
        transactions: Transactions,
        clock: Clock,
        delay_ms_max: Callable[[], int],
    ) -> None:
        self._config = config
        self._handlers = handlers
        self._access = access
        self._topics = topics
        self._types = types
        self._transactions = transactions
        self._clock = clock
        self._delay_ms_max = delay_ms_max

    def send(
        self, caller: Caller, request: SendMessageRequest
    ) -> SendMessageResponse | Awaitable[SendMessageResponse]:
        """SendMessage.

        Raises:
            CallStatusError, AccessRefusedError: nothing is sent.
        """
        messages = request.messages
        if not messages:
            self._access.require(caller, [])
            raise CallStatusError(Code.MESSAGE_CORRUPTED, "no message to send")
        if len(messages) > MESSAGES_MAX:
            raise CallStatusError(
                Code.BAD_REQUEST, f"the request has more than {MESSAGES_MAX} messages"
            )
        topic = full_name(messages[0].topic)
        self._access.require(caller, publish_needs(topic))
        topic = topic_of(messages[0].topic)
        check_batch(messages, topic)
        now_ms, delay_ms_max = self._clock.now_ms(), self._delay_ms_max()
        commands = [
            self._command(caller, topic, message, check_message(message, now_ms, delay_ms_max))
            for message in messages
        ]
        for message in messages:
            self._types.require(topic, _type_of(message))
        if len(messages) == 1:
            answer = self._put(caller, commands[0])
            if isinstance(answer, RemotingCommand):
                return _response([_entry(answer, messages[0])])
            return _one_later(answer, messages[0])
        return self._several(caller, commands, messages)

    def end_transaction(
        self, caller: Caller, request: EndTransactionRequest
    ) -> EndTransactionResponse | Awaitable[EndTransactionResponse]:
        """EndTransaction, by the transaction's ID as long as it is undecided.

        Raises:
            CallStatusError, AccessRefusedError, RequestRefusedError: nothing is decided.
        """
        self._access.require(caller, publish_needs(full_name(request.topic)))
        topic = topic_of(request.topic)
        transaction_id = request.transaction_id
        if not transaction_id.strip():
            raise CallStatusError(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        half = self._half(topic, transaction_id)
        resolution = RESOLUTIONS.get(request.resolution)  # type: ignore[call-overload]
        if resolution is None:
            # The outcome is unknown: the transaction stays undecided and is checked again.
            return EndTransactionResponse(OK)
        command = caller.request(
            RequestCode.END_TRANSACTION,
            {
                "producerGroup": topic,
                "tranStateTableOffset": str(half.queue_offset),
                "commitLogOffset": str(half.commit_log_offset),
                "commitOrRollback": str(resolution),
                "fromTransactionCheck": "true" if request.source == 2 else "false",
                "msgId": request.message_id,
                "transactionId": transaction_id,
            },
        )
        answer = self._handlers.ask(command, caller.client)
        if isinstance(answer, RemotingCommand):
            return EndTransactionResponse(status_of(answer.code, answer.remark))
        return _ended_later(answer)

    def recall(
        self, caller: Caller, request: RecallMessageRequest
    ) -> RecallMessageResponse | Awaitable[RecallMessageResponse]:
        """RecallMessage: cancel a message before its delivery time.

        Raises:
            CallStatusError, AccessRefusedError, RequestRefusedError: it isn't recalled.
        """
        self._access.require(caller, publish_needs(full_name(request.topic)))
        topic = topic_of(request.topic)
        self._types.require(topic, MessageType.DELAY)
        command = caller.request(
            RequestCode.RECALL_MESSAGE, {"topic": topic, "recallHandle": request.recall_handle}
        )
        answer = self._handlers.ask(command, caller.client)
        if isinstance(answer, RemotingCommand):
            return _recall_response(answer)
        return _recalled_later(answer)

    def _half(self, topic: str, transaction_id: str) -> MessageExt:
        """Return the half message of a transaction, decided or not.

        Raises:
            CallStatusError: the topic has no such half message.
        """
        if len(transaction_id) <= TRANSACTION_ID_CHARS_MAX:
            for half in reversed(self._transactions.with_key(transaction_id)):
                group = half.properties.get(names.PROPERTY_PRODUCER_GROUP)
                if half.uniq_key == transaction_id and group == topic:
                    return half
        raise CallStatusError(
            Code.INVALID_TRANSACTION_ID,
            f"the topic {topic} has no transaction {transaction_id[:64]!r}",
        )

    def _command(
        self, caller: Caller, topic: str, message: Message, system: SystemProperties
    ) -> SendCommand:
        """Return the request that sends a message."""
        table = dict(message.user_properties)
        now_ms = self._clock.now_ms()
        born_ms = (
            now_ms if system.born_timestamp is None else milliseconds_of(system.born_timestamp)
        )
        if system.tag is not None:
            table[names.PROPERTY_TAGS] = system.tag
        if system.keys:
            table[names.PROPERTY_KEYS] = names.KEY_SEPARATOR.join(system.keys)
        table[names.PROPERTY_UNIQ_KEY] = system.message_id
        sys_flag = COMPRESSED_FLAG if system.body_encoding == Encoding.GZIP else 0
        kind = _type_of(message)
        if kind is MessageType.TRANSACTION:
            sys_flag |= TRANSACTION_PREPARED_TYPE
            table[names.PROPERTY_TRANSACTION_PREPARED] = "true"
            recovery = system.orphaned_transaction_recovery_duration
            if recovery is not None and milliseconds_of(recovery) > 0:
                seconds = str(milliseconds_of(recovery) // 1000)
                table[names.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS] = seconds
        elif system.delivery_timestamp is not None:
            deliver_ms = milliseconds_of(system.delivery_timestamp)
            if deliver_ms > now_ms:
                table[DELIVER_MS] = str(deliver_ms)
        table[names.PROPERTY_RECONSUME_TIME] = str(system.delivery_attempt or 0)
        table[names.PROPERTY_PRODUCER_GROUP] = topic
        if system.message_group:
            table[SHARDING_KEY] = system.message_group
        if system.trace_context is not None:
            table[TRACE_CONTEXT] = system.trace_context
        table[BORN_HOST] = system.born_host or caller.call.connection.remote_address
        table[BORN_TIMESTAMP] = str(born_ms)
        table[names.PROPERTY_MSG_REGION] = self._config.region_id
        table[names.PROPERTY_TRACE_SWITCH] = "true" if self._config.trace_on else "false"
        try:
            properties = encode_properties(table)
        except PropertiesError as error:
            raise CallStatusError(Code.MESSAGE_CORRUPTED, str(error)) from error
        header = SendHeader(
            topic,
            self._queue(topic, system.message_group),
            sys_flag,
            born_ms,
            0,
            properties,
            0,
            producer_group=topic,
        )
        base = caller.request(RequestCode.SEND_MESSAGE_V2)
        return SendCommand(
            base.code,
            0,
            0,
            base.version,
            base.language,
            None,
            header,
            message.body,
        )

    def _queue(self, topic: str, group: str | None) -> int:
        found = self._topics.find(topic)
        if not group or found is None or found.write_queue_nums < 1:
            return ANY_QUEUE
        return queue_of_group(group, found.write_queue_nums)

    def _put(
        self, caller: Caller, command: SendCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        return self._handlers.ask(command, caller.client)

    async def _several(
        self, caller: Caller, commands: list[SendCommand], messages: list[Message]
    ) -> SendMessageResponse:
        """Put several messages one after another, then wait for all of them."""
        answers: list[RemotingCommand | Awaitable[RemotingCommand] | RequestRefusedError] = []
        for command in commands:
            try:
                answers.append(self._put(caller, command))
            except RequestRefusedError as refusal:
                answers.append(refusal)
        entries = []
        for answer, message in zip(answers, messages, strict=True):
            try:
                if isinstance(answer, RequestRefusedError):
                    raise answer
                done = answer if isinstance(answer, RemotingCommand) else await answer
            except RequestRefusedError as refusal:
                entries.append(SendResultEntry(status_of_error(refusal)))
            else:
                entries.append(_entry(done, message))
            await asyncio.sleep(0)
        return _response(entries)


def _type_of(message: Message) -> MessageType:
    """Return the type that a message's properties indicate, ignoring its message_type."""
    system = message.system_properties
    if system is None:
        return MessageType.NORMAL
    if system.message_type == MessageType.TRANSACTION:
        return MessageType.TRANSACTION
    if system.delivery_timestamp is not None:
        return MessageType.DELAY
    return MessageType.FIFO if system.message_group else MessageType.NORMAL


def _entry(answer: RemotingCommand, message: Message) -> SendResultEntry:
    status = status_of(answer.code, answer.remark)
    if answer.code not in STORED:
        return SendResultEntry(status)
    system = message.system_properties
    assert system is not None
    fields = answer.ext_fields
    return SendResultEntry(
        status,
        system.message_id,
        system.message_id,
        int(fields["queueOffset"]),
        fields.get("recallHandle", ""),
    )


def _response(entries: list[SendResultEntry]) -> SendMessageResponse:
    first = entries[0].status
    assert first is not None
    if all(entry.status is not None and entry.status.code == first.code for entry in entries):
        return SendMessageResponse(first, entries)
    return SendMessageResponse(
        Status(Code.MULTIPLE_RESULTS, "send message with multiple results"), entries
    )


async def _one_later(answer: Awaitable[RemotingCommand], message: Message) -> SendMessageResponse:
    return _response([_entry(await answer, message)])


async def _ended_later(answer: Awaitable[RemotingCommand]) -> EndTransactionResponse:
    done = await answer
    return EndTransactionResponse(status_of(done.code, done.remark))


def _recall_response(answer: RemotingCommand) -> RecallMessageResponse:
    return RecallMessageResponse(
        status_of(answer.code, answer.remark), answer.ext_fields.get("msgId", "")
    )


async def _recalled_later(answer: Awaitable[RemotingCommand]) -> RecallMessageResponse:
    return _recall_response(await answer)
