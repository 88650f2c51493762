"""A TCP proxy with one thread per direction that can inspect and cut traffic."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    Tap = Callable[[bool, bytes], bytes | None]
    """Called with whether the client sent the bytes, and the bytes; returns the bytes to pass on,
    or None to cut.
    """

PIECE_BYTES = 65_536


def pass_on(_is_from_client: bool, data: bytes) -> bytes:
    """Change nothing."""
    return data


class TappedProxy:
    """Listens on a free loopback port and forwards to another; `tap` sees every piece."""

    def __init__(self, target_port: int, tap: Tap = pass_on) -> None:
        self.port = free_port()
        self.tap = tap
        self._target_port = target_port
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A thread in accept() is woken by a shutdown, not by a close.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        self._accepting.join(10)

    def cut(self) -> None:
        """End all connections through the proxy."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target_port), 10)
            except OSError:
                client.close()
                continue
            self._pairs.append((client, server))
            for source, target in ((client, server), (server, client)):
                source.settimeout(None)
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(
                    target=self._pass, args=(source, target, source is client), daemon=True
                ).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_from_client: bool) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(PIECE_BYTES):
                passed = self.tap(is_from_client, data)
                if passed is None:
                    break
                target.sendall(passed)
