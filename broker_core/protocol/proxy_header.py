"""The PROXY header, in which a proxy names the client behind it: versions 1 and 2.

    version 1, text:    PROXY TCP4 192.0.2.7 192.0.2.1 56324 10911
      at most 107 bytes
    version 2, binary:  signature 12 | version and command 1 | family 1 | length 2 | addresses

Source: haproxy.org, proxy-protocol.txt.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

from broker_core.errors import FrameError

SIGNATURE_V1 = b"PROXY "
SIGNATURE_V2 = b"\r\n\r\n\0\r\nQUIT\n"
LINE_BYTES_MAX = 107
HEAD_V2 = struct.Struct(">12sBBH")
assert HEAD_V2.size == 16
ADDRESS_BYTES_MAX = 2048
"""The maximum length of the addresses in version 2, with extensions; addresses alone need at most
36 bytes.
"""
LOCAL, PROXY = 0x20, 0x21
ADDRESSES = {0x11: (4, 12), 0x21: (16, 36)}
"""By family (TCP over IPv4, IPv6): size of an address, size of both addresses with their ports."""


class ProxyHeader(NamedTuple):
    """The header's length in bytes, and the client; None if the proxy sent its own request."""

    size: int
    source: tuple[str, int] | None


def parse(data: bytes) -> ProxyHeader | None:
    """Parse the header at the start of data; return None while it is incomplete.

    Raises:
        FrameError: data doesn't begin with a PROXY header.
    """
    if data[:12] == SIGNATURE_V2[: len(data)]:
        return _parse_v2(data)
    if data[:6] == SIGNATURE_V1[: len(data)]:
        return _parse_v1(data)
    raise FrameError("the connection does not begin with a PROXY header")


def _parse_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, LINE_BYTES_MAX)
    if end < 0:
        if len(data) >= LINE_BYTES_MAX:
            raise FrameError(f"a PROXY line has more than {LINE_BYTES_MAX} bytes")
        return None
    parts = data[:end].decode("latin-1").split(" ")
    if parts[1:2] == ["UNKNOWN"]:
        return ProxyHeader(end + 2, None)
    if len(parts) != 6 or parts[1] not in ("TCP4", "TCP6"):
        raise FrameError("a PROXY line is not of TCP4, TCP6 or UNKNOWN")
    return ProxyHeader(end + 2, (_host(parts[2], parts[1]), _port(parts[4])))


def _parse_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < HEAD_V2.size:
        return None
    _, command, family, length = HEAD_V2.unpack_from(data)
    if length > ADDRESS_BYTES_MAX or command not in (LOCAL, PROXY):
        raise FrameError("a PROXY header has an unknown version or size")
    if len(data) < HEAD_V2.size + length:
        return None
    size = HEAD_V2.size + length
    if command == LOCAL or family not in ADDRESSES:
        return ProxyHeader(size, None)
    host_size, addresses_size = ADDRESSES[family]
    if length < addresses_size:
        raise FrameError("a PROXY header is shorter than its addresses")
    packed = data[HEAD_V2.size : HEAD_V2.size + host_size]
    (port,) = struct.unpack_from(">H", data, HEAD_V2.size + 2 * host_size)
    return ProxyHeader(size, (str(ipaddress.ip_address(packed)), port))


def _host(text: str, family: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise FrameError("a PROXY line has no address where one belongs") from None
    if address.version != int(family[-1]):
        raise FrameError("a PROXY line has an address of another family")
    return str(address)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < 65_536):
        raise FrameError("a PROXY line has no port where one belongs")
    return int(text)
