"""Ids."""

from __future__ import annotations

import pytest

from broker_core.message.ids import host_bytes, host_text, offset_msg_id, parse_offset_msg_id


def test_an_offset_msg_id_is_host_and_offset_in_upper_case_hex() -> None:
    assert offset_msg_id(host_bytes("127.0.0.1", 11911), 0xF7117) == (
        "7F00000100002E8700000000000F7117"
    )


@pytest.mark.parametrize("host", ["10.0.0.7:10911", "[fe80::1]:10911"])
def test_built_text_can_be_parsed(host: str) -> None:
    ip, port = host.strip("[").replace("]", "").rsplit(":", 1)
    data = host_bytes(ip, int(port))

    assert host_text(data) == host
    assert parse_offset_msg_id(offset_msg_id(data, 1 << 40)) == (host, 1 << 40)


@pytest.mark.parametrize("text", ["", "xyz", "0" * 31, "G" * 32, "0" * 33, "\u0660" * 32])
def test_another_text_is_not_an_id(text: str) -> None:
    assert parse_offset_msg_id(text) is None


@pytest.mark.parametrize(
    "unique_key",
    [
        "0A01020300002A9FAAC257A100010002",  # the port is possible, the offset negative
        "0A0102031A2B18B4AAC257A100010002",  # a Java 8 client
        "FE800000000000000000000000000001" + "00002A9F" + "FF" * 8,
    ],
)
def test_a_unique_key_with_an_impossible_port_or_offset_is_no_id(unique_key: str) -> None:
    assert len(unique_key) in {32, 56}
    assert parse_offset_msg_id(unique_key) is None
