"""Message IDs and host bytes.

An offset_msg_id is a location: store host and commit_log_offset, in upper-case hex::

    ip (4 or 16 bytes) | port (i4) | commit_log_offset (i8)        32 or 56 characters

Source: common/message/MessageDecoder.java createMessageId, decodeMessageId (4.9.8).
"""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache
from typing import NamedTuple

HOSTS_KEPT = 1024
HOST_V4_SIZE = 8
HOST_V6_SIZE = 20
OFFSET_MSG_ID_LENGTHS = (32, 56)
PORT_MAX = 0xFFFF
_PORT = struct.Struct(">i")
_OFFSET = struct.Struct(">q")


class OffsetMsgId(NamedTuple):
    """A decoded offset_msg_id."""

    host: str
    commit_log_offset: int


@lru_cache(HOSTS_KEPT)
def host_bytes(ip: str, port: int) -> bytes:
    """Return an address as in records: the packed IP, then the port in four bytes.

    Raises:
        ValueError: the text isn't an address.
    """
    return ipaddress.ip_address(ip).packed + _PORT.pack(port)


def host_text(host: bytes | memoryview) -> str:
    """Return "ip:port"; an IPv6 address is in brackets."""
    return _host_text(bytes(host))


@lru_cache(HOSTS_KEPT)
def _host_text(host: bytes) -> str:
    """Implement `host_text`, cached, since records of a few clients repeat the same hosts."""
    ip = ipaddress.ip_address(host[:-4])
    (port,) = _PORT.unpack(host[-4:])
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


def parse_host(text: str) -> bytes:
    """Return the bytes for a text from `host_text`.

    Raises:
        ValueError: the text isn't an address with a port.
    """
    ip, _, port = text.rpartition(":")
    return host_bytes(ip.strip("[]"), int(port))


def offset_msg_id(store_host: bytes, commit_log_offset: int) -> str:
    """Return the ID of the message at commit_log_offset on the broker at store_host."""
    return (store_host + _OFFSET.pack(commit_log_offset)).hex().upper()


def parse_offset_msg_id(text: str) -> OffsetMsgId | None:
    """Decode an offset_msg_id, None if the text isn't one.

    Clients' unique keys have the same length. One with an impossible port or offset isn't an
    offset_msg_id; the others can only be told apart by looking them up.
    """
    if len(text) not in OFFSET_MSG_ID_LENGTHS or not text.isascii() or not text.isalnum():
        return None
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return None
    (commit_log_offset,) = _OFFSET.unpack(data[-8:])
    (port,) = _PORT.unpack(data[-12:-8])
    if commit_log_offset < 0 or not 0 <= port <= PORT_MAX:
        return None
    return OffsetMsgId(host_text(data[:-8]), commit_log_offset)
