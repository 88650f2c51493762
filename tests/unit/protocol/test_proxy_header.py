from __future__ import annotations

import ipaddress
import struct

import pytest

from broker_core.errors import FrameError
from broker_core.protocol.proxy_header import LINE_BYTES_MAX, SIGNATURE_V2, ProxyHeader, parse


def version_2(family: int, addresses: bytes, command: int = 0x21) -> bytes:
    return SIGNATURE_V2 + struct.pack(">BBH", command, family, len(addresses)) + addresses


V4 = ipaddress.ip_address("192.0.2.7").packed
V6 = ipaddress.ip_address("2001:db8::7").packed
WHOLE = {
    b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 10911\r\n": ("192.0.2.7", 56324),
    b"PROXY TCP6 2001:db8::7 2001:db8::1 56324 10911\r\n": ("2001:db8::7", 56324),
    b"PROXY UNKNOWN\r\n": None,
    b"PROXY UNKNOWN ffff:: ffff:: 1 2\r\n": None,
    version_2(0x11, V4 + V4 + struct.pack(">HH", 56324, 10911)): ("192.0.2.7", 56324),
    version_2(0x21, V6 + V6 + struct.pack(">HH", 56324, 10911)): ("2001:db8::7", 56324),
    version_2(0x11, V4 + V4 + struct.pack(">HH", 1, 2) + b"\x03\0\x01x"): ("192.0.2.7", 1),
    version_2(0x00, b"", command=0x20): None,
}


@pytest.mark.parametrize(("header", "source"), WHOLE.items())
def test_a_whole_header_names_its_peer_and_its_end(
    header: bytes, source: tuple[str, int] | None
) -> None:
    assert parse(header + b"\0\0\0\x10frame") == ProxyHeader(len(header), source)


@pytest.mark.parametrize("header", WHOLE)
def test_any_part_of_a_header_is_waited_for(header: bytes) -> None:
    for end in range(1, len(header)):
        assert parse(header[:end]) is None, header[:end]


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x10",
        b"\x16\x03\x01",
        b"PROXY UDP4 192.0.2.7 192.0.2.1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 99999 2\r\n",
        b"PROXY TCP4 host host 1 2\r\n",
        b"PROXY " + b"x" * LINE_BYTES_MAX,
        version_2(0x11, V4),
        version_2(0x11, b"", command=0x31),
        SIGNATURE_V2 + b"\x21\x11\xff\xff",
    ],
)
def test_an_invalid_header_is_rejected(data: bytes) -> None:
    with pytest.raises(FrameError):
        parse(data)
