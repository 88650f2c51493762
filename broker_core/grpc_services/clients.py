"""Clients that use RocketMQ 5's protocol, with their settings.

They are registered with the same heartbeat as remoting clients, so the console, metrics, the
transaction check and the timeout of 120 s treat both alike. A producer belongs to groups that are
named like its topics.

Source: proxy/grpc/v2/client/ClientActivity.java (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.access.rules import publish_needs, subscribe_needs
from broker_core.errors import CallStatusError
from broker_core.grpc_messages.clients import (
    HeartbeatResponse,
    NotifyClientTerminationResponse,
    Settings,
)
from broker_core.grpc_messages.enums import ClientType, Code, FilterType
from broker_core.grpc_services.name_checks import group_of, topic_of
from broker_core.grpc_services.remote_client import RemoteClient
from broker_core.grpc_services.statuses import OK
from broker_core.message.subscription import EXPRESSION_TYPE_SQL92, EXPRESSION_TYPE_TAG
from broker_core.message.versions import version_number
from broker_core.processors.wrappers.guard import ACCOUNT
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from broker_core.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.access.rules import Need
    from broker_core.clock import Clock
    from broker_core.config.limits import LimitsConfig
    from broker_core.grpc_messages.clients import (
        HeartbeatRequest,
        NotifyClientTerminationRequest,
        Subscription,
    )
    from broker_core.grpc_messages.codec import Codec
    from broker_core.grpc_messages.shared import FilterExpression
    from broker_core.grpc_services.callers import CallAccess, Caller
    from broker_core.grpc_services.handlers import Handlers
    from broker_core.http2.call import Call
    from broker_core.http2.connection import Connection
    from broker_core.listening.turns import Turns

CLIENTS = "rocketmq clients"
"""Attribute of an HTTP/2 connection that contains its clients by ID."""
CLIENTS_PER_CONNECTION_MAX = 500
"""Clients on one connection, which a library shares between the clients of a process."""
SETTINGS_BYTES_MAX = 32 * 1024 * 1024
"""Size of all clients' settings in memory."""
NO_DATA = "there is no publishing or subscription data in settings"
UNKNOWN_CLIENT = "cannot find client settings for this client"
PUSH_TYPES = frozenset({ClientType.PUSH_CONSUMER, ClientType.LITE_PUSH_CONSUMER})


class Clients:
    """The registered clients. Event loop only. `on_lost` gets each client that has left."""

    def __init__(
        self,
        handlers: Handlers,
        access: CallAccess,
        codec: Codec,
        limits: LimitsConfig,
        turns: Turns,
        clock: Clock,
        on_lost: Callable[[RemoteClient], None],
    ) -> None:
        self._handlers = handlers
        self._access = access
        self._turns = turns
        self._clock = clock
        self._on_lost = on_lost
        self._limits = limits
        self._codec = codec
        self._count = 0
        self._settings: dict[RemoteClient, bytes] = {}
        self._settings_bytes = 0
        self._by_id: dict[str, RemoteClient] = {}

    def __len__(self) -> int:
        """Return the number of registered clients."""
        return len(self._by_id)

    def of(self, call: Call, client_id: str) -> RemoteClient:
        """Return the client that makes a call.

        Raises:
            CallStatusError: there are too many clients on its connection.
        """
        connection = call.connection
        known: dict[str, RemoteClient] = connection.attributes.setdefault(CLIENTS, {})
        client = known.get(client_id)
        if client is None:
            most = CLIENTS_PER_CONNECTION_MAX if connection.is_signed_in else 1
            if len(known) >= most:
                raise CallStatusError(
                    Code.TOO_MANY_REQUESTS,
                    f"the connection has {most} clients; open another connection",
                )
            if self._count >= self._limits.member_nums_max:
                raise CallStatusError(
                    Code.TOO_MANY_REQUESTS,
                    f"the broker has {self._count} clients on its gRPC port; the limit is "
                    f"memberNumsMax={self._limits.member_nums_max}",
                )
            self._count += 1
            client = known[client_id] = RemoteClient(
                connection, client_id, self._turns, self._clock
            )
            client.on_closed = self.forget
        return client

    def settings_of(self, client: RemoteClient) -> Settings | None:
        """Return the settings that a client sent, on this or another connection."""
        known = self._by_id.get(client.client_id)
        return None if known is None else self._codec.decode(Settings, self._settings[known])

    def register(self, caller: Caller, settings: Settings) -> Awaitable[object] | None:
        """Store a client's settings; return an awaitable if there is something to wait for.

        Raises:
            CallStatusError: the settings aren't a client's.
            AccessRefusedError, RequestRefusedError: the client lacks permission, or there are too
                many clients.
        """
        body, needs = _heartbeat_of(settings, self._clock.now_ms())
        self._access.require(caller, needs)
        client = caller.client
        earlier = self._by_id.get(client.client_id)
        if earlier is not None and earlier is not client:
            # The client reconnected before the broker noticed the end of the old connection.
            self._require_same_peer(earlier, client)
            self.forget(earlier)
        client.attributes[ACCOUNT] = caller.access_key
        self._keep(client, settings)
        self._by_id[client.client_id] = client
        return self._beat(caller, client, body)

    def heartbeat(
        self, caller: Caller, request: HeartbeatRequest
    ) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
        """Heartbeat.

        Raises:
            CallStatusError: UNRECOGNIZED_CLIENT_TYPE before the client has sent its settings.
        """
        settings = self.settings_of(caller.client)
        if settings is None:
            # A caller without permission must not learn anything about the client.
            self._access.require(caller, [])
            raise CallStatusError(Code.UNRECOGNIZED_CLIENT_TYPE, UNKNOWN_CLIENT)
        body, needs = _heartbeat_of(settings, self._clock.now_ms())
        self._access.require(caller, needs)
        known = self._by_id[caller.client_id]
        self._require_same_peer(known, caller.client, caller.access_key)
        waiting = self._beat(caller, known, body)
        return HeartbeatResponse(OK) if waiting is None else _heartbeat_answer(waiting)

    def notify_termination(
        self, caller: Caller, request: NotifyClientTerminationRequest
    ) -> NotifyClientTerminationResponse:
        """NotifyClientTermination: the client is shutting down.

        Raises:
            CallStatusError: UNRECOGNIZED_CLIENT_TYPE for an unknown client.
        """
        needs: list[Need] = []
        if request.group is not None and request.group.name:
            needs = subscribe_needs([], group_of(request.group))
        self._access.require(caller, needs)
        known = self._by_id.get(caller.client_id)
        if known is None:
            raise CallStatusError(Code.UNRECOGNIZED_CLIENT_TYPE, UNKNOWN_CLIENT)
        self._require_same_peer(known, caller.client, caller.access_key)
        self.forget(known)
        return NotifyClientTerminationResponse(OK)

    def forget(self, client: RemoteClient) -> None:
        """Remove a client that has left or timed out."""
        kept = self._settings.pop(client, None)
        if kept is None:
            return
        self._settings_bytes -= len(kept)
        if self._by_id.get(client.client_id) is client:
            del self._by_id[client.client_id]
        client.end()
        client.end_stream()
        self._on_lost(client)

    def end_streams(self) -> None:
        """End the Telemetry streams of all clients, because the broker shuts down."""
        for client in list(self._settings):
            client.end_stream()

    def connection_lost(self, connection: Connection) -> None:
        """Remove the clients of a connection."""
        for client in connection.attributes.pop(CLIENTS, {}).values():
            self._count -= 1
            if client in self._settings:
                self.forget(client)
            else:
                client.end()
                self._on_lost(client)

    def _keep(self, client: RemoteClient, settings: Settings) -> None:
        """Keep the settings that heartbeats and waits need."""
        kept = self._codec.encode(
            Settings(
                settings.client_type,
                request_timeout=settings.request_timeout,
                publishing=settings.publishing,
                subscription=settings.subscription,
            )
        )
        held = self._settings_bytes - len(self._settings.get(client, b""))
        if held + len(kept) > SETTINGS_BYTES_MAX:
            raise CallStatusError(
                Code.TOO_MANY_REQUESTS, f"the settings of all clients have {held} bytes"
            )
        self._settings_bytes = held + len(kept)
        self._settings[client] = kept

    def _beat(
        self, caller: Caller, client: RemoteClient, body: dict[str, Any] | None
    ) -> Awaitable[object] | None:
        """Register or renew a client like the heartbeat of a remoting client."""
        if body is None:
            return None
        body["clientID"] = caller.client_id
        request = caller.request(RequestCode.HEART_BEAT, {}, java_json.encode(body))
        request.version = version_number(caller.version)
        answer = self._handlers.ask(request, client)
        return None if isinstance(answer, RemotingCommand) else answer

    def _require_same_peer(
        self, known: RemoteClient, client: RemoteClient, access_key: str | None = None
    ) -> None:
        """Refuse a caller with another host or account than the client's."""
        if known is client:
            return
        hosts = {each.remote_address.rpartition(":")[0] for each in (known, client)}
        account = known.attributes.get(ACCOUNT)
        if (len(hosts) > 1 and known.is_open) or (access_key and access_key != account):
            raise CallStatusError(
                Code.FORBIDDEN, f"client id {client.client_id[:64]!r} belongs to another client"
            )


async def _heartbeat_answer(waiting: Awaitable[object]) -> HeartbeatResponse:
    await waiting
    return HeartbeatResponse(OK)


def _heartbeat_of(settings: Settings, now_ms: int) -> tuple[dict[str, Any] | None, list[Need]]:
    """Return the equivalent heartbeat, or None for a client without topics, and its permissions."""
    publishing, subscription = settings.publishing, settings.subscription
    if publishing is not None:
        topics = [topic_of(each) for each in publishing.topics]
        needs = [need for topic in topics for need in publish_needs(topic)]
        body = {"producerDataSet": [{"groupName": topic} for topic in topics]}
        return body if topics else None, needs
    if subscription is not None:
        return _consumer_of(settings, subscription, now_ms)
    raise CallStatusError(Code.BAD_REQUEST, NO_DATA)


def expression_type_of(expression: FilterExpression | None) -> str:
    """Return a filter's language in the form that subscriptions use."""
    is_sql = expression is not None and expression.type == FilterType.SQL
    return EXPRESSION_TYPE_SQL92 if is_sql else EXPRESSION_TYPE_TAG


def _consumer_of(
    settings: Settings, subscription: Subscription, now_ms: int
) -> tuple[dict[str, Any], list[Need]]:
    group = group_of(subscription.group)
    subscriptions = []
    topics = []
    for entry in subscription.subscriptions:
        topic = topic_of(entry.topic)
        topics.append(topic)
        expression = entry.expression
        subscriptions.append(
            {
                "topic": topic,
                "subString": "*" if expression is None else expression.expression or "*",
                "subVersion": now_ms,
                "expressionType": expression_type_of(expression),
            }
        )
    is_pushed = settings.client_type in PUSH_TYPES
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY" if is_pushed else "CONSUME_ACTIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
    }
    return {"consumerDataSet": [consumer]}, subscribe_needs(topics, group)
