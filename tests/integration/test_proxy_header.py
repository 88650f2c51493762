"""The allow list of access control behind a proxy: only a trusted peer's PROXY header counts."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import GET_BROKER_RUNTIME_INFO, request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROXY, STRANGER = "127.0.0.1", "127.0.0.2"
WHITE, OTHER = "192.0.2.7", "192.0.2.8"


@pytest.fixture
def broker(tmp_path: Path, trusted: str) -> Iterator[BrokerProcess]:
    accounts = tmp_path / "broker" / "conf" / "plain_acl.yml"
    accounts.parent.mkdir(parents=True)
    accounts.write_text(yaml.safe_dump({"globalWhiteRemoteAddresses": [WHITE]}))
    process = BrokerProcess(
        tmp_path / "broker",
        aclEnable="true",
        haProxyProtocolEnable="true",
        proxyProtocolTrusted=trusted,
    )
    process.start()
    yield process
    process.stop()


def answer_to(port: int, source: str, named: str) -> bytes:
    """Return the answer to a peer at one address with another in its PROXY header."""
    header = f"PROXY TCP4 {named} 192.0.2.1 56324 10911\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), 10, source_address=(source, 0)) as peer:
        try:
            peer.sendall(header + request(GET_BROKER_RUNTIME_INFO))
            return peer.recv(1 << 16)
        except (ConnectionResetError, BrokenPipeError):
            return b""


@pytest.mark.parametrize("trusted", [PROXY])
def test_a_spoofed_whitelist_address_does_not_pass(broker: BrokerProcess) -> None:
    for port in (broker.port, broker.port - 2):
        assert b'"code":0' in answer_to(port, PROXY, WHITE)
        assert b"No accessKey is configured" in answer_to(port, PROXY, OTHER)
        assert answer_to(port, STRANGER, WHITE) == b""
    assert answer_to(broker.namesrv_port, STRANGER, WHITE) == b""


@pytest.mark.parametrize("trusted", [""])
def test_without_a_list_no_header_is_trusted_and_that_is_reported(broker: BrokerProcess) -> None:
    for _ in range(20):
        assert answer_to(broker.port, PROXY, WHITE) == b""
        assert answer_to(broker.namesrv_port, PROXY, WHITE) == b""

    lines = broker.words().splitlines()
    at_start = [line for line in lines if "haProxyProtocolEnable=true without" in line]
    refused = [line for line in lines if "all connections refused" in line]
    assert [len(at_start), len(refused)] == [1, 1]
