"""TCP ports for servers that tests start as processes."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

# Below the kernel's range for outgoing connections, which could take a port after the check and
# before the server listens.
LOWEST, HIGHEST = 20_000, 32_000
BLOCK_PORTS = 200
SPACING = 4
"""A broker also uses the ports two below and one above its main port."""


class PortBlocks:
    """Blocks of ports reserved for this process until it ends.

    Otherwise concurrent test runs would find the same port free at the same time.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: list[int] = []
        self._ports: list[int] = []

    def next(self, above: int = 0) -> int:
        """Return a new loopback port that is free, with free ports two below and one above.

        For servers that use ports at a distance, the next `above` ports are reserved as well.
        """
        count = 1 + -(-above // SPACING)
        while True:
            if len(self._ports) < count:
                self._ports = self._claim()
            # The highest ports of a block come first.
            port = [self._ports.pop() for _ in range(count)][-1]
            if all(is_free(one) for one in range(port - 2, port + above + 2)):
                return port

    def close(self) -> None:
        """Release all blocks."""
        self._ports.clear()
        while self._held:
            os.close(self._held.pop())

    def _claim(self) -> list[int]:
        self._directory.mkdir(parents=True, exist_ok=True)
        blocks = list(range(LOWEST, HIGHEST, BLOCK_PORTS))
        # Not seeded, so that a block with recently stopped servers can rest.
        random.SystemRandom().shuffle(blocks)
        for first in blocks:
            descriptor = os.open(self._directory / str(first), os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            self._held.append(descriptor)
            return [port + 2 for port in range(first, first + BLOCK_PORTS, SPACING)]
        raise RuntimeError(f"no block of free ports from {LOWEST} to {HIGHEST}")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_blocks = PortBlocks(Path(tempfile.gettempdir()) / f"trebuchet-test-ports-{os.getuid()}")


def free_port(above: int = 0) -> int:
    """Return a loopback port for a server; the ports two below and one above are free, too.

    So are the next `above` ports, for a server that uses ports at a distance.
    """
    return _blocks.next(above)


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    try:
        with socket.create_connection((host, port), 1.0):
            return True
    except OSError:
        return False
