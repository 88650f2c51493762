"""Decide which peers may read over a port that requires no account."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from broker_core.config.lists import parse_networks

if TYPE_CHECKING:
    from collections.abc import Sequence


class Gate(NamedTuple):
    """A port, as described in its refusal messages."""

    key: str
    """The setting that lists the allowed addresses."""
    action: str
    """The action that the port allows: "read the log over the HA port"."""
    peer: str
    """The peer that needs the port: "a slave"."""


class AllowedPeers:
    """Decides by a setting with addresses and networks.

    Without the setting, every peer that can reach the port is allowed, as for pulls;
    with access control, only this host is.
    """

    def __init__(
        self, gate: Gate, networks: str, own_addresses: Sequence[str], *, has_acl: bool
    ) -> None:
        self._gate = gate
        self._networks = parse_networks(networks)
        self._is_open = not self._networks and not has_acl
        self._own = {ipaddress.ip_address(address) for address in own_addresses}

    def refusal(self, host: str) -> str | None:
        """Return why a peer is refused, in a sentence that says what to do; else None."""
        if self._is_open:
            return None
        key, action, who = self._gate
        address = ipaddress.ip_address(host.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self._networks):
            return None
        if not self._networks:
            if address.is_loopback or address in self._own:
                return None
            return (
                f"with aclEnable only this host may {action}; if it is {who}, "
                f"set {key}={address} here"
            )
        return f"{key} does not name it; if it is {who}, add {address}"
