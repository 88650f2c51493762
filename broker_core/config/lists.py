"""Values with several parts: name servers, networks, a listener, names of extensions."""

from __future__ import annotations

import ipaddress
import re

PLAIN_ACL = "plain_acl"
"""The name of RocketMQ's access validator in accessValidators."""

UNIX_PATH_BYTES_MAX = 107
"""The kernel's limit (sun_path)."""

_HOST = re.compile(r"[a-zA-Z0-9._\-\[\]:]+")


def parse_addresses(text: str) -> list[str]:
    """Split `host:port;host:port`.

    Raises:
        ValueError: a part isn't host:port; its text is the argument.
    """
    addresses = [part.strip() for part in text.split(";") if part.strip()]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (_HOST.fullmatch(host) and port.isdecimal() and 0 < int(port) <= 65_535):
            raise ValueError(address)
    return addresses


def parse_networks(text: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Split `address,network/bits`.

    Raises:
        ValueError: a part is neither, or has bits set after the network's prefix.
    """
    return [ipaddress.ip_network(name) for name in names_of(text)]


def parse_admin_listener(text: str) -> tuple[str, int] | str:
    """Return host and port of a loopback address, or the path of a unix socket.

    Raises:
        ValueError: it is neither; the argument describes valid values.
    """
    wanted = "host:port on loopback, such as 127.0.0.1:10921, or the path of a unix socket"
    if text.startswith("/"):
        if len(text.encode()) > UNIX_PATH_BYTES_MAX:
            raise ValueError(f"{wanted} of at most {UNIX_PATH_BYTES_MAX} bytes")
        return text
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not (is_loopback and port.isascii() and port.isdigit() and 0 < int(port) <= 65_535):
        raise ValueError(wanted)
    return host, int(port)


def names_of(text: str) -> list[str]:
    """Return the names in a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]
