"""Checks of the addresses that brokers register; clients, slaves and the console connect to them.

An address is "host:port". The host is an IPv4 address in four decimal parts, an IPv6 address in
brackets, or a host name. The check refuses addresses that cannot be a broker's: those of no host or
of many, link-local ones and the metadata services of clouds, and other notations of IPv4 addresses,
which get past comparisons of texts.
"""

from __future__ import annotations

import ipaddress
import re

PORT_MIN = 1024
"""Lower ports belong to other services; only a broker with an account may register one."""
PORT_MAX = 65_535
HOST_NAME_MAX = 253
LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE | re.ASCII)
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE | re.ASCII)
METADATA_SERVICES = frozenset(
    {"100.100.100.200", "168.63.129.16", "fd00:ec2::254", "metadata.google.internal"}
)
"""Metadata services outside the link-local range."""
EMBEDDING_IPV4 = tuple(
    ipaddress.IPv6Network(each)
    for each in (
        "::/96",
        "::ffff:0:0/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2001::/32",
        "2002::/16",
    )
)
LOOPBACK_V6 = ipaddress.IPv6Address("::1")


def check_address(address: str, port_min: int = PORT_MIN) -> None:
    """Check that clients can connect to a broker at an address.

    Raises:
        ValueError: they cannot, or must not; the text says why.
    """
    host, _, port = address.rpartition(":")
    if not host:
        raise ValueError("it is not of the form host:port")
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise ValueError("its port is not a number")
    if not port_min <= int(port) <= PORT_MAX:
        raise ValueError(f"its port is not between {port_min} and {PORT_MAX}")
    if host.startswith("[") and host.endswith("]"):
        _check_ipv6(host[1:-1])
    elif NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]):
        # Resolvers take a last part that is a number for an IPv4 address, in several notations.
        _check_ip(_ipv4(host))
    else:
        _check_host_name(host)


def _ipv4(host: str) -> ipaddress.IPv4Address:
    try:
        return ipaddress.IPv4Address(host)
    except ValueError:
        raise ValueError("an IPv4 address has four decimal parts") from None


def _check_ipv6(host: str) -> None:
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        raise ValueError("its host in brackets is not an IPv6 address") from None
    if address.scope_id is not None:
        raise ValueError("its host has a zone, which only one machine knows")
    is_embedding = address != LOOPBACK_V6 and any(address in each for each in EMBEDDING_IPV4)
    if is_embedding and not address.is_unspecified:
        raise ValueError("its host is an IPv4 address in the form of an IPv6 address")
    _check_ip(address)


def _check_ip(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if address.is_link_local or str(address) in METADATA_SERVICES:
        raise ValueError("its host is link-local or a cloud's metadata service")
    is_of_network_0 = address.version == 4 and address.packed[0] == 0
    is_reserved = address.version == 4 and address.is_reserved
    if address.is_unspecified or address.is_multicast or is_of_network_0 or is_reserved:
        raise ValueError("its host is not the address of one machine")


def _check_host_name(host: str) -> None:
    name = host.removesuffix(".")
    if len(name) > HOST_NAME_MAX or not all(map(LABEL.fullmatch, name.split("."))):
        raise ValueError("its host is neither an IP address nor a host name")
    if name.lower() in METADATA_SERVICES:
        raise ValueError("its host is link-local or a cloud's metadata service")
