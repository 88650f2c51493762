"""Checks that messages only go to allowed targets, to protect the console's own network.

A public internet address is allowed over https. Everything else (loopback, link-local, private,
multicast, and addresses that embed an IPv4 one) requires TREBUCHET_ALERT_TARGETS to list the host
or a network that contains it. The console connects to the same address that it checked.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

URL_CHARACTERS_MAX = 2_000
PORTS = {"http": 80, "https": 443}
# These ranges embed an IPv4 address, which a translator on the path may reach.
TRANSLATED = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
SPECIAL = frozenset({ipaddress.ip_address("168.63.129.16")})
"""Azure's metadata service, which has a public address."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TargetError(Exception):
    """A target that isn't allowed; the text gives the reason for people, without secrets."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """The URL without its path, which is often secret."""
        return f"{self.scheme}://{self.host_header}/…"


def parsed(url: str) -> Target:
    """Parse a URL.

    Raises:
        TargetError: the URL is invalid, or contains a name and password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").encode("idna").decode("ascii") if parts.hostname else ""
    except ValueError:
        raise TargetError(_("This isn't a valid address.")) from None
    is_printable = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in PORTS or not host or not is_printable or len(url) > URL_CHARACTERS_MAX:
        raise TargetError(_("Enter an address that starts with https:// and contains a host name."))
    if parts.username is not None or parts.password is not None:
        raise TargetError(_("The address can't contain a user name or password."))
    path = parts.path or "/"
    if parts.query:
        path = f"{path}?{parts.query}"
    return Target(parts.scheme, host, port or PORTS[parts.scheme], path)


def checked(target: Target) -> list[Address]:
    """Resolve a target's name and return the addresses that may be connected to.

    Raises:
        TargetError: the name doesn't resolve, or an address isn't allowed.
    """
    allowed = Allowed(settings.TREBUCHET_ALERT_TARGETS)
    is_named = allowed.names_host(target.host)
    if target.scheme == "http" and not is_named and not allowed.has_networks:
        raise TargetError(_("Only https is allowed for this host."))
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise TargetError(
            _("The host name %(host)s couldn't be resolved.") % {"host": target.host}
        ) from None
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    good = [
        each
        for each in dict.fromkeys(addresses)
        if is_named
        or allowed.has(each)
        or (
            target.scheme == "https"
            and is_public(each)
            and not settings.TREBUCHET_ALERT_TARGETS_ONLY
        )
    ]
    # One refused address is enough, because the name may resolve to it next time.
    if not good or len(good) < len(set(addresses)):
        raise TargetError(
            _(
                "%(host)s isn't allowed because it isn't reachable over https on the public "
                "internet. To allow it, add it to TREBUCHET_ALERT_TARGETS."
            )
            % {"host": target.host}
        )
    return good


def is_public(address: Address) -> bool:
    """Return whether an address is public and embeds no other."""
    if isinstance(address, ipaddress.IPv6Address) and (
        address.ipv4_mapped
        or address.sixtofour
        or address.teredo
        or any(address in each for each in TRANSLATED)
    ):
        return False
    if address.is_multicast or address.is_reserved or address in SPECIAL:
        return False
    return address.is_global


class Allowed:
    """The targets that the machine's administrator allows in addition to the public internet."""

    def __init__(self, words: Iterable[str]) -> None:
        self._hosts = set()
        self._networks = []
        for word in words:
            try:
                self._networks.append(ipaddress.ip_network(word, strict=False))
            except ValueError:
                self._hosts.add(word.lower())

    @property
    def has_networks(self) -> bool:
        return bool(self._networks)

    def names_host(self, host: str) -> bool:
        return host.lower() in self._hosts

    def has(self, address: Address) -> bool:
        return any(address in each for each in self._networks)


def first_of(addresses: Sequence[Address]) -> str:
    """Return the address to connect to: IPv4 first, which works wherever IPv6 does."""
    return str(min(addresses, key=lambda each: each.version))
