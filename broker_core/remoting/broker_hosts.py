"""Decide which IP addresses from the network can belong to a broker.

Name servers supply the addresses of brokers, and the owner of a host name decides where it points.
A broker's address must be public, private or this machine's. It can't be in a range with another
purpose, and it can't be a cloud's metadata service.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA_SERVICES = frozenset(
    map(
        ipaddress.ip_address,
        (
            "100.100.100.200",  # Alibaba Cloud
            "168.63.129.16",  # Azure
            "192.0.0.192",  # Oracle Cloud
            "fd00:42::42",  # Scaleway
            "fd00:ec2::254",  # AWS
            "fd20:ce::254",  # Google Cloud
        ),
    )
)
"""Metadata services with addresses outside the link-local ranges."""
LOCAL_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        (
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "100.64.0.0/10",  # for carrier-grade NAT; overlay networks and clouds use it, too
            "198.18.0.0/15",  # for benchmarks; some clouds assign it to pods
            "127.0.0.0/8",
            "::1/128",
            "fc00::/7",
        ),
    )
)
SPECIAL_NETWORKS = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "fec0::/10")))
"""Special-purpose ranges that some versions of `ipaddress` don't recognize."""
TRANSLATED = tuple(map(ipaddress.IPv6Network, ("::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")))
"""IPv6 ranges whose last 32 bits are the IPv4 address that they map to."""
LINK_LOCAL = "its host is link-local or a cloud's metadata service"
NO_MACHINE = "its host is not the address of one machine"


def refusal_reason(address: Address) -> str | None:
    """Return why an address can't belong to a broker; None if it can."""
    if any(address in network for network in TRANSLATED):
        address = ipaddress.IPv4Address(address.packed[-4:])
    if address.is_link_local or address in METADATA_SERVICES:
        return LINK_LOCAL
    if any(address in network for network in LOCAL_NETWORKS):
        return None
    is_special = address.is_multicast or address.is_reserved or address.is_unspecified
    if is_special or not address.is_global or any(address in each for each in SPECIAL_NETWORKS):
        return NO_MACHINE
    return None


def refuse_peer(transport: asyncio.Transport) -> str | None:
    """Close a connection if its peer can't be a broker; return the reason, or None if it can.

    The check uses the address of the open connection, so DNS can't change it afterwards.
    """
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return None
    reason = refusal_reason(ipaddress.ip_address(str(peer[0]).partition("%")[0]))
    if reason is not None:
        transport.abort()
        return f"{peer[0]}: {reason}"
    return None
