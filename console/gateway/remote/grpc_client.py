"""A producer and a consumer over gRPC, as RocketMQ 5's clients: for the demo's traffic.

A client has one connection to one broker. Its Telemetry stream registers it, so the broker lists it
like any other client; calls connect again after the connection has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import itertools
import os
import platform
import secrets
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from broker_core.errors import CallRefusedError, ProtobufError, RemotingError
from broker_core.grpc_messages.clients import (
    UA,
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    Publishing,
    Settings,
    Subscription,
    SubscriptionEntry,
    TelemetryCommand,
    ThreadStackTrace,
    VerifyMessageResult,
)
from broker_core.grpc_messages.codec import ProtoMessage, decode, encode
from broker_core.grpc_messages.enums import (
    AddressScheme,
    ClientType,
    Code,
    Encoding,
    FilterType,
    Language,
    MessageType,
)
from broker_core.grpc_messages.receiving import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
)
from broker_core.grpc_messages.routing import (
    MessageQueue,
    QueryRouteRequest,
    QueryRouteResponse,
)
from broker_core.grpc_messages.sending import SendMessageRequest, SendMessageResponse
from broker_core.grpc_messages.shared import (
    Address,
    Duration,
    Endpoints,
    FilterExpression,
    Message,
    Resource,
    Status,
    SystemProperties,
)
from broker_core.grpc_messages.times import timestamp_of
from broker_core.http2.client import open_connection
from broker_core.http2.codes import GrpcStatus
from broker_core.remoting.client import split_address
from console.gateway.credentials import broker_credentials
from console.gateway.errors import (
    BrokerDownError,
    GatewayError,
    NotFoundError,
    RequestFailedError,
    UnreadableAnswerError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from broker_core.http2.client import ClientCall, ClientConnection
    from console.gateway.answers import OutgoingMessage

SERVICE = "/apache.rocketmq.v2.MessagingService/"
VERSION = "5.1.2"
"""The version in the list of clients: that of the Python client whose requests these are."""
REQUEST_S = 3.0
POLLING_S = 15
INVISIBLE_S = 60
BATCH = 32
ID_VERSION = "01"
ID_EPOCH_S = 1_609_459_200
"""2021-01-01, from which message IDs count."""

T = TypeVar("T", bound=ProtoMessage)


class Received(NamedTuple):
    """A message that a consumer holds until it acknowledges it or its time is over."""

    topic: str
    message_id: str
    handle: str
    attempt: int


class MessageIds:
    """Makes message IDs: a version, this machine, this process, the time, a counter."""

    def __init__(self) -> None:
        machine = f"{secrets.randbits(48):012X}"
        self._prefix = f"{ID_VERSION}{machine}{os.getpid() & 0xFFFF:04X}"
        self._counter = itertools.count()

    def next(self, now_ms: int) -> str:
        seconds = now_ms // 1000 - ID_EPOCH_S
        return f"{self._prefix}{seconds & 0xFFFF_FFFF:08X}{next(self._counter) & 0xFFFF_FFFF:08X}"


class GrpcClient:
    """The part that producers and consumers share. Event loop only."""

    def __init__(self, address: str, client_id: str, settings: Settings) -> None:
        self.address = address
        self.client_id = client_id
        self._settings = settings
        self._connection: ClientConnection | None = None
        self._telemetry: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._credentials = broker_credentials()

    async def start(self) -> None:
        """Connect, and register with the broker.

        Raises:
            GatewayError: the broker doesn't respond, or refuses the client.
        """
        await self._connected()

    async def has_topic(self, topic: str) -> bool:
        """Return whether the broker has a topic with queues."""
        request = QueryRouteRequest(Resource("", topic), self._endpoints)
        try:
            answer = await self._unary("QueryRoute", request, QueryRouteResponse)
        except NotFoundError:
            return False
        return bool(answer.message_queues)

    async def heartbeat(self) -> None:
        """Tell the broker that the client is alive."""
        request = HeartbeatRequest(self._registered_group, self._settings.client_type or 0)
        await self._unary("Heartbeat", request, HeartbeatResponse)

    async def close(self) -> None:
        """Unregister, if the broker responds, and close the connection."""
        connection = self._connection
        if connection is not None and connection.is_open:
            request = NotifyClientTerminationRequest(self._registered_group)
            # A broker that is gone has forgotten its clients.
            with contextlib.suppress(GatewayError):
                await self._unary(
                    "NotifyClientTermination", request, NotifyClientTerminationResponse
                )
        await self._disconnect()

    # For subclasses.

    async def _unary(self, name: str, request: ProtoMessage, answer: type[T]) -> T:
        """Return the answer to a request whose status is OK.

        Raises:
            GatewayError: there is no answer, or its status isn't OK.
        """
        connection = await self._connected()
        try:
            data = await connection.unary(
                SERVICE + name, encode(request), self._fields(), REQUEST_S
            )
            found = decode(answer, data)
        except (RemotingError, CallRefusedError, ProtobufError) as error:
            raise self._error(name, error) from error
        self._require_ok(getattr(found, "status", None))
        return found

    async def _stream(
        self, name: str, request: ProtoMessage, answer: type[T], timeout_s: float
    ) -> AsyncIterator[T]:
        """Yield the answers to a request."""
        connection = await self._connected()
        call = None
        try:
            call = connection.call(SERVICE + name, self._fields(), timeout_s)
            call.send(encode(request), ends=True)
            while (data := await call.receive()) is not None:
                yield decode(answer, data)
        except (RemotingError, CallRefusedError, ProtobufError) as error:
            raise self._error(name, error) from error
        finally:
            if call is not None:
                call.cancel()

    def _require_ok(self, status: Status | None) -> None:
        """Check a status.

        Raises:
            RequestFailedError: it isn't OK.
        """
        if status is None or status.code == Code.OK:
            return
        kind = NotFoundError if status.code == Code.TOPIC_NOT_FOUND else RequestFailedError
        raise kind(self.address, status.code, status.message)

    # Internal.

    @property
    def _registered_group(self) -> Resource | None:
        """The group of a consumer; None for a producer."""
        subscription = self._settings.subscription
        return None if subscription is None else subscription.group

    @property
    def _endpoints(self) -> Endpoints:
        host, port = split_address(self.address)
        return Endpoints(scheme_of(host), [Address(host, port)])

    async def _connected(self) -> ClientConnection:
        """Return the open connection, or connect and register."""
        async with self._connecting:
            if self._connection is not None and self._connection.is_open:
                return self._connection
            await self._disconnect()
            try:
                host, port = split_address(self.address)
                connection = await open_connection(host, port)
                try:
                    stream = connection.call(SERVICE + "Telemetry", self._fields())
                    await self._register(stream)
                except BaseException:
                    await connection.close()
                    raise
            except (RemotingError, CallRefusedError, ProtobufError, TimeoutError) as error:
                raise self._error("Telemetry", error) from error
            self._connection = connection
            self._telemetry = asyncio.create_task(self._follow(connection, stream))
            return connection

    async def _register(self, stream: ClientCall) -> None:
        """Send the settings, and wait until the broker has accepted them."""
        self._settings.access_point = self._endpoints
        stream.send(encode(TelemetryCommand(settings=self._settings)))
        async with asyncio.timeout(REQUEST_S):
            data = await stream.receive()
        if data is None:
            raise CallRefusedError(GrpcStatus.INTERNAL, "the broker ended the stream")
        self._require_ok(decode(TelemetryCommand, data).status)

    async def _follow(self, connection: ClientConnection, stream: ClientCall) -> None:
        """Answer the broker's commands; the stream's end makes the next call connect again."""
        try:
            while (data := await stream.receive()) is not None:
                answer = answer_to(decode(TelemetryCommand, data))
                if answer is not None:
                    stream.send(encode(answer))
        except (RemotingError, CallRefusedError, ProtobufError):
            pass
        await connection.close()

    async def _disconnect(self) -> None:
        telemetry, self._telemetry = self._telemetry, None
        connection, self._connection = self._connection, None
        if telemetry is not None:
            telemetry.cancel()
            await asyncio.gather(telemetry, return_exceptions=True)
        if connection is not None:
            await connection.close()

    def _fields(self) -> dict[str, str]:
        """Return the header fields of a call, signed if the console has an account."""
        date_time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        fields = {
            "x-mq-language": Language.PYTHON.name,
            "x-mq-protocol": "v2",
            "x-mq-client-version": VERSION,
            "x-mq-client-id": self.client_id,
            "x-mq-date-time": date_time,
        }
        if self._credentials is not None:
            secret = self._credentials.secret_key.encode()
            signature = hmac.new(secret, date_time.encode(), hashlib.sha1).hexdigest()
            fields["authorization"] = (
                f"MQv2-HMAC-SHA1 Credential={self._credentials.access_key}, "
                f"SignedHeaders=x-mq-date-time, Signature={signature.upper()}"
            )
        return fields

    def _error(self, name: str, error: Exception) -> GatewayError:
        """Return the gateway's error for a failed call."""
        if isinstance(error, CallRefusedError):
            return RequestFailedError(self.address, error.status, error.message)
        if isinstance(error, ProtobufError):
            return UnreadableAnswerError(self.address, name, str(error))
        return BrokerDownError(self.address, str(error) or f"no response within {REQUEST_S:g} s")


class GrpcProducer(GrpcClient):
    """Sends messages of the topics it has registered for."""

    def __init__(self, address: str, client_id: str, topics: Sequence[str]) -> None:
        publishing = Publishing([Resource("", topic) for topic in topics])
        super().__init__(
            address, client_id, settings_of(ClientType.PRODUCER, publishing=publishing)
        )
        self._ids = MessageIds()

    async def send(self, message: OutgoingMessage) -> None:
        """Send a message.

        Raises:
            GatewayError: the broker didn't accept it.
        """
        system = SystemProperties(
            tag=message.tags or None,
            keys=message.keys.split(),
            message_id=self._ids.next(message.born_ms),
            body_encoding=Encoding.IDENTITY,
            message_type=MessageType.NORMAL,
            born_timestamp=timestamp_of(message.born_ms),
            born_host=socket.gethostname(),
        )
        request = SendMessageRequest(
            [Message(Resource("", message.topic), {}, system, message.body)]
        )
        answer = await self._unary("SendMessage", request, SendMessageResponse)
        for entry in answer.entries:
            self._require_ok(entry.status)


class GrpcConsumer(GrpcClient):
    """Receives messages of whole topics, as a simple consumer of a group."""

    def __init__(self, address: str, client_id: str, group: str, topics: Sequence[str]) -> None:
        self._group = Resource("", group)
        everything = FilterExpression(FilterType.TAG, "*")
        subscription = Subscription(
            self._group, [SubscriptionEntry(Resource("", topic), everything) for topic in topics]
        )
        super().__init__(
            address, client_id, settings_of(ClientType.SIMPLE_CONSUMER, subscription=subscription)
        )

    async def receive(self, topic: str) -> list[Received]:
        """Wait a few seconds for messages of a topic and return them; the list may be empty.

        Raises:
            GatewayError: the broker doesn't respond, or refuses.
        """
        request = ReceiveMessageRequest(
            self._group,
            MessageQueue(Resource("", topic), -1),
            FilterExpression(FilterType.TAG, "*"),
            batch_size=BATCH,
            invisible_duration=Duration(INVISIBLE_S),
            long_polling_timeout=Duration(POLLING_S),
        )
        received = []
        answers = self._stream(
            "ReceiveMessage", request, ReceiveMessageResponse, POLLING_S + REQUEST_S
        )
        async for answer in answers:
            status = answer.status
            if status is not None and status.code != Code.MESSAGE_NOT_FOUND:
                self._require_ok(status)
            if answer.message is not None:
                system = answer.message.system_properties or SystemProperties()
                handle, attempt = system.receipt_handle or "", system.delivery_attempt or 1
                received.append(Received(topic, system.message_id, handle, attempt))
        return received

    async def acknowledge(self, received: Iterable[Received]) -> None:
        """Acknowledge messages of one topic.

        Raises:
            GatewayError: the broker doesn't respond, or refuses.
        """
        messages = list(received)
        if not messages:
            return
        request = AckMessageRequest(
            self._group,
            Resource("", messages[0].topic),
            [AckMessageEntry(each.message_id, each.handle) for each in messages],
        )
        await self._unary("AckMessage", request, AckMessageResponse)

    async def postpone(self, message: Received, seconds: int) -> None:
        """Have a message delivered again after some seconds.

        Raises:
            GatewayError: the broker doesn't respond, or refuses.
        """
        request = ChangeInvisibleDurationRequest(
            self._group,
            Resource("", message.topic),
            message.handle,
            Duration(seconds),
            message.message_id,
        )
        await self._unary("ChangeInvisibleDuration", request, ChangeInvisibleDurationResponse)


def settings_of(
    client_type: ClientType,
    publishing: Publishing | None = None,
    subscription: Subscription | None = None,
) -> Settings:
    """Return a client's settings."""
    return Settings(
        client_type,
        request_timeout=Duration(int(REQUEST_S)),
        publishing=publishing,
        subscription=subscription,
        user_agent=UA(Language.PYTHON, VERSION, platform.platform(), socket.gethostname()),
    )


def answer_to(command: TelemetryCommand) -> TelemetryCommand | None:
    """Return the answer to a broker's command: the demo's clients don't implement any."""
    status = Status(Code.NOT_IMPLEMENTED, "the demo's client doesn't implement this")
    if command.print_thread_stack_trace_command is not None:
        nonce = command.print_thread_stack_trace_command.nonce
        return TelemetryCommand(status, thread_stack_trace=ThreadStackTrace(nonce))
    if command.verify_message_command is not None:
        nonce = command.verify_message_command.nonce
        return TelemetryCommand(status, verify_message_result=VerifyMessageResult(nonce))
    return None


def scheme_of(host: str) -> AddressScheme:
    """Return the kind of a host in endpoints."""
    for family, scheme in (
        (socket.AF_INET, AddressScheme.IPv4),
        (socket.AF_INET6, AddressScheme.IPv6),
    ):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return scheme
    return AddressScheme.DOMAIN_NAME
