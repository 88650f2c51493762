"""The peers whose PROXY headers the broker trusts.

Allow lists and limits depend on the address in the header, and any peer could claim any address. So
the broker serves only the trusted proxies.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv4Network, IPv6Network

logger = logging.getLogger(__name__)


class TrustedProxies:
    """The networks of proxyProtocolTrusted, for all ports of a process. Event loop only."""

    def __init__(self, networks: Sequence[IPv4Network | IPv6Network]) -> None:
        self._networks = tuple(networks)
        self._has_warned = False

    def is_trusted(self, host: str) -> bool:
        """Return whether a peer at this numeric address may name the client behind it."""
        address: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(host)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def refusal(self, host: str) -> str | None:
        """Return the reason to log for a refused peer; None if it needs no separate line.

        Without a list the broker refuses every peer, and a single warning covers them all.
        """
        if self._networks:
            return "the peer is not in proxyProtocolTrusted"
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "all connections refused, proxyProtocolTrusted is empty first_peer=%s",
                host,
            )
        return None
