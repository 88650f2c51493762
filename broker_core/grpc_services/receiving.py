"""ReceiveMessage: lease messages to a consumer, immediately or when they arrive.

Source: proxy/grpc/v2/consumer/ReceiveMessageActivity.java,
ReceiveMessageResponseStreamWriter.java (5.3.3).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from broker_core.access.rules import subscribe_needs
from broker_core.errors import CallStatusError
from broker_core.formats import record
from broker_core.grpc_messages.enums import Code, FilterType
from broker_core.grpc_messages.receiving import ReceiveMessageResponse
from broker_core.grpc_messages.shared import Status
from broker_core.grpc_messages.times import milliseconds_of, timestamp_of
from broker_core.grpc_services.client_settings import LONG_POLLING_MS, RECEIVE_BATCH
from broker_core.grpc_services.clients import expression_type_of
from broker_core.grpc_services.delivered_messages import inflate, message_of, needs_inflating
from broker_core.grpc_services.leases import require_invisible
from broker_core.grpc_services.name_checks import full_name, group_of, topic_of
from broker_core.grpc_services.receipt_handles import ReceiptHandle
from broker_core.grpc_services.statuses import OK, status_of
from broker_core.message.subscription import SUB_ALL
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.receipt import ORDERED_QUEUE, Receipt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.clock import Clock
    from broker_core.config.broker import BrokerConfig
    from broker_core.grpc_messages.codec import Codec
    from broker_core.grpc_messages.receiving import ReceiveMessageRequest
    from broker_core.grpc_messages.shared import Message
    from broker_core.grpc_services.callers import CallAccess, Caller
    from broker_core.grpc_services.clients import Clients
    from broker_core.grpc_services.handlers import Handlers
    from broker_core.grpc_services.leases import LeaseService
    from broker_core.message.message import MessageExt
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.protocol.command import RemotingCommand

RENEWED_MS = 60_000
"""The invisible time of messages that the broker renews."""
INVISIBLE_MS_MIN = 10_000
POLLING_MS_MIN, POLLING_MS_MAX = 5_000, LONG_POLLING_MS
POLLING_FROM_VERSION = "5.0.3"
"""Older clients don't support ILLEGAL_POLLING_TIME."""
INFLATED_IN_LOOP_BYTES = 64 * 1024
NO_MESSAGE = Status(Code.MESSAGE_NOT_FOUND, "no new message")
NO_MATCH = Status(Code.MESSAGE_NOT_FOUND, "no match message")
FROM_END = "1"


class _ReceivedMessage(NamedTuple):
    handle: ReceiptHandle
    stored: MessageExt
    attempt: int


class ReceivingService:
    """Event loop only."""

    def __init__(
        self,
        config: BrokerConfig,
        handlers: Handlers,
        access: CallAccess,
        clients: Clients,
        topics: Topics,
        groups: SubscriptionGroups,
        leases: LeaseService,
        codec: Codec,
        clock: Clock,
    ) -> None:
        self._config = config
        self._handlers = handlers
        self._access = access
        self._clients = clients
        self._topics = topics
        self._groups = groups
        self._leases = leases
        self._codec = codec
        self._clock = clock

    async def receive(self, caller: Caller, request: ReceiveMessageRequest) -> None:
        """ReceiveMessage: send the status, each message, and the time of the delivery.

        Raises:
            CallStatusError, RequestRefusedError: nothing is sent except this status.
        """
        queue = request.message_queue
        topic_resource = None if queue is None else queue.topic
        self._access.require(
            caller, subscribe_needs([full_name(topic_resource)], full_name(request.group))
        )
        topic, group = topic_of(topic_resource), group_of(request.group)
        if self._topics.find(topic) is None:
            raise CallStatusError(Code.TOPIC_NOT_FOUND, f"the topic {topic} does not exist")
        command = self._pop(caller, request, topic, group)
        answer = await self._handlers.ask_waiting(command, caller.client)
        if answer.code != ResponseCode.SUCCESS:
            self._send_nothing(caller, answer)
            return
        received = _received(answer, self._config.broker_name)
        wanted = []
        for each in received:
            if _is_wanted(each.stored, request):
                wanted.append(each)
            else:
                # The queue was filtered by hash; this tag differs but has the same hash.
                await self._leases.acknowledge(caller, group, topic, each.handle)
        await self._deliver(caller, request, group, topic, wanted)

    def send_status(self, caller: Caller, status: Status) -> None:
        """Send a status without messages."""
        call, encode = caller.call, self._codec.encode
        call.send(encode(ReceiveMessageResponse(status=status)))

    def _pop(
        self, caller: Caller, request: ReceiveMessageRequest, topic: str, group: str
    ) -> RemotingCommand:
        group_config = self._groups.find(group)
        is_ordered = group_config is not None and group_config.is_orderly
        expression = request.filter_expression
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": "-1",
            "maxMsgNums": str(min(max(request.batch_size, 1), RECEIVE_BATCH)),
            "invisibleTime": str(_invisible_ms(request)),
            "pollTime": str(self._polling_ms(caller, request)),
            "bornTime": str(self._clock.now_ms()),
            "initMode": FROM_END,
            "expType": expression_type_of(expression),
            "exp": SUB_ALL if expression is None else expression.expression or SUB_ALL,
            "order": "true" if is_ordered else "false",
        }
        if request.attempt_id is not None:
            fields["attemptId"] = request.attempt_id
        return caller.request(RequestCode.POP_MESSAGE, fields)

    def _polling_ms(self, caller: Caller, request: ReceiveMessageRequest) -> int:
        """Return how long a call may wait.

        Raises:
            CallStatusError: its deadline is too near.
        """
        deadline = caller.call.deadline
        left_ms = None
        if deadline is not None:
            left_ms = round((deadline - self._clock.monotonic()) * 1000)
        if request.long_polling_timeout is not None:
            wanted = milliseconds_of(request.long_polling_timeout)
        else:
            settings = self._clients.settings_of(caller.client)
            timeout = None if settings is None else settings.request_timeout
            half_ms = 0 if timeout is None else milliseconds_of(timeout) // 2
            wanted = POLLING_MS_MAX if left_ms is None else left_ms - half_ms
        wanted = min(max(wanted, POLLING_MS_MIN), POLLING_MS_MAX)
        if left_ms is None or wanted <= left_ms:
            return wanted
        if left_ms >= POLLING_MS_MIN:
            return left_ms
        is_old = caller.version < POLLING_FROM_VERSION
        raise CallStatusError(
            Code.BAD_REQUEST if is_old else Code.ILLEGAL_POLLING_TIME,
            "The deadline time remaining is not enough for polling, please check network condition",
        )

    def _send_nothing(self, caller: Caller, answer: RemotingCommand) -> None:
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            status = NO_MESSAGE
        elif answer.code == ResponseCode.POLLING_FULL:
            status = Status(Code.TOO_MANY_REQUESTS, "polling full")
        else:
            status = status_of(answer.code, answer.remark)
        self.send_status(caller, status)
        self._send_time(caller)

    def _send_time(self, caller: Caller) -> None:
        now = timestamp_of(self._clock.now_ms())
        caller.call.send(self._codec.encode(ReceiveMessageResponse(delivery_timestamp=now)))

    async def _deliver(
        self,
        caller: Caller,
        request: ReceiveMessageRequest,
        group: str,
        topic: str,
        received: list[_ReceivedMessage],
    ) -> None:
        """Send messages, and return the messages that the client can no longer receive."""
        call, encode = caller.call, self._codec.encode
        if not received:
            self.send_status(caller, NO_MATCH)
            self._send_time(caller)
            return
        messages = [
            message_of(each.stored, each.handle.text(), attempt=each.attempt) for each in received
        ]
        await _inflate_for(messages, caller.language)
        if request.auto_renew and call.is_open:
            for each in received:
                self._leases.renew(caller, group, topic, each.handle, each.attempt)
        self.send_status(caller, OK)
        sent = 0
        for message in messages:
            if not await call.drained():
                break
            call.send(encode(ReceiveMessageResponse(message=message)))
            sent += 1
        if call.is_open:
            self._send_time(caller)
            return
        for each in received[sent:]:
            await self._leases.give_back(caller, group, topic, each.handle)


def _invisible_ms(request: ReceiveMessageRequest) -> int:
    if request.auto_renew:
        return RENEWED_MS
    duration = request.invisible_duration
    invisible_ms = 0 if duration is None else milliseconds_of(duration)
    return require_invisible(invisible_ms, INVISIBLE_MS_MIN)


def _is_wanted(stored: MessageExt, request: ReceiveMessageRequest) -> bool:
    """Return whether the request includes a message's tag itself, not only its hash."""
    expression = request.filter_expression
    if expression is None or expression.type == FilterType.SQL:
        return True
    text = expression.expression.strip()
    if text in ("", SUB_ALL):
        return True
    return (stored.tags or "") in {tag.strip() for tag in text.split("||")}


def _received(answer: RemotingCommand, broker_name: str) -> list[_ReceivedMessage]:
    """Return the messages of an answer with their handles, in the order of the answer's fields."""
    fields = answer.ext_fields
    pop_time_ms, invisible_ms = int(fields["popTime"]), int(fields["invisibleTime"])
    revive_queue = int(fields["reviveQid"])
    starts = _starts(fields)
    counts = _counts(fields)
    received = []
    views = iter(answer.parts or ())
    for part in fields.get("msgOffsetInfo", "").split(";"):
        kind, queue, offsets = part.split(" ")
        for offset in map(int, offsets.split(",")):
            stored = record.decode(memoryview(next(views)))
            receipt = Receipt(
                starts[kind, queue],
                pop_time_ms,
                invisible_ms,
                revive_queue,
                kind,
                broker_name,
                int(queue),
                offset,
            )
            attempt = 1 + stored.reconsume_times
            if revive_queue == ORDERED_QUEUE:
                attempt = 1 + counts.get((queue, offset), 0)
            handle = ReceiptHandle(receipt, stored.commit_log_offset)
            received.append(_ReceivedMessage(handle, stored, attempt))
    return received


def _starts(fields: Mapping[str, str]) -> dict[tuple[str, str], int]:
    starts = {}
    for part in fields.get("startOffsetInfo", "").split(";"):
        kind, queue, offset = part.split(" ")
        starts[kind, queue] = int(offset)
    return starts


def _counts(fields: Mapping[str, str]) -> dict[tuple[str, int], int]:
    """Return the number of earlier deliveries of ordered messages, by queue and offset."""
    counts = {}
    for part in fields.get("orderCountInfo", "").split(";"):
        _, _, place_and_count = part.partition(" ")
        place, _, times = place_and_count.partition(" ")
        if place.startswith("qo"):
            queue, _, offset = place[2:].partition("%")
            counts[queue, int(offset)] = int(times)
    return counts


async def _inflate_for(messages: list[Message], language: str) -> None:
    compressed = [message for message in messages if needs_inflating(message, language)]
    if sum(len(message.body) for message in compressed) <= INFLATED_IN_LOOP_BYTES:
        _inflate_all(compressed)
    else:
        await asyncio.to_thread(_inflate_all, compressed)


def _inflate_all(messages: list[Message]) -> None:
    for message in messages:
        inflate(message)
