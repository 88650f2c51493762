"""Messages for the location of a topic's queues and their assignment to consumers."""

from __future__ import annotations

from typing import Annotated

from broker_core.grpc_messages.codec import Field, ProtoMessage
from broker_core.grpc_messages.shared import Endpoints, Resource, Status


class Broker(ProtoMessage):
    """The broker of a queue."""

    name: Annotated[str, Field(1)] = ""
    id: Annotated[int, Field(2)] = 0
    endpoints: Annotated[Endpoints | None, Field(3)] = None


class MessageQueue(ProtoMessage):
    """A queue of a topic."""

    topic: Annotated[Resource | None, Field(1)] = None
    id: Annotated[int, Field(2)] = 0
    permission: Annotated[int, Field(3)] = 0
    broker: Annotated[Broker | None, Field(4)] = None
    accept_message_types: Annotated[list[int], Field(5)] = []


class Assignment(ProtoMessage):
    """A queue assigned to a consumer."""

    message_queue: Annotated[MessageQueue | None, Field(1)] = None


class QueryRouteRequest(ProtoMessage):
    """Requests the queues of a topic."""

    topic: Annotated[Resource | None, Field(1)] = None
    endpoints: Annotated[Endpoints | None, Field(2)] = None


class QueryRouteResponse(ProtoMessage):
    """The queues of a topic."""

    status: Annotated[Status | None, Field(1)] = None
    message_queues: Annotated[list[MessageQueue], Field(2)] = []


class QueryAssignmentRequest(ProtoMessage):
    """Requests the queues assigned to a consumer."""

    topic: Annotated[Resource | None, Field(1)] = None
    group: Annotated[Resource | None, Field(2)] = None
    endpoints: Annotated[Endpoints | None, Field(3)] = None


class QueryAssignmentResponse(ProtoMessage):
    """The queues assigned to a consumer."""

    status: Annotated[Status | None, Field(1)] = None
    assignments: Annotated[list[Assignment], Field(2)] = []
