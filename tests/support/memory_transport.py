"""A transport without a peer: it keeps what it is given, and a test plays the peer."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class MemoryTransport(asyncio.Transport):
    """Takes all that is written. `close_all` closes the sockets whose options a test looks at.

    Attributes:
        written: what was given and not taken by the test yet.
        high: the limit of what may wait here.
        is_closed, is_aborted: whether the protocol ended the connection, and how.
        is_paused: whether the protocol reads no more.
        unread: what `get_write_buffer_size` returns.
    """

    sockets: ClassVar[list[socket.socket]] = []

    def __init__(
        self,
        protocol: asyncio.BaseProtocol,
        address: tuple[Any, ...] = (),
        peer: tuple[Any, ...] | None = None,
    ) -> None:
        """`address` is this end's address, `peer` the other end's."""
        super().__init__()
        self.protocol = protocol
        self.socket = socket.socket()
        self.sockets.append(self.socket)
        self.written = b""
        self.high: int | None = None
        self.is_closed = False
        self.is_aborted = False
        self.is_paused = False
        self.unread = 0
        self._address = address
        self._peer = peer

    @classmethod
    def close_all(cls) -> None:
        while cls.sockets:
            cls.sockets.pop().close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {"socket": self.socket, "sockname": self._address, "peername": self._peer}
        return known.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += data

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.written += b"".join(pieces)

    def taken(self) -> bytes:
        """Return what was written since the last look."""
        written, self.written = self.written, b""
        return written

    def abort(self) -> None:
        self.is_aborted = True
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def close(self) -> None:
        self.is_closed = True
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
