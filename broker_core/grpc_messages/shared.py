"""Messages used as parts of other messages."""

from __future__ import annotations

from typing import Annotated

from broker_core.grpc_messages.codec import Field, ProtoMessage


class Timestamp(ProtoMessage):
    """A time since the epoch, in UTC."""

    seconds: Annotated[int, Field(1, bits=64)] = 0
    nanos: Annotated[int, Field(2)] = 0


class Duration(ProtoMessage):
    """A length of time."""

    seconds: Annotated[int, Field(1, bits=64)] = 0
    nanos: Annotated[int, Field(2)] = 0


class Status(ProtoMessage):
    """The status of a call or part of a call: `Code` and a sentence."""

    code: Annotated[int, Field(1)] = 0
    message: Annotated[str, Field(2)] = ""


class Resource(ProtoMessage):
    """A topic or a group."""

    resource_namespace: Annotated[str, Field(1)] = ""
    name: Annotated[str, Field(2)] = ""


class Address(ProtoMessage):
    """A host and its port."""

    host: Annotated[str, Field(1)] = ""
    port: Annotated[int, Field(2)] = 0


class Endpoints(ProtoMessage):
    """The addresses of a broker."""

    scheme: Annotated[int, Field(1)] = 0
    addresses: Annotated[list[Address], Field(2)] = []


class FilterExpression(ProtoMessage):
    """The filter of a subscription."""

    type: Annotated[int, Field(1)] = 0
    expression: Annotated[str, Field(2)] = ""


class Digest(ProtoMessage):
    """The checksum of a body in its transmitted form."""

    type: Annotated[int, Field(1)] = 0
    checksum: Annotated[str, Field(2)] = ""


class DeadLetterQueue(ProtoMessage):
    """The origin of a dead letter."""

    topic: Annotated[str, Field(1)] = ""
    message_id: Annotated[str, Field(2)] = ""


class SystemProperties(ProtoMessage):
    """A message's properties defined by the protocol."""

    tag: Annotated[str | None, Field(1)] = None
    keys: Annotated[list[str], Field(2)] = []
    message_id: Annotated[str, Field(3)] = ""
    body_digest: Annotated[Digest | None, Field(4)] = None
    body_encoding: Annotated[int, Field(5)] = 0
    message_type: Annotated[int, Field(6)] = 0
    born_timestamp: Annotated[Timestamp | None, Field(7)] = None
    born_host: Annotated[str, Field(8)] = ""
    store_timestamp: Annotated[Timestamp | None, Field(9)] = None
    store_host: Annotated[str, Field(10)] = ""
    delivery_timestamp: Annotated[Timestamp | None, Field(11)] = None
    receipt_handle: Annotated[str | None, Field(12)] = None
    queue_id: Annotated[int, Field(13)] = 0
    queue_offset: Annotated[int | None, Field(14, bits=64)] = None
    invisible_duration: Annotated[Duration | None, Field(15)] = None
    delivery_attempt: Annotated[int | None, Field(16)] = None
    message_group: Annotated[str | None, Field(17)] = None
    trace_context: Annotated[str | None, Field(18)] = None
    orphaned_transaction_recovery_duration: Annotated[Duration | None, Field(19)] = None
    dead_letter_queue: Annotated[DeadLetterQueue | None, Field(20)] = None
    lite_topic: Annotated[str | None, Field(21)] = None
    priority: Annotated[int | None, Field(22)] = None


class Message(ProtoMessage):
    """A message."""

    topic: Annotated[Resource | None, Field(1)] = None
    user_properties: Annotated[dict[str, str], Field(2)] = {}
    system_properties: Annotated[SystemProperties | None, Field(3)] = None
    body: Annotated[bytes, Field(4)] = b""
