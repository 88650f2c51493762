"""The addresses that clients connect to."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.gateway.listeners import GRPC
from console.gateway.shared import Shared
from console.lib.moment import now_ms

ADDRESSES_KEPT_MS = 4_000


@dataclass(frozen=True, slots=True)
class ClientAddresses:
    """Name servers for remoting clients, and the masters' gRPC addresses.

    `grpc` is None if the brokers don't respond.
    """

    name_servers: tuple[str, ...]
    grpc: tuple[str, ...] | None

    @property
    def name_servers_text(self) -> str:
        return ";".join(self.name_servers)


shared_addresses: Shared[ClientAddresses] = Shared(ADDRESSES_KEPT_MS)
"""Viewers of empty pages share them, as they do the overview's summary."""


def client_addresses() -> ClientAddresses:
    return shared_addresses.get("", now_ms(), client_addresses_now)


def client_addresses_now() -> ClientAddresses:
    name_servers = tuple(settings.TREBUCHET_NAMESRV)
    try:
        cluster = gateway().cluster
        masters = {node.address for node in cluster.registered().masters}
        listeners = cluster.listeners()
    except GatewayError:
        return ClientAddresses(name_servers, None)
    known = [ports for address, ports in listeners.items() if address in masters]
    ports = [port for found in known if not isinstance(found, GatewayError) for port in found]
    grpc = tuple(port.address for port in ports if port.kind == GRPC)
    is_unknown = not grpc and any(isinstance(found, GatewayError) for found in known)
    return ClientAddresses(name_servers, None if is_unknown else grpc)
