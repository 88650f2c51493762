"""AllowedPeers: who may read over a port that asks for no account."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from broker_core.config.lists import parse_networks

if TYPE_CHECKING:
    from collections.abc import Sequence


class Gate(NamedTuple):
    """A port, in the words of its refusals."""

    key: str
    """What names the allowed addresses."""
    deed: str
    """What is done over it: "read the log over the HA port"."""
    peer: str
    """Who has reason to: "a slave"."""


class AllowedPeers:
    """Decides by a key with addresses and networks.

    Without the key everybody is served who can reach the port, as everybody can pull; with access
    control only this host.
    """

    def __init__(
        self, gate: Gate, networks: str, own_addresses: Sequence[str], *, has_acl: bool
    ) -> None:
        self._gate = gate
        self._networks = parse_networks(networks)
        self._is_open = not self._networks and not has_acl
        self._own = {ipaddress.ip_address(address) for address in own_addresses}

    def refusal(self, host: str) -> str | None:
        """Return why a peer is not served, in a sentence that says what to do; None if it is."""
        if self._is_open:
            return None
        key, deed, who = self._gate
        address = ipaddress.ip_address(host.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self._networks):
            return None
        if not self._networks:
            if address.is_loopback or address in self._own:
                return None
            return (
                f"with aclEnable only this host may {deed}; if it is {who}, "
                f"set {key}={address} here"
            )
        return f"{key} does not name it; if it is {who}, add {address}"
