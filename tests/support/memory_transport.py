"""A transport without a peer: it keeps written data, and the test plays the peer."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class MemoryTransport(asyncio.Transport):
    """Accepts all writes. `close_all` closes the sockets whose options a test checks.

    Attributes:
        written: data written and not yet fetched by the test.
        high: the write buffer limit.
        is_closed, is_aborted: whether and how the protocol ended the connection.
        is_paused: whether the protocol has paused reading.
        unread: the return value of `get_write_buffer_size`.
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

    def drain(self) -> bytes:
        """Return the data written since the previous call."""
        written, self.written = self.written, b""
        return written

    def abort(self) -> None:
        self.is_aborted = True
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def close(self) -> None:
        self.is_closed = True
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
