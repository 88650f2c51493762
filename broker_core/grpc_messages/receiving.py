"""Messages for receiving, acknowledging and giving up messages."""

from __future__ import annotations

from typing import Annotated

from broker_core.grpc_messages.codec import Field, ProtoMessage
from broker_core.grpc_messages.routing import MessageQueue
from broker_core.grpc_messages.shared import (
    Duration,
    FilterExpression,
    Message,
    Resource,
    Status,
    Timestamp,
)


class ReceiveMessageRequest(ProtoMessage):
    """Requests messages, and waits for them."""

    group: Annotated[Resource | None, Field(1)] = None
    message_queue: Annotated[MessageQueue | None, Field(2)] = None
    filter_expression: Annotated[FilterExpression | None, Field(3)] = None
    batch_size: Annotated[int, Field(4)] = 0
    invisible_duration: Annotated[Duration | None, Field(5)] = None
    auto_renew: Annotated[bool, Field(6)] = False
    long_polling_timeout: Annotated[Duration | None, Field(7)] = None
    attempt_id: Annotated[str | None, Field(8)] = None


class ReceiveMessageResponse(ProtoMessage):
    """A part of the stream: the status, a message, or the delivery time."""

    status: Annotated[Status | None, Field(1, oneof="content")] = None
    message: Annotated[Message | None, Field(2, oneof="content")] = None
    delivery_timestamp: Annotated[Timestamp | None, Field(3, oneof="content")] = None


class AckMessageEntry(ProtoMessage):
    """A consumed message."""

    message_id: Annotated[str, Field(1)] = ""
    receipt_handle: Annotated[str, Field(2)] = ""
    lite_topic: Annotated[str | None, Field(3)] = None


class AckMessageRequest(ProtoMessage):
    """Acknowledges messages."""

    group: Annotated[Resource | None, Field(1)] = None
    topic: Annotated[Resource | None, Field(2)] = None
    entries: Annotated[list[AckMessageEntry], Field(3)] = []


class AckMessageResultEntry(ProtoMessage):
    """The result of one acknowledgement."""

    message_id: Annotated[str, Field(1)] = ""
    receipt_handle: Annotated[str, Field(2)] = ""
    status: Annotated[Status | None, Field(3)] = None


class AckMessageResponse(ProtoMessage):
    """One entry for each acknowledgement."""

    status: Annotated[Status | None, Field(1)] = None
    entries: Annotated[list[AckMessageResultEntry], Field(2)] = []


class ChangeInvisibleDurationRequest(ProtoMessage):
    """Changes when a message is delivered again."""

    group: Annotated[Resource | None, Field(1)] = None
    topic: Annotated[Resource | None, Field(2)] = None
    receipt_handle: Annotated[str, Field(3)] = ""
    invisible_duration: Annotated[Duration | None, Field(4)] = None
    message_id: Annotated[str, Field(5)] = ""
    lite_topic: Annotated[str | None, Field(6)] = None
    suspend: Annotated[bool | None, Field(7)] = None


class ChangeInvisibleDurationResponse(ProtoMessage):
    """The new handle, which replaces the old one."""

    status: Annotated[Status | None, Field(1)] = None
    receipt_handle: Annotated[str, Field(2)] = ""


class ForwardMessageToDeadLetterQueueRequest(ProtoMessage):
    """Sends a message to the dead-letter topic."""

    group: Annotated[Resource | None, Field(1)] = None
    topic: Annotated[Resource | None, Field(2)] = None
    receipt_handle: Annotated[str, Field(3)] = ""
    message_id: Annotated[str, Field(4)] = ""
    delivery_attempt: Annotated[int, Field(5)] = 0
    max_delivery_attempts: Annotated[int, Field(6)] = 0
    lite_topic: Annotated[str | None, Field(7)] = None


class ForwardMessageToDeadLetterQueueResponse(ProtoMessage):
    """The status of the forward."""

    status: Annotated[Status | None, Field(1)] = None
