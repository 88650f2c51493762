"""Where the queues of a topic are, and who reads them."""

from __future__ import annotations

from typing import Annotated

from broker_core.grpc_messages.codec import Field, ProtoMessage
from broker_core.grpc_messages.shared import Endpoints, Resource, Status


class Broker(ProtoMessage):
    """A broker of a queue."""

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
    """A queue that a consumer reads."""

    message_queue: Annotated[MessageQueue | None, Field(1)] = None


class QueryRouteRequest(ProtoMessage):
    """Asks for the queues of a topic."""

    topic: Annotated[Resource | None, Field(1)] = None
    endpoints: Annotated[Endpoints | None, Field(2)] = None


class QueryRouteResponse(ProtoMessage):
    """The queues of a topic."""

    status: Annotated[Status | None, Field(1)] = None
    message_queues: Annotated[list[MessageQueue], Field(2)] = []


class QueryAssignmentRequest(ProtoMessage):
    """Asks which queues a consumer reads."""

    topic: Annotated[Resource | None, Field(1)] = None
    group: Annotated[Resource | None, Field(2)] = None
    endpoints: Annotated[Endpoints | None, Field(3)] = None


class QueryAssignmentResponse(ProtoMessage):
    """The queues that a consumer reads."""

    status: Annotated[Status | None, Field(1)] = None
    assignments: Annotated[list[Assignment], Field(2)] = []
