"""The ports of a broker, from its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.gateway.answers import BrokerNode
    from console.gateway.configuration import BrokerKey

REMOTING, GRPC, REPLICATION, METRICS = "remoting", "grpc", "replication", "metrics"
PORT_KEYS = {
    REMOTING: "listenPort",
    GRPC: "grpcListenPort",
    REPLICATION: "haListenPort",
    METRICS: "metricsListenPort",
}
TLS_MODE_KEY = "tls.server.mode"
ENFORCING, PERMISSIVE, DISABLED = "enforcing", "permissive", "disabled"
ADVERTISED_KEY = "grpcAdvertisedEndpoint"


@dataclass(frozen=True, slots=True)
class Listener:
    """A port, the configuration key that sets it, and its TLS mode."""

    kind: str
    key: str
    address: str
    tls: str


def listeners_of(node: BrokerNode, keys: Iterable[BrokerKey]) -> tuple[Listener, ...]:
    """Return the ports that a broker has opened. A RocketMQ broker has no gRPC or metrics port."""
    values = {each.key: each.value for each in keys}
    host = node.address.rpartition(":")[0]
    mode = values.get(TLS_MODE_KEY, "")
    modes = {
        REMOTING: mode,
        GRPC: mode,
        REPLICATION: ENFORCING if values.get("haTls") == "true" else DISABLED,
        METRICS: DISABLED,
    }
    found = []
    for kind, key in PORT_KEYS.items():
        port = values.get(key, "")
        if not port.isdecimal() or not int(port):
            continue
        address = f"{host}:{port}"
        if kind == REMOTING:
            # The registered port; port mapping can make it another one than the broker's own.
            address = node.address
        elif kind == GRPC:
            address = values.get(ADVERTISED_KEY) or address
        elif kind == METRICS:
            own = values.get("metricsListenAddress")
            address = f"{own}:{port}" if own else address
        found.append(Listener(kind, key, address, modes[kind]))
    return tuple(found)
