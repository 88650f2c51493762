"""The slave's end of an HA connection, driven by hand."""

from __future__ import annotations

import asyncio
import contextlib
from typing import ClassVar

from broker_core.formats.ha_frames import HEADER, HEADER_SIZE, encode_report


class FakeSlave:
    """The slave's end of a connection, driven by hand."""

    opened: ClassVar[list[asyncio.StreamWriter]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.opened.append(writer)

    @classmethod
    async def to(cls, port: int, source: str = "127.0.0.1") -> FakeSlave:
        """Connect from an address of this host."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))

    def report(self, offset: int) -> None:
        self.send(encode_report(offset))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def transfer(self) -> tuple[int, bytes]:
        offset, size = HEADER.unpack(await self._reader.readexactly(HEADER_SIZE))
        return offset, await self._reader.readexactly(size)

    async def log(self, begin: int, end: int) -> bytes:
        """Read consecutive transfers until the end of the log."""
        data = b""
        while begin + len(data) < end:
            offset, piece = await self.transfer()
            assert offset == begin + len(data)
            data += piece
        return data

    async def is_closed(self) -> bool:
        """Wait for the master to close, and drop everything it sends before."""
        try:
            while await self._reader.read(65536):
                pass
        except ConnectionResetError:
            return True
        return True

    def close(self) -> None:
        self._writer.close()

    @classmethod
    async def hang_up(cls) -> None:
        """Close all connections."""
        while cls.opened:
            writer = cls.opened.pop()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
