"""Client messages: settings, heartbeats, termination and telemetry."""

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
    """A client's user agent."""

    language: Annotated[int, Field(1)] = 0
    version: Annotated[str, Field(2)] = ""
    platform: Annotated[str, Field(3)] = ""
    hostname: Annotated[str, Field(4)] = ""


class ExponentialBackoff(ProtoMessage):
    """Increasing retry delays."""

    initial: Annotated[Duration | None, Field(1)] = None
    max: Annotated[Duration | None, Field(2)] = None
    multiplier: Annotated[float, Field(3)] = 0.0


class CustomizedBackoff(ProtoMessage):
    """An explicit list of retry delays."""

    next: Annotated[list[Duration], Field(1)] = []


class RetryPolicy(ProtoMessage):
    """How often and when to retry."""

    max_attempts: Annotated[int, Field(1)] = 0
    exponential_backoff: Annotated[ExponentialBackoff | None, Field(2, oneof="strategy")] = None
    customized_backoff: Annotated[CustomizedBackoff | None, Field(3, oneof="strategy")] = None


class Publishing(ProtoMessage):
    """A producer's settings."""

    topics: Annotated[list[Resource], Field(1)] = []
    max_body_size: Annotated[int, Field(2)] = 0
    validate_message_type: Annotated[bool, Field(3)] = False


class SubscriptionEntry(ProtoMessage):
    """A topic with its filter."""

    topic: Annotated[Resource | None, Field(1)] = None
    expression: Annotated[FilterExpression | None, Field(2)] = None


class Subscription(ProtoMessage):
    """A consumer's settings."""

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
    """A client's settings, including those chosen by the server."""

    client_type: Annotated[int | None, Field(1)] = None
    access_point: Annotated[Endpoints | None, Field(2)] = None
    backoff_policy: Annotated[RetryPolicy | None, Field(3)] = None
    request_timeout: Annotated[Duration | None, Field(4)] = None
    publishing: Annotated[Publishing | None, Field(5, oneof="pub_sub")] = None
    subscription: Annotated[Subscription | None, Field(6, oneof="pub_sub")] = None
    user_agent: Annotated[UA | None, Field(7)] = None
    metric: Annotated[Metric | None, Field(8)] = None


class PrintThreadStackTraceCommand(ProtoMessage):
    """Asks a client for its thread stacks."""

    nonce: Annotated[str, Field(1)] = ""


class ReconnectEndpointsCommand(ProtoMessage):
    """Asks a client to reconnect."""

    nonce: Annotated[str, Field(1)] = ""


class ThreadStackTrace(ProtoMessage):
    """A client's thread stacks."""

    nonce: Annotated[str, Field(1)] = ""
    thread_stack_trace: Annotated[str | None, Field(2)] = None


class VerifyMessageCommand(ProtoMessage):
    """Asks a client to consume a message."""

    nonce: Annotated[str, Field(1)] = ""
    message: Annotated[Message | None, Field(2)] = None


class VerifyMessageResult(ProtoMessage):
    """The result of a VerifyMessageCommand."""

    nonce: Annotated[str, Field(1)] = ""


class RecoverOrphanedTransactionCommand(ProtoMessage):
    """Asks a producer for the state of a half message."""

    message: Annotated[Message | None, Field(1)] = None
    transaction_id: Annotated[str, Field(2)] = ""


class NotifyUnsubscribeLiteCommand(ProtoMessage):
    """Unsubscribes a client from a lite topic."""

    lite_topic: Annotated[str, Field(1)] = ""


class TelemetryCommand(ProtoMessage):
    """A message in either direction outside of calls."""

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
    """Reports that a client is alive."""

    group: Annotated[Resource | None, Field(1)] = None
    client_type: Annotated[int, Field(2)] = 0


class HeartbeatResponse(ProtoMessage):
    """The status of the heartbeat."""

    status: Annotated[Status | None, Field(1)] = None


class NotifyClientTerminationRequest(ProtoMessage):
    """Reports that a client is shutting down."""

    group: Annotated[Resource | None, Field(1)] = None


class NotifyClientTerminationResponse(ProtoMessage):
    """The status of the termination."""

    status: Annotated[Status | None, Field(1)] = None
