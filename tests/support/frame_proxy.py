"""A proxy that records one of each form of clients' frames.

The broker listens on 127.0.0.1 and announces 127.0.0.2, where the proxy listens on the same ports,
so that no client or tool can bypass it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from typing import TYPE_CHECKING, Any

from tests.support.frame_corpus import Recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKER_HOST = "127.0.0.1"
PROXY_HOST = "127.0.0.2"
PIECE_BYTES = 65_536
FRAME_BYTES_KEPT = 65_536
TLS = 0x16
SEND_CODES = (10, 310, 320, 324, 325)
PULL_CODES = (11, 361)
SYS_FLAG_NAMES = ("sysFlag", "f")
BATCH_NAMES = ("batch", "m")
WHOLE_CODES = {3442 + number: 200_050 + number for number in range(7)} | {3543: 200_151}
"""Codes that don't fit into a binary header."""


def frames_of(buffer: bytearray) -> Iterator[bytes]:
    """Remove the complete frames from the front of a buffer and return them."""
    while len(buffer) >= 8:
        (length,) = struct.unpack_from(">i", buffer)
        if length < 4 or len(buffer) < 4 + length:
            return
        yield bytes(buffer[: 4 + length])
        del buffer[: 4 + length]


class Head:
    """The parts of a frame's header that define its form, parsed without the code under test."""

    def __init__(self, frame: bytes) -> None:
        word = int.from_bytes(frame[4:8], "big")
        self.type = word >> 24
        header = frame[8 : 8 + (word & 0xFFFFFF)]
        self.body = frame[8 + (word & 0xFFFFFF) :]
        self.fields: dict[str, str] = {}
        # Java writes null into a binary header as an empty value and reads it back as null. It
        # writes some fields of hooks twice and reads the last one.
        self.is_read_whole = True
        if self.type == 0:
            read: dict[str, Any] = json.loads(header)
            self.code, self.flag = int(read["code"]), int(read["flag"])
            self.opaque = int(read["opaque"])
            self.fields = read.get("extFields") or {}
        else:
            self.code, _, _, self.opaque, self.flag = struct.unpack_from(">hBhii", header)
            (remark_length,) = struct.unpack_from(">i", header, 13)
            at = 17 + remark_length + 4
            while at < len(header):
                (key_length,) = struct.unpack_from(">h", header, at)
                key = header[at + 2 : at + 2 + key_length].decode()
                at += 2 + key_length
                (length,) = struct.unpack_from(">i", header, at)
                self.is_read_whole &= bool(length) and key not in self.fields
                self.fields[key] = header[at + 4 : at + 4 + length].decode()
                at += 4 + length
            if not self.is_answer:
                self.code = WHOLE_CODES.get(self.code, self.code)

    @property
    def is_answer(self) -> bool:
        return bool(self.flag & 1)

    @property
    def form(self) -> tuple[object, ...]:
        """Return the form: the broker handles all frames of one form in the same way."""
        kind = "none" if not self.body else "text" if self.body[:1] in b"{[" else "bytes"
        more: list[str | None] = []
        if self.code in SEND_CODES:
            more = [self.fields.get(name) for name in (*SYS_FLAG_NAMES, *BATCH_NAMES)]
        elif self.code in PULL_CODES:
            more = [self.fields.get(name) for name in ("sysFlag", "expressionType")]
        return (self.code, self.flag, self.type, tuple(sorted(self.fields)), kind, *more)


class Recorder:
    """Proxies for the ports of one broker; `client` names the current sender. Event loop only."""

    def __init__(self) -> None:
        self.client = ""
        self.kept: dict[tuple[object, ...], Recorded] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, port: int, to: str) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await self._serve(reader, writer, port, to)

        self._servers.append(await asyncio.start_server(serve, PROXY_HOST, port))

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, to: str
    ) -> None:
        try:
            to_broker, from_broker = await asyncio.open_connection(BROKER_HOST, port)
        except OSError:
            writer.close()
            return
        # The broker's requests on this connection, by opaque.
        requests: dict[int, int] = {}
        client = self.client
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, from_broker, client, to, requests))
                group.create_task(self._copy(to_broker, writer, "", to, requests))
        except* (ConnectionError, OSError):
            pass
        finally:
            for each in (writer, from_broker):
                each.close()

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client: str,
        to: str,
        codes: dict[int, int],
    ) -> None:
        """Copy one direction: the broker's if there is no client."""
        buffer: bytearray | None = bytearray()
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
            if buffer is None or (not buffer and piece[0] == TLS):
                buffer = None
                continue
            buffer += piece
            for frame in frames_of(buffer):
                if client:
                    self.keep(client, to, frame, codes)
                else:
                    head = Head(frame)
                    if not head.is_answer:
                        codes[head.opaque] = head.code
        with contextlib.suppress(OSError):
            writer.write_eof()

    def keep(self, client: str, to: str, frame: bytes, codes: dict[int, int]) -> None:
        """Keep a frame if it's the first of its form."""
        head = Head(frame)
        if len(frame) > FRAME_BYTES_KEPT:
            return
        answers = codes.get(head.opaque) if head.is_answer else None
        recorded = Recorded(client, to, head.code, answers, None, frame)
        self.kept.setdefault((client, to, answers, *head.form), recorded)
