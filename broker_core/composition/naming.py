"""Naming: the embedded name server, and the broker's registration with name servers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.composition.foundation import client_limits_of, limits_of
from broker_core.composition.live_update import keep
from broker_core.config.lists import parse_addresses
from broker_core.listening.tls import client_context
from broker_core.namesrv.address_server import AddressServer
from broker_core.namesrv.identity import BrokerIdentity
from broker_core.namesrv.namesrv import Entrance, NameServer
from broker_core.namesrv.registration import BrokerRegistration, RegistrationTerms
from broker_core.processors.wrappers.administration import without_administration
from broker_core.processors.wrappers.guard import guard_by_rule
from broker_core.protocol.codes import RequestCode
from broker_core.protocol.fresh_signature import FreshSigner
from broker_core.protocol.signature import Credentials
from broker_core.remoting.client import RemotingClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.composition.foundation import Foundation
    from broker_core.metadata.topics import Topics
    from broker_core.processors.wrappers.guard import Gate
    from broker_core.protocol.command import RemotingCommand
    from broker_core.protocol.signature import RequestSigner
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Handler

KV_CONFIG_FILE = "kvConfig.json"


@dataclass(frozen=True, slots=True)
class NamingParts:
    """The parts that make the broker discoverable."""

    name_server: NameServer | None
    """The embedded name server."""
    registration: BrokerRegistration
    address_server: AddressServer | None


def build_naming(
    foundation: Foundation,
    topics: Topics,
    gate: Gate | None,
    epoch: Callable[[], int],
    on_outranked: Callable[[int, str], None],
) -> NamingParts:
    """Build the registration; the gate decides who can change the embedded name server.

    `epoch` returns the epoch in which this broker registers; `on_outranked` is called with the
    later epoch of another master, and the name server that reports it.

    Raises:
        ConfigError: a certificate for connections to name servers can't be used.
    """
    config = foundation.configuration.broker
    name_server = _name_server(foundation, gate) if config.embedded_namesrv else None
    registration = _registration(foundation, topics, name_server, epoch, on_outranked)
    # Set only now, because the registration and the topics need each other.
    topics.on_change = registration.topic_changed
    address_server = None
    if config.fetch_namesrv_addr_by_address_server:
        address_server = AddressServer(
            config.namesrv_address_server, foundation.clock, registration.set_name_servers
        )
    return NamingParts(name_server, registration, address_server)


def announcement(foundation: Foundation, naming: NamingParts) -> str:
    """Return the sentence for a successful start, in RocketMQ's words."""
    config = foundation.configuration.broker
    name_servers = parse_addresses(config.namesrv_addr)
    if naming.name_server is not None:
        name_servers.insert(0, f"{config.broker_ip1}:{naming.name_server.port}")
    return (
        f"The broker[{config.broker_name}, {foundation.address}] boot success. "
        f"serializeType=JSON and name server is {';'.join(name_servers)}"
    )


def _name_server(foundation: Foundation, gate: Gate | None) -> NameServer:
    configuration = foundation.configuration
    config = configuration.broker
    path = Path(config.kv_config_path or foundation.config_directory / KV_CONFIG_FILE)
    name_server = NameServer(
        config.bind_address,
        config.namesrv_listen_port,
        foundation.clock,
        foundation.files,
        path,
        entrance=Entrance(
            limits_of(configuration),
            foundation.tls,
            foundation.proxies,
            None if gate is None else partial(guard_by_rule, authorizer=gate),
            foundation.budgets,
        ),
        config=configuration.namesrv,
        keep=lambda changed: keep(foundation.files, configuration.path, changed),
    )
    if listener := config.admin_listen_address:
        name_server.override(without_administration(name_server.handlers(), listener))
    return name_server


def _registration(
    foundation: Foundation,
    topics: Topics,
    name_server: NameServer | None,
    epoch: Callable[[], int],
    on_outranked: Callable[[int, str], None],
) -> BrokerRegistration:
    config = foundation.configuration.broker
    ha_port = foundation.configuration.ha.ha_listen_port
    identity = BrokerIdentity(
        cluster_name=config.broker_cluster_name,
        broker_name=config.broker_name,
        broker_id=config.broker_id,
        broker_addr=foundation.address,
        ha_server_addr=f"{config.broker_ip2}:{ha_port}",
    )
    has_outside = config.namesrv_addr or config.fetch_namesrv_addr_by_address_server

    def notified(request: RemotingCommand, _: Connection) -> None:
        registration.register_soon(request.ext_fields.get("brokerName", ""))

    registration = BrokerRegistration(
        identity,
        lambda: (topics.data_version, topics.table),
        foundation.clock,
        client=outer_client(foundation, notified) if has_outside else None,
        name_servers=parse_addresses(config.namesrv_addr),
        routes=name_server.routes if name_server is not None else None,
        order_topics=name_server.order_topics if name_server is not None else None,
        terms=RegistrationTerms(
            broker_permission=lambda: config.broker_permission,
            period_s=lambda: config.register_name_server_period / 1000,
            timeout_s=config.register_broker_timeout_mills / 1000,
            is_forced=config.force_register,
            is_compressed=config.compressed_register,
            epoch=epoch,
            on_outranked=on_outranked,
        ),
        on_order_topics=topics.set_order,
    )
    return registration


def signer_of(foundation: Foundation) -> RequestSigner | None:
    """Return the signer of this broker's requests to other parts; None without an account."""
    config = foundation.configuration.broker
    if not config.namesrv_access_key:
        return None
    account = Credentials(config.namesrv_access_key, config.namesrv_secret_key)
    return FreshSigner(account, foundation.clock.now_ms)


def outer_client(
    foundation: Foundation,
    notified: Handler | None = None,
    trusts: Callable[[str], bool] | None = None,
) -> RemotingClient:
    """Return a client for requests to name servers and other brokers.

    The client calls `notified` with NOTIFY_MIN_BROKER_ID_CHANGE. `trusts`: see RemotingClient.

    Raises:
        ConfigError: a certificate of tls.client.* can't be used.
    """
    tls = foundation.configuration.tls
    return RemotingClient(
        None if notified is None else {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: notified},
        clock=foundation.clock,
        signer=signer_of(foundation),
        limits=client_limits_of(foundation.configuration),
        tls=client_context(tls) if tls.use_tls else None,
        trusts=trusts,
    )
