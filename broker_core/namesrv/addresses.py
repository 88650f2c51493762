"""Check the addresses that brokers register; clients, slaves and the console connect to them.

An address is "host:port". The host is an IPv4 address in four decimal parts, an IPv6 address in
brackets, or a host name. The check refuses addresses that can't be a broker's (see
`remoting/broker_hosts.py`), other notations of IP addresses, which get past comparisons of texts,
and the host names of metadata services and of wildcard DNS services that resolve to such addresses.
The program that connects checks the resolved address again.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from broker_core.remoting.broker_hosts import LINK_LOCAL, refusal_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_core.remoting.broker_hosts import Address

PORT_MIN = 1024
"""Lower ports belong to other services; only a broker with an account may register one."""
PORT_MAX = 65_535
HOST_NAME_MAX = 253
LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE | re.ASCII)
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE | re.ASCII)
METADATA_NAMES = frozenset(
    {
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.azure.com",
        "metadata.azure.internal",
        "metadata.google.internal",
        "metadata.oraclecloud.com",
        "metadata.packet.net",
        "metadata.platformequinix.com",
        "metadata.tencentyun.com",
    }
)
SPELLED_IPV4 = re.compile(r"(?<![0-9])(?=((?:[0-9]{1,3}[.-]){3}[0-9]{1,3})(?![0-9]))", re.ASCII)
HEX_IPV4 = re.compile(r"(?:0x)?([0-9a-f]{8})", re.IGNORECASE | re.ASCII)
DASHED_IPV6 = re.compile(r"[0-9a-f]*(?:-[0-9a-f]*){2,7}", re.IGNORECASE | re.ASCII)
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
        ValueError: they can't, or must not; the text says why.
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
        # If the last part is a number, resolvers read the host as an IPv4 address, in several
        # notations.
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
        raise ValueError("its host has an IPv6 zone, which is only valid on one machine")
    is_embedding = address != LOOPBACK_V6 and any(address in each for each in EMBEDDING_IPV4)
    if is_embedding and not address.is_unspecified:
        raise ValueError("its host is an IPv4 address in the form of an IPv6 address")
    _check_ip(address)


def _check_ip(address: Address) -> None:
    reason = refusal_reason(address)
    if reason is not None:
        raise ValueError(reason)


def _check_host_name(host: str) -> None:
    name = host.removesuffix(".")
    if len(name) > HOST_NAME_MAX or not all(map(LABEL.fullmatch, name.split("."))):
        raise ValueError("its host is neither an IP address nor a host name")
    if name.lower() in METADATA_NAMES:
        raise ValueError(LINK_LOCAL)
    for address in _addresses_in_name(name):
        reason = refusal_reason(address)
        if reason is not None:
            raise ValueError(f"{reason}: its host name spells {address}")


def _addresses_in_name(name: str) -> Iterator[Address]:
    """Yield the IP addresses that a host name contains, as wildcard DNS services resolve them.

    A label of eight hex digits is common, so it counts only as a metadata service's address.
    """
    for found in SPELLED_IPV4.findall(name):
        parts = found.replace("-", ".").split(".")
        if all(int(part) <= 255 for part in parts):
            yield ipaddress.IPv4Address(bytes(map(int, parts)))
    for label in name.split("."):
        if (digits := HEX_IPV4.fullmatch(label)) is not None:
            number = ipaddress.IPv4Address(int(digits[1], 16))
            if refusal_reason(number) == LINK_LOCAL:
                yield number
        if DASHED_IPV6.fullmatch(label) is not None:
            try:
                yield ipaddress.IPv6Address(label.replace("-", ":"))
            except ValueError:
                continue
