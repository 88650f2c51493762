"""Requests: the ports that serve them, and the monitoring of their load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.clock import thread_cpu_seconds
from broker_core.composition.foundation import server_limits_of
from broker_core.composition.handler_wrappers import wrap_handlers
from broker_core.composition.native import build_plain_requests
from broker_core.composition.processors import build_processors
from broker_core.metadata.progress import Progress
from broker_core.metrics.readings import Readings, ReadParts
from broker_core.processors import registry
from broker_core.processors.refusal_trace import RefusalTrace
from broker_core.processors.wrappers.administration import (
    BROKERS_OWN,
    routes_to,
    without_administration,
)
from broker_core.processors.wrappers.latency import time_requests
from broker_core.remoting.body_bounds import bounded
from broker_core.remoting.overload import (
    HEARTBEAT_CODES,
    PULL_CODES,
    SEND_CODES,
    TRANSACTION_CODES,
    Overload,
)
from broker_core.remoting.server import RemotingServer, ServerEvents
from broker_core.stats.water_mark import WaterMark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.clock import Clock
    from broker_core.composition.access import AccessParts
    from broker_core.composition.clients import ClientParts
    from broker_core.composition.foundation import Foundation
    from broker_core.composition.naming import NamingParts
    from broker_core.composition.promotion import PromotionParts
    from broker_core.composition.storage import StorageParts
    from broker_core.config.broker import BrokerConfig
    from broker_core.listening.proxies import TrustedProxies
    from broker_core.processors.admin.ha import HaAdmin
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Handler, OnRefused


@dataclass(frozen=True, slots=True)
class RequestParts:
    """The ports, and the parts that monitor how many requests wait."""

    server: RemotingServer
    fast_server: RemotingServer
    """The VIP port: all requests except pulls."""
    admin_server: RemotingServer | None
    """The only listener for administration, if configured; it serves the other requests, too."""
    overload: Overload
    water_mark: WaterMark
    readings: Readings
    processors: registry.Processors
    on_refused: OnRefused
    on_client_lost: Callable[[Connection], None]
    fallbacks: Callable[[], dict[str, int]]
    """How many requests the compiled code left to Python, by reason."""


def build_requests(
    foundation: Foundation,
    storage: StorageParts,
    clients: ClientParts,
    access: AccessParts,
    naming: NamingParts,
    promotion: PromotionParts,
    ha: HaAdmin,
) -> RequestParts:
    """Build the processors and the servers that call them."""
    config, clock = foundation.configuration.broker, foundation.clock
    # Filled below: a request table includes the water mark, which counts connections.
    servers: list[RemotingServer] = []

    def connections() -> int:
        return sum(len(each.connections) for each in servers)

    def fallbacks() -> dict[str, int]:
        return {} if plain_requests is None else plain_requests.fallbacks

    water_mark = _water_mark(storage, ha, clock, connections, fallbacks)
    readings = _readings(foundation, storage, clients, access, water_mark, connections)
    processors = build_processors(
        foundation,
        storage,
        clients,
        access,
        naming,
        promotion,
        ha,
        lambda: water_mark.late_ms,
        readings,
        fallbacks,
    )
    plain_requests = build_plain_requests(foundation, storage, processors)
    refusals = RefusalTrace(storage.tracer, clients.consumers, clock)

    def around(handlers: dict[int, Handler]) -> dict[int, Handler]:
        time_requests(handlers, storage.stats.put_latency, storage.stats.get_latency)
        limits = foundation.configuration.limits
        return bounded(
            wrap_handlers(handlers, foundation, access.gate), lambda: limits.client_body_bytes_max
        )

    def server_of(
        name: str, handlers: dict[int, Handler], proxies: TrustedProxies | None
    ) -> RemotingServer:
        return RemotingServer(
            name,
            handlers,
            clock,
            server_limits_of(foundation.configuration, is_guarded=access.gate is not None),
            foundation.tls,
            proxies=proxies,
            events=_events(storage, clients, refusals),
            plain_requests=plain_requests,
            budgets=foundation.budgets,
        )

    table = around(registry.handlers(processors))
    fast_table = around(registry.fast_handlers(processors))
    admin_server = None
    if listener := config.admin_listen_address:
        # It is reachable only from this machine, so there is no proxy in front of it.
        admin_table = {**_moved_to_listener(listener, foundation, naming), **table}
        admin_server = server_of("administration listener", admin_table, None)
        servers.append(admin_server)
        table = without_administration(table, listener)
        fast_table = without_administration(fast_table, listener)
    server = server_of("broker", table, foundation.proxies)
    fast_server = server_of("broker's VIP port", fast_table, foundation.proxies)
    servers += [server, fast_server]
    ports = (server, fast_server, admin_server, _overload(foundation, storage, servers))
    behind = (processors, refusals.refused, _on_lost(storage, clients))
    return RequestParts(*ports, water_mark, readings, *behind, fallbacks)


def _on_lost(storage: StorageParts, clients: ClientParts) -> Callable[[Connection], None]:
    def on_connection_lost(connection: Connection) -> None:
        storage.drop_waiting(connection)
        storage.tracer.connection_lost(connection)
        clients.housekeeping.on_connection_lost(connection)

    return on_connection_lost


def _events(storage: StorageParts, clients: ClientParts, refusals: RefusalTrace) -> ServerEvents:
    return ServerEvents(
        _on_lost(storage, clients),
        storage.stats.put_latency.end_turn,
        refusals.refused,
        storage.resume_waiting,
    )


def _water_mark(
    storage: StorageParts,
    ha: HaAdmin,
    clock: Clock,
    connections: Callable[[], int],
    fallbacks: Callable[[], dict[str, int]],
) -> WaterMark:
    return WaterMark(
        clock,
        lambda: storage.store.dispatch_behind_bytes,
        ha.behind_bytes,
        lambda: {
            "parked_pulls": len(storage.parked_pulls),
            "connections": connections(),
        },
        fallbacks,
    )


def _readings(
    foundation: Foundation,
    storage: StorageParts,
    clients: ClientParts,
    access: AccessParts,
    water_mark: WaterMark,
    connections: Callable[[], int],
) -> Readings:
    parts = ReadParts(
        topics=storage.topics,
        groups=storage.groups,
        progress=Progress(storage.offsets, storage.store, foundation.clock),
        consumers=clients.consumers,
        producers=clients.producers,
        transactions=storage.transactions,
        timers=storage.timers,
        store=storage.store,
        stats=storage.stats,
    )
    return Readings(
        foundation.configuration,
        parts,
        foundation.files,
        foundation.clock,
        foundation.steady,
        lambda: water_mark.late_ms,
        connections,
        access.refused,
    )


def _overload(
    foundation: Foundation, storage: StorageParts, servers: Sequence[RemotingServer]
) -> Overload:
    config, store_config = foundation.configuration.broker, foundation.configuration.store
    return Overload(
        foundation.clock,
        servers,
        lambda: _waits(config),
        thread_cpu_seconds,
        storage.stats.put_latency.take_longest_ms,
        lambda: store_config.os_page_cache_busy_time_out_mills,
        lambda: storage.store.is_transient_store_pool_deficient,
    )


def _moved_to_listener(
    listener: str, foundation: Foundation, naming: NamingParts
) -> dict[int, Handler]:
    """Return the name server's requests for the administration listener; empty without one.

    Brokers can't register there, because the routes aren't notified when these connections end.
    """
    if naming.name_server is None:
        return {}
    handlers = naming.name_server.handlers()
    others = {code: each for code, each in handlers.items() if code not in BROKERS_OWN}
    return routes_to(listener, others, foundation.address)


def _waits(config: BrokerConfig) -> list[tuple[Sequence[int], float]]:
    """Return how long requests may wait; empty while that rule is off."""
    if not config.broker_fast_failure_enable:
        return []
    return [
        (SEND_CODES, config.wait_time_mills_in_send_queue),
        (PULL_CODES, config.wait_time_mills_in_pull_queue),
        (HEARTBEAT_CODES, config.wait_time_mills_in_heartbeat_queue),
        (TRANSACTION_CODES, config.wait_time_mills_in_transaction_queue),
    ]
