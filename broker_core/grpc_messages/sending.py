"""Messages for sending, recalling and ending transactions."""

from __future__ import annotations

from typing import Annotated

from broker_core.grpc_messages.codec import Field, ProtoMessage
from broker_core.grpc_messages.shared import Message, Resource, Status


class SendMessageRequest(ProtoMessage):
    """Messages of one topic."""

    messages: Annotated[list[Message], Field(1)] = []


class SendResultEntry(ProtoMessage):
    """The result for one message."""

    status: Annotated[Status | None, Field(1)] = None
    message_id: Annotated[str, Field(2)] = ""
    transaction_id: Annotated[str, Field(3)] = ""
    offset: Annotated[int, Field(4, bits=64)] = 0
    recall_handle: Annotated[str, Field(5)] = ""


class SendMessageResponse(ProtoMessage):
    """One entry for each message."""

    status: Annotated[Status | None, Field(1)] = None
    entries: Annotated[list[SendResultEntry], Field(2)] = []


class RecallMessageRequest(ProtoMessage):
    """Recalls a delayed message."""

    topic: Annotated[Resource | None, Field(1)] = None
    recall_handle: Annotated[str, Field(2)] = ""


class RecallMessageResponse(ProtoMessage):
    """The recalled message."""

    status: Annotated[Status | None, Field(1)] = None
    message_id: Annotated[str, Field(2)] = ""


class EndTransactionRequest(ProtoMessage):
    """Commits a half message or rolls it back."""

    topic: Annotated[Resource | None, Field(1)] = None
    message_id: Annotated[str, Field(2)] = ""
    transaction_id: Annotated[str, Field(3)] = ""
    resolution: Annotated[int, Field(4)] = 0
    source: Annotated[int, Field(5)] = 0
    trace_context: Annotated[str, Field(6)] = ""


class EndTransactionResponse(ProtoMessage):
    """The status of the request."""

    status: Annotated[Status | None, Field(1)] = None
