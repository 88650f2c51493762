"""A TCP proxy in user space that adds delay, limits bandwidth and breaks connections."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from contextlib import AbstractContextManager

READ_BYTES = 16_384
ACCEPT_SECONDS = 0.2
CONNECT_SECONDS = 3.0


@dataclass
class Badness:
    """The faults that a link adds."""

    delay_seconds: float = 0.0
    """Delay before each piece is passed on."""
    bytes_per_second: float = 0.0
    """Bandwidth limit; 0 means no limit."""
    break_chance: float = 0.0
    """Chance per piece that only a part is passed on and the connection is reset."""


class BadLink(threading.Thread):
    """Proxy for one address; `badness` can be replaced at any time."""

    def __init__(
        self,
        to: tuple[str, int],
        dice: random.Random,
        place: AbstractContextManager[None],
        host: str,
        port: int = 0,
    ) -> None:
        """Prepare a proxy; by default the host chooses the port.

        `place` is the network namespace where sockets are created.
        """
        super().__init__(daemon=True)
        self.badness = Badness()
        self.port = port
        self._to = to
        self._dice = dice
        self._place = place
        self._host = host
        self._over = threading.Event()
        self._listening = threading.Event()

    def open(self) -> int:
        """Start listening; return the port."""
        self.start()
        assert self._listening.wait(30), "the link does not listen"
        return self.port

    def close(self) -> None:
        self._over.set()
        self.join(30)

    def run(self) -> None:
        with self._place, socket.create_server((self._host, self.port)) as server:
            server.settimeout(ACCEPT_SECONDS)
            self.port = server.getsockname()[1]
            self._listening.set()
            while not self._over.is_set():
                with suppress(TimeoutError):
                    near, _ = server.accept()
                    self._pass_on(near)

    def _pass_on(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self._to, CONNECT_SECONDS)
        except OSError:
            near.close()
            return
        for one in (near, far):
            one.settimeout(None)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(READ_BYTES):
                bad = self.badness
                if bad.delay_seconds:
                    time.sleep(bad.delay_seconds)
                if bad.bytes_per_second:
                    time.sleep(len(piece) / bad.bytes_per_second)
                if bad.break_chance and self._dice.random() < bad.break_chance:
                    target.sendall(piece[: self._dice.randrange(len(piece))])
                    break
                target.sendall(piece)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
