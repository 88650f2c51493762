"""Clients: their settings, heartbeats and end, and what the server asks of them."""

from __future__ import annotations

from typing import Annotated

from broker_core.grpc_messages.codec import Field, ProtoMessage
from broker_core.grpc_messages.shared import (
    Duration,
    Endpoints,
    FilterExpression,
    Message,
    Resource,
    Status,
)


class UA(ProtoMessage):
    """The program of a client."""

    language: Annotated[int, Field(1)] = 0
    version: Annotated[str, Field(2)] = ""
    platform: Annotated[str, Field(3)] = ""
    hostname: Annotated[str, Field(4)] = ""


class ExponentialBackoff(ProtoMessage):
    """Pauses that grow."""

    initial: Annotated[Duration | None, Field(1)] = None
    max: Annotated[Duration | None, Field(2)] = None
    multiplier: Annotated[float, Field(3)] = 0.0


class CustomizedBackoff(ProtoMessage):
    """Pauses one by one."""

    next: Annotated[list[Duration], Field(1)] = []


class RetryPolicy(ProtoMessage):
    """How often and when something is tried again."""

    max_attempts: Annotated[int, Field(1)] = 0
    exponential_backoff: Annotated[ExponentialBackoff | None, Field(2, oneof="strategy")] = None
    customized_backoff: Annotated[CustomizedBackoff | None, Field(3, oneof="strategy")] = None


class Publishing(ProtoMessage):
    """The settings of a producer."""

    topics: Annotated[list[Resource], Field(1)] = []
    max_body_size: Annotated[int, Field(2)] = 0
    validate_message_type: Annotated[bool, Field(3)] = False


class SubscriptionEntry(ProtoMessage):
    """A topic with its filter."""

    topic: Annotated[Resource | None, Field(1)] = None
    expression: Annotated[FilterExpression | None, Field(2)] = None


class Subscription(ProtoMessage):
    """The settings of a consumer."""

    group: Annotated[Resource | None, Field(1)] = None
    subscriptions: Annotated[list[SubscriptionEntry], Field(2)] = []
    fifo: Annotated[bool | None, Field(3)] = None
    receive_batch_size: Annotated[int | None, Field(4)] = None
    long_polling_timeout: Annotated[Duration | None, Field(5)] = None
    lite_subscription_quota: Annotated[int | None, Field(6)] = None
    max_lite_topic_size: Annotated[int | None, Field(7)] = None


class Metric(ProtoMessage):
    """Whether a client exports its metrics."""

    on: Annotated[bool, Field(1)] = False
    endpoints: Annotated[Endpoints | None, Field(2)] = None


class Settings(ProtoMessage):
    """What a client does, and how the server wants it done."""

    client_type: Annotated[int | None, Field(1)] = None
    access_point: Annotated[Endpoints | None, Field(2)] = None
    backoff_policy: Annotated[RetryPolicy | None, Field(3)] = None
    request_timeout: Annotated[Duration | None, Field(4)] = None
    publishing: Annotated[Publishing | None, Field(5, oneof="pub_sub")] = None
    subscription: Annotated[Subscription | None, Field(6, oneof="pub_sub")] = None
    user_agent: Annotated[UA | None, Field(7)] = None
    metric: Annotated[Metric | None, Field(8)] = None


class PrintThreadStackTraceCommand(ProtoMessage):
    """Asks a client for its threads."""

    nonce: Annotated[str, Field(1)] = ""


class ReconnectEndpointsCommand(ProtoMessage):
    """Asks a client to connect anew."""

    nonce: Annotated[str, Field(1)] = ""


class ThreadStackTrace(ProtoMessage):
    """The threads of a client."""

    nonce: Annotated[str, Field(1)] = ""
    thread_stack_trace: Annotated[str | None, Field(2)] = None


class VerifyMessageCommand(ProtoMessage):
    """Asks a client to consume a message."""

    nonce: Annotated[str, Field(1)] = ""
    message: Annotated[Message | None, Field(2)] = None


class VerifyMessageResult(ProtoMessage):
    """How that went."""

    nonce: Annotated[str, Field(1)] = ""


class RecoverOrphanedTransactionCommand(ProtoMessage):
    """Asks a producer about a half message."""

    message: Annotated[Message | None, Field(1)] = None
    transaction_id: Annotated[str, Field(2)] = ""


class NotifyUnsubscribeLiteCommand(ProtoMessage):
    """Takes a lite topic away from a client."""

    lite_topic: Annotated[str, Field(1)] = ""


class TelemetryCommand(ProtoMessage):
    """What client and server tell each other beside their calls."""

    status: Annotated[Status | None, Field(1)] = None
    settings: Annotated[Settings | None, Field(2, oneof="command")] = None
    thread_stack_trace: Annotated[ThreadStackTrace | None, Field(3, oneof="command")] = None
    verify_message_result: Annotated[VerifyMessageResult | None, Field(4, oneof="command")] = None
    recover_orphaned_transaction_command: Annotated[
        RecoverOrphanedTransactionCommand | None, Field(5, oneof="command")
    ] = None
    print_thread_stack_trace_command: Annotated[
        PrintThreadStackTraceCommand | None, Field(6, oneof="command")
    ] = None
    verify_message_command: Annotated[VerifyMessageCommand | None, Field(7, oneof="command")] = None
    reconnect_endpoints_command: Annotated[
        ReconnectEndpointsCommand | None, Field(8, oneof="command")
    ] = None
    notify_unsubscribe_lite_command: Annotated[
        NotifyUnsubscribeLiteCommand | None, Field(9, oneof="command")
    ] = None


class HeartbeatRequest(ProtoMessage):
    """Says that a client lives."""

    group: Annotated[Resource | None, Field(1)] = None
    client_type: Annotated[int, Field(2)] = 0


class HeartbeatResponse(ProtoMessage):
    """How that went."""

    status: Annotated[Status | None, Field(1)] = None


class NotifyClientTerminationRequest(ProtoMessage):
    """Says that a client ends."""

    group: Annotated[Resource | None, Field(1)] = None


class NotifyClientTerminationResponse(ProtoMessage):
    """How that went."""

    status: Annotated[Status | None, Field(1)] = None
