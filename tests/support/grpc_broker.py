"""A broker with a gRPC port and topics of each kind, with callers."""

from __future__ import annotations

import hashlib
import hmac
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import grpc

from broker_core.grpc_messages.clients import TelemetryCommand
from broker_core.grpc_messages.codec import PYTHON
from broker_core.grpc_messages.receiving import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
)
from broker_core.grpc_messages.routing import MessageQueue
from broker_core.grpc_messages.shared import Duration
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client
from tests.support.grpc_cases import GROUP, HEADERS, PLAIN, SERVICE, GrpcCaller
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from broker_core.broker import Broker
    from broker_core.grpc_messages.clients import Settings
    from broker_core.grpc_messages.shared import Message, Resource

    TelemetryStream: TypeAlias = grpc.aio.StreamStreamCall[TelemetryCommand, TelemetryCommand]

TOPICS = {"plain": "NORMAL", "ordered": "FIFO", "halves": "TRANSACTION", "delayed": "DELAY"}


class Served(NamedTuple):
    """A running broker with a remoting client and a gRPC caller."""

    broker: Broker
    client: Client
    caller: GrpcCaller
    address: str


@asynccontextmanager
async def serving(directory: Path, **keys: Any) -> AsyncIterator[Served]:
    """Run a broker that serves gRPC while the block runs."""
    port = free_port()
    async with running_broker(directory, grpcListenPort=port, **keys) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        caller = GrpcCaller(f"127.0.0.1:{port}")
        try:
            if not broker.access.gate:
                await create_topics(client)
            yield Served(broker, client, caller, f"127.0.0.1:{port}")
        finally:
            await caller.shutdown()
            await client.shutdown()


async def received(
    caller: GrpcCaller,
    topic: Resource = PLAIN,
    headers: Sequence[tuple[str, str]] = HEADERS,
    **more: Any,
) -> list[Message]:
    """Receive the available messages of the group `readers`, leased for a minute."""
    fields: dict[str, Any] = {
        "batch_size": 32,
        "invisible_duration": Duration(60),
        "long_polling_timeout": Duration(5),
        **more,
    }
    answers = await caller.call(
        ReceiveMessageRequest(GROUP, MessageQueue(topic), **fields), headers
    )
    messages = []
    for answer in answers:
        assert isinstance(answer, ReceiveMessageResponse)
        if answer.message is not None:
            messages.append(answer.message)
    return messages


def handle_of(message: Message) -> str:
    """Return a received message's receipt handle."""
    assert message.system_properties is not None
    assert message.system_properties.receipt_handle
    return message.system_properties.receipt_handle


async def acknowledged(
    served: Served,
    handle: str,
    topic: Resource = PLAIN,
    headers: Sequence[tuple[str, str]] = HEADERS,
) -> int:
    """Acknowledge a message; return the code of its entry."""
    (answer,) = await served.caller.call(
        AckMessageRequest(GROUP, topic, [AckMessageEntry("0100", handle)]), headers
    )
    assert isinstance(answer, AckMessageResponse)
    (entry,) = answer.entries
    assert entry.status is not None
    return entry.status.code


@asynccontextmanager
async def connected(
    served: Served, settings: Settings, headers: Sequence[tuple[str, str]] = HEADERS
) -> AsyncIterator[TelemetryStream]:
    """Keep a client's Telemetry stream open, registered by its settings, while the block runs."""
    async with grpc.aio.insecure_channel(served.address) as channel:
        stream = channel.stream_stream(
            SERVICE + "Telemetry", PYTHON.encode, lambda data: PYTHON.decode(TelemetryCommand, data)
        )(metadata=headers)
        await stream.write(TelemetryCommand(settings=settings))
        answer = await stream.read()
        assert isinstance(answer, TelemetryCommand)
        yield stream


async def create_topics(client: Client) -> None:
    """Create a topic of each kind, with four queues."""
    for topic, kind in TOPICS.items():
        answer = await client.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=topic,
            readQueueNums=4,
            writeQueueNums=4,
            perm=6,
            attributes=f"+message.type={kind}",
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark


def signed(
    access_key: str, secret_key: str, made: datetime | None = None
) -> tuple[tuple[str, str], ...]:
    """Return the headers of an account's call, signed as official clients do."""
    date_time = (made or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    digest = hmac.new(secret_key.encode(), date_time.encode(), hashlib.sha1).hexdigest()
    return (
        *HEADERS,
        ("x-mq-date-time", date_time),
        (
            "authorization",
            f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, "
            f"Signature={digest.upper()}",
        ),
    )
