"""Calls that a RocketMQ 5 endpoint rejects, with the status that both brokers answer.

`interop` tests the real broker and `integration` ours with the same table, so that they can't
drift apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import grpc

from broker_core.grpc_messages.clients import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
)
from broker_core.grpc_messages.codec import PYTHON, ProtoMessage
from broker_core.grpc_messages.enums import Code, MessageType
from broker_core.grpc_messages.receiving import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
)
from broker_core.grpc_messages.routing import (
    MessageQueue,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)
from broker_core.grpc_messages.sending import (
    EndTransactionRequest,
    EndTransactionResponse,
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
)
from broker_core.grpc_messages.shared import (
    Duration,
    Message,
    Resource,
    Status,
    SystemProperties,
)
from broker_core.grpc_messages.times import duration_of, timestamp_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVICE = "/apache.rocketmq.v2.MessagingService/"
ANSWERS: Mapping[type[ProtoMessage], tuple[str, type[ProtoMessage]]] = {
    QueryRouteRequest: ("QueryRoute", QueryRouteResponse),
    QueryAssignmentRequest: ("QueryAssignment", QueryAssignmentResponse),
    HeartbeatRequest: ("Heartbeat", HeartbeatResponse),
    NotifyClientTerminationRequest: (
        "NotifyClientTermination",
        NotifyClientTerminationResponse,
    ),
    SendMessageRequest: ("SendMessage", SendMessageResponse),
    EndTransactionRequest: ("EndTransaction", EndTransactionResponse),
    RecallMessageRequest: ("RecallMessage", RecallMessageResponse),
    AckMessageRequest: ("AckMessage", AckMessageResponse),
    ChangeInvisibleDurationRequest: ("ChangeInvisibleDuration", ChangeInvisibleDurationResponse),
    ForwardMessageToDeadLetterQueueRequest: (
        "ForwardMessageToDeadLetterQueue",
        ForwardMessageToDeadLetterQueueResponse,
    ),
    ReceiveMessageRequest: ("ReceiveMessage", ReceiveMessageResponse),
}
HEADERS = (
    ("x-mq-client-id", "tests@1@0@abc"),
    ("x-mq-language", "PYTHON"),
    ("x-mq-client-version", "5.1.2"),
)
PLAIN = Resource("", "plain")
ORDERED = Resource("", "ordered")
GROUP = Resource("", "readers")


class GrpcCaller:
    """Calls an endpoint over grpcio. Event loop only."""

    def __init__(self, address: str, headers: Sequence[tuple[str, str]] = HEADERS) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._headers = headers

    async def call(
        self,
        request: ProtoMessage,
        headers: Sequence[tuple[str, str]] | None = None,
        *,
        timeout_s: float = 30.0,
    ) -> list[ProtoMessage]:
        """Return the answers to a request: one, or those of a stream."""
        name, answer = ANSWERS[type(request)]
        metadata = self._headers if headers is None else headers

        def decoded(data: bytes) -> ProtoMessage:
            return PYTHON.decode(answer, data)

        if isinstance(request, ReceiveMessageRequest):
            stream = self._channel.unary_stream(SERVICE + name, PYTHON.encode, decoded)
            return [each async for each in stream(request, timeout=timeout_s, metadata=metadata)]
        unary = self._channel.unary_unary(SERVICE + name, PYTHON.encode, decoded)
        return [await unary(request, timeout=timeout_s, metadata=metadata)]

    async def status(self, request: ProtoMessage, **more: object) -> Status:
        """Return the status of the answer."""
        answers = await self.call(request, **more)  # type: ignore[arg-type]
        status = getattr(answers[0], "status", None)
        assert isinstance(status, Status)
        return status

    async def shutdown(self) -> None:
        await self._channel.close()


class Refused(NamedTuple):
    """A call, the code of its status, and the beginning of its message."""

    name: str
    request: ProtoMessage
    code: Code
    text: str


def message(topic: str = "plain", body: bytes = b"x", **system: object) -> Message:
    values: dict[str, object] = {"message_id": "0100", **system}
    return Message(Resource("", topic), {}, SystemProperties(**values), body)  # type: ignore[arg-type]


def _send(name: str, code: Code, text: str, *messages: Message) -> Refused:
    return Refused(name, SendMessageRequest(list(messages)), code, text)


def _with(properties: dict[str, str], **more: object) -> Message:
    one = message(**more)  # type: ignore[arg-type]
    one.user_properties = properties
    return one


def sends(now_ms: int) -> list[Refused]:
    """Return sends that both brokers reject."""
    many = {f"k{number}": "v" for number in range(129)}
    return [
        _send("no message", Code.MESSAGE_CORRUPTED, "no message to send"),
        _send("no topic", Code.ILLEGAL_TOPIC, "", message("")),
        _send("illegal topic", Code.ILLEGAL_TOPIC, "", message("a b")),
        _send("system topic", Code.ILLEGAL_TOPIC, "", message("SCHEDULE_TOPIC_XXXX")),
        _send(
            "two topics",
            Code.MESSAGE_CORRUPTED,
            "topic in message is not same",
            message(),
            message("halves"),
        ),
        _send("no body", Code.MESSAGE_BODY_EMPTY, "", message(body=b"")),
        _send("long body", Code.MESSAGE_BODY_TOO_LARGE, "", message(body=b"x" * 4_194_305)),
        _send("many properties", Code.MESSAGE_PROPERTIES_TOO_LARGE, "", _with(many)),
        _send("long properties", Code.MESSAGE_PROPERTIES_TOO_LARGE, "", _with({"k": "v" * 16_384})),
        _send("reserved", Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "", _with({"KEYS": "v"})),
        _send("control name", Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "", _with({"a\x01": "v"})),
        _send("control value", Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "", _with({"a": "v\x01"})),
        _send("blank tag", Code.ILLEGAL_MESSAGE_TAG, "", message(tag=" ")),
        _send("pipe in tag", Code.ILLEGAL_MESSAGE_TAG, "", message(tag="a|b")),
        _send("control in tag", Code.ILLEGAL_MESSAGE_TAG, "", message(tag="a\x01")),
        _send("blank key", Code.ILLEGAL_MESSAGE_KEY, "", message(keys=[" "])),
        _send("control in key", Code.ILLEGAL_MESSAGE_KEY, "", message(keys=["a\x01"])),
        _send("no message id", Code.ILLEGAL_MESSAGE_ID, "", message(message_id=" ")),
        _send(
            "long recovery",
            Code.BAD_REQUEST,
            "",
            message(
                message_type=MessageType.TRANSACTION,
                orphaned_transaction_recovery_duration=duration_of(3_601_000),
            ),
        ),
        _send(
            "late delivery",
            Code.ILLEGAL_DELIVERY_TIME,
            "",
            message(delivery_timestamp=timestamp_of(now_ms + 90_000_000)),
        ),
        _send("blank group", Code.ILLEGAL_MESSAGE_GROUP, "", message(message_group=" ")),
        _send("long group", Code.ILLEGAL_MESSAGE_GROUP, "", message(message_group="g" * 64)),
        _send("control in group", Code.ILLEGAL_MESSAGE_GROUP, "", message(message_group="g\x01")),
        _send(
            "fifo to plain",
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "TopicMessageType validate failed, the expected type is NORMAL, but actual type is "
            "FIFO",
            message(message_group="g"),
        ),
        _send(
            "missing topic",
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "TopicMessageType validate failed, the expected type is UNSPECIFIED, but actual type "
            "is NORMAL",
            message("missing"),
        ),
    ]


def others() -> list[Refused]:
    """Return other calls that both brokers reject."""
    receive = ReceiveMessageRequest(GROUP, MessageQueue(PLAIN), batch_size=1)
    return [
        Refused("route without a topic", QueryRouteRequest(), Code.ILLEGAL_TOPIC, ""),
        Refused(
            "route of a missing topic",
            QueryRouteRequest(Resource("", "missing")),
            Code.TOPIC_NOT_FOUND,
            "CODE: 17  DESC: No topic route info in name server for the topic: missing",
        ),
        Refused(
            "route of a system topic",
            QueryRouteRequest(Resource("", "rmq_sys_x")),
            Code.ILLEGAL_TOPIC,
            "",
        ),
        Refused(
            "assignment without a group",
            QueryAssignmentRequest(PLAIN),
            Code.ILLEGAL_CONSUMER_GROUP,
            "",
        ),
        Refused(
            "heartbeat without settings",
            HeartbeatRequest(),
            Code.UNRECOGNIZED_CLIENT_TYPE,
            "cannot find client settings for this client",
        ),
        Refused(
            "end of an unknown client",
            NotifyClientTerminationRequest(),
            Code.UNRECOGNIZED_CLIENT_TYPE,
            "cannot find client settings for this client",
        ),
        Refused(
            "no transaction id",
            EndTransactionRequest(PLAIN, "0100", " "),
            Code.INVALID_TRANSACTION_ID,
            "",
        ),
        Refused(
            "no acknowledgement",
            AckMessageRequest(GROUP, PLAIN),
            Code.INTERNAL_SERVER_ERROR,
            "ack message result is empty",
        ),
        Refused(
            "an expired handle",
            AckMessageRequest(GROUP, PLAIN, [AckMessageEntry("0100", EXPIRED)]),
            Code.INVALID_RECEIPT_HANDLE,
            "receipt handle is expired",
        ),
        Refused(
            "a change of an expired handle",
            ChangeInvisibleDurationRequest(GROUP, PLAIN, EXPIRED, duration_of(10_000)),
            Code.INVALID_RECEIPT_HANDLE,
            "receipt handle is expired",
        ),
        Refused(
            "a change to too long",
            ChangeInvisibleDurationRequest(GROUP, PLAIN, EXPIRED, duration_of(43_201_000)),
            Code.ILLEGAL_INVISIBLE_TIME,
            "the invisibleTime is too large. max is 43200000",
        ),
        Refused(
            "no invisible time",
            receive,
            Code.ILLEGAL_INVISIBLE_TIME,
            "the invisibleTime is too small. min is 10000",
        ),
        Refused(
            "long invisible time",
            ReceiveMessageRequest(
                GROUP, MessageQueue(PLAIN), batch_size=1, invisible_duration=Duration(43_201)
            ),
            Code.ILLEGAL_INVISIBLE_TIME,
            "the invisibleTime is too large. max is 43200000",
        ),
    ]


EXPIRED = "0 1795810414934 15000 0 0 broker-a 1 0 0"
