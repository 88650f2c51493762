"""Count the connections of one port by host and refuse connections above the limits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker_core.listening.listener import is_loopback

if TYPE_CHECKING:
    from broker_core.listening.limits import ListenerLimits


class Admission:
    """The connections of one port. Event loop only.

    A connection is counted by `open`, and released by `close` when it has ended. If the limits have
    `strangers`, it counts as a stranger's until `sign_in`.
    """

    def __init__(self, limits: ListenerLimits) -> None:
        self._limits = limits
        self._per_host: Counter[str] = Counter()
        self._strangers: Counter[str] = Counter()

    def open(self, address: str, connections: int) -> str | None:
        """Count a connection from "ip:port"; return why it is refused, or None.

        `connections` is the number of open connections, including this one.
        """
        host = host_of(address)
        limits = self._limits
        self._per_host[host] += 1
        if connections > limits.connections_max:
            return f"more than {limits.connections_max} connections"
        is_bounded = limits.is_loopback_bounded or not is_loopback(host)
        if is_bounded and self._per_host[host] > limits.connections_per_host_max:
            return f"more than {limits.connections_per_host_max} connections from one host"
        strangers = limits.strangers
        if strangers is None:
            return None
        self._strangers[host] += 1
        if self._strangers.total() > strangers.connections_max:
            return f"more than {strangers.connections_max} connections that have not signed in"
        if is_bounded and self._strangers[host] > strangers.connections_per_host_max:
            return (
                f"more than {strangers.connections_per_host_max} connections from one host that "
                "have not signed in"
            )
        return None

    def sign_in(self, address: str) -> None:
        """Stop counting a connection as a stranger's."""
        _count_down(self._strangers, host_of(address))

    def close(self, address: str, *, is_signed_in: bool) -> None:
        """Forget a connection that has ended."""
        host = host_of(address)
        _count_down(self._per_host, host)
        if not is_signed_in:
            _count_down(self._strangers, host)


def host_of(address: str) -> str:
    """Return the host of "ip:port"."""
    return address.rpartition(":")[0]


def _count_down(counter: Counter[str], host: str) -> None:
    counter[host] -= 1
    if counter[host] <= 0:
        del counter[host]
