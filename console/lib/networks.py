"""Networks by which the console limits unknown clients: an IPv4 /24, an IPv6 /64.

The owner of one IPv6 address has its whole /64, and a /24 of IPv4 often has a single owner.
"""

from __future__ import annotations

import ipaddress

IPV4_PREFIX = 24
IPV6_PREFIX = 64
IPV6_SITE_PREFIX = 48
UNKNOWN = "unknown"


def network_of(address: str) -> str:
    """Return the network of an address, or UNKNOWN if the text isn't an address (a Unix socket)."""
    return _network(address, IPV6_PREFIX)


def site_of(address: str) -> str:
    """Return the range that a provider gives one customer: an IPv6 /48, an IPv4 /24."""
    return _network(address, IPV6_SITE_PREFIX)


def _network(address: str, ipv6_prefix: int) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return UNKNOWN
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is None:
            return str(ipaddress.ip_network((parsed, ipv6_prefix), strict=False))
        parsed = parsed.ipv4_mapped
    return str(ipaddress.ip_network((parsed, IPV4_PREFIX), strict=False))
