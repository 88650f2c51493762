"""A peer's address, as text for people and as bytes for records."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


def peer_of(proxied: tuple[str, int] | None, transport: asyncio.BaseTransport) -> tuple[str, bytes]:
    """Return both forms of the peer's address: `proxied` from a PROXY header, else the socket's."""
    name = proxied or transport.get_extra_info("peername")
    if not isinstance(name, tuple) or len(name) < 2:
        return "", bytes(8)
    host, port = str(name[0]).partition("%")[0], int(name[1])
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host)
    if packed[:12] == b"\0" * 10 + b"\xff\xff":  # IPv4 through a dual-stack listener
        packed = packed[12:]
        host = socket.inet_ntop(socket.AF_INET, packed)
    return f"{host}:{port}", packed + struct.pack(">i", port)
