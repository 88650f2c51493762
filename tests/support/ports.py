"""TCP ports for servers that tests start as processes."""

from __future__ import annotations

import random
import socket

# Below the range from which the kernel takes ports of outgoing connections: one of those could take
# a port between its being found free and the server's listening.
LOWEST, HIGHEST = 20_000, 32_000
_handed_out: set[int] = set()


def free_port() -> int:
    """Return a loopback port on which nothing listens, never the same one twice."""
    # Not seeded: two runs side by side must not find the same ports.
    source = random.SystemRandom()
    for _ in range(1_000):
        port = source.randrange(LOWEST, HIGHEST)
        if port in _handed_out:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _handed_out.add(port)
        return port
    raise RuntimeError(f"no free port from {LOWEST} to {HIGHEST}")


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    try:
        with socket.create_connection((host, port), 1.0):
            return True
    except OSError:
        return False
