"""gRPC: the port for RocketMQ 5 clients, if grpcListenPort is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from broker_core.access.authorizer import Authorizer
from broker_core.composition.handler_wrappers import wrap_handlers
from broker_core.composition.lifecycle import Stage
from broker_core.config.lists import parse_addresses
from broker_core.errors import ConfigError
from broker_core.grpc_messages import codec as python_codec
from broker_core.grpc_messages.codec import Codec
from broker_core.grpc_services import service
from broker_core.grpc_services.callers import CallAccess
from broker_core.grpc_services.clients import Clients
from broker_core.grpc_services.handlers import Handlers
from broker_core.grpc_services.leases import LeaseService
from broker_core.grpc_services.receiving import ReceivingService
from broker_core.grpc_services.routes import RouteService, endpoints_of
from broker_core.grpc_services.sending import SendingService
from broker_core.grpc_services.telemetry import Telemetry
from broker_core.grpc_services.topic_types import TopicTypes
from broker_core.http2.engine import PYTHON, Engine
from broker_core.http2.limits import Http2Limits, StrangerHttp2Limits
from broker_core.http2.server import ALPN, Http2Server
from broker_core.listening.tls import TlsGate
from broker_core.native.loading import load_grpc
from broker_core.processors import registry
from broker_core.processors.wrappers.latency import time_requests
from broker_core.remoting.body_bounds import bounded
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from broker_core.composition.access import AccessParts
    from broker_core.composition.foundation import Foundation
    from broker_core.composition.requests import RequestParts
    from broker_core.composition.storage import StorageParts
    from broker_core.config.configuration import Configuration
    from broker_core.grpc_messages.shared import Endpoints
    from broker_core.grpc_services.callers import Caller
    from broker_core.grpc_services.remote_client import RemoteClient
    from broker_core.http2.call import Call
    from broker_core.remoting.connection import Connection

DELAY_MS_MAX = 86_400_000
"""How far ahead a delivery time may be, as in RocketMQ's proxy."""


def grpc_stages(
    foundation: Foundation, storage: StorageParts, access: AccessParts, requests: RequestParts
) -> list[Stage]:
    """Return the stages that serve RocketMQ 5 clients; empty without a port.

    Raises:
        ConfigError: access validators other than plain_acl would have to check signatures that they
            can't read.
    """
    configuration = foundation.configuration
    port = configuration.server.grpc_listen_port
    if not port:
        return []
    engine, codec = _engine_and_codec()
    tasks = Service()
    services, identify = _services(foundation, storage, access, requests, codec, tasks)
    clients, leases = services.clients, services.leases
    server = Http2Server(
        "gRPC port",
        service.methods(services, codec, identify),
        foundation.clock,
        limits_of(configuration, is_guarded=access.gate is not None),
        TlsGate(configuration.tls, ALPN, foundation.clock),
        proxies=foundation.proxies,
        on_connection_lost=clients.connection_lost,
        engine=engine,
        budgets=foundation.budgets,
    )

    async def start() -> None:
        await server.start(configuration.broker.bind_address, port)

    return [
        Stage(shutdown=tasks.shutdown),
        Stage(leases.start, leases.shutdown),
        Stage(start, server.shutdown),
        # Streams would last for the full time that a shutdown waits for calls.
        Stage(shutdown=clients.end_streams),
    ]


def _services(
    foundation: Foundation,
    storage: StorageParts,
    access: AccessParts,
    requests: RequestParts,
    codec: Codec,
    tasks: Service,
) -> tuple[service.Services, Callable[[Call], Caller]]:
    """Return the RPC services, and the object that identifies callers."""
    configuration, clock = foundation.configuration, foundation.clock
    broker, server = configuration.broker, configuration.server
    topics, groups = storage.topics, storage.groups
    call_access = CallAccess(_authorizer(access))
    handlers = _handlers(foundation, storage, requests)
    leases = LeaseService(broker, handlers, call_access, storage.store, storage.pop.engine, clock)

    def on_lost(client: RemoteClient) -> None:
        leases.client_lost(client)
        requests.on_client_lost(cast("Connection", client))

    clients = Clients(
        handlers,
        call_access,
        codec,
        configuration.limits,
        foundation.budgets.turns,
        clock,
        on_lost,
    )
    identify = service.identifier(clients)

    def spawn(work: Coroutine[object, object, None]) -> None:
        tasks.spawn(work, name="settings of a client")

    services = service.Services(
        clients=clients,
        telemetry=Telemetry(clients, call_access, groups, codec, identify, spawn),
        routes=RouteService(
            broker,
            foundation.role,
            topics,
            groups,
            call_access,
            endpoints_of(broker.broker_ip1, server.grpc_listen_port),
            _advertised(server.grpc_advertised_endpoint),
        ),
        sending=SendingService(
            broker,
            handlers,
            call_access,
            topics,
            TopicTypes(topics),
            storage.transactions,
            clock,
            lambda: DELAY_MS_MAX,
        ),
        receiving=ReceivingService(
            broker, handlers, call_access, clients, topics, groups, leases, codec, clock
        ),
        leases=leases,
    )
    return services, identify


def _handlers(foundation: Foundation, storage: StorageParts, requests: RequestParts) -> Handlers:
    """Return the handlers of the remoting port, without its access control."""
    stats, limits = storage.stats, foundation.configuration.limits
    table = registry.handlers(requests.processors)
    time_requests(table, stats.put_latency, stats.get_latency)
    return Handlers(
        bounded(wrap_handlers(table, foundation, None), lambda: limits.client_body_bytes_max),
        requests.on_refused,
        stats.put_latency.end_turn,
        foundation.clock,
    )


def limits_of(configuration: Configuration, *, is_guarded: bool) -> Http2Limits:
    """Return the limits for peers of the gRPC port, the same as for the remoting port."""
    server = configuration.server
    strangers = None
    if is_guarded:
        strangers = StrangerHttp2Limits(
            connections_max=server.server_stranger_connections_max,
            connections_per_host_max=server.server_stranger_connections_per_host_max,
            idle_s=min(StrangerHttp2Limits().idle_s, server.server_channel_max_idle_time_seconds),
        )
    return Http2Limits(
        connections_max=server.server_connections_max,
        connections_per_host_max=server.server_connections_per_host_max,
        idle_s=server.server_channel_max_idle_time_seconds,
        send_buffer_bytes=server.server_socket_snd_buf_size,
        receive_buffer_bytes=server.server_socket_rcv_buf_size,
        backlog=server.server_socket_backlog,
        strangers=strangers,
    )


def _engine_and_codec() -> tuple[Engine, Codec]:
    native = load_grpc()
    if native is None:
        return PYTHON, python_codec.PYTHON
    return (
        Engine(native.HeaderDecoder, native.take_frames),
        Codec(native.decode_message, native.encode_message),
    )


def _authorizer(access: AccessParts) -> Authorizer | None:
    if access.gate is None:
        return None
    if not isinstance(access.gate, Authorizer):
        raise ConfigError(
            "grpcListenPort",
            "a port",
            "0 with accessValidators other than plain_acl, which can't check the signatures of "
            "RocketMQ 5's clients",
        )
    return access.gate


def _advertised(text: str) -> Endpoints | None:
    if not text:
        return None
    (address,) = parse_addresses(text)
    host, _, port = address.rpartition(":")
    return endpoints_of(host.strip("[]"), int(port))
