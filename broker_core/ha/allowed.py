"""AllowedSlaves: who may read the whole log over the HA port."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from broker_core.config.lists import parse_networks

if TYPE_CHECKING:
    from collections.abc import Sequence


class AllowedSlaves:
    """Decides by haAllowedAddresses.

    Without the key everybody is served who can reach the port, as everybody can pull; with access
    control only this host, since the HA port asks for no account.
    """

    def __init__(self, networks: str, own_addresses: Sequence[str], *, has_acl: bool) -> None:
        self._networks = parse_networks(networks)
        self._is_open = not self._networks and not has_acl
        self._own = {ipaddress.ip_address(address) for address in own_addresses}

    def refusal(self, host: str) -> str | None:
        """Return why a peer is not served, in a sentence that says what to do; None if it is."""
        if self._is_open:
            return None
        address = ipaddress.ip_address(host.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self._networks):
            return None
        if not self._networks:
            if address.is_loopback or address in self._own:
                return None
            return (
                "with aclEnable only this host may read the log over the HA port; if it is a "
                f"slave, set haAllowedAddresses={address} on the master"
            )
        return f"haAllowedAddresses does not name it; if it is a slave, add {address}"
