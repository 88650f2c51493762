from __future__ import annotations

import ipaddress

import pytest

from broker_core.remoting.broker_hosts import LINK_LOCAL, NO_MACHINE, refusal_reason


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "172.31.0.1",
        "192.168.1.1",
        "100.64.1.1",
        "198.18.0.1",
        "127.0.0.1",
        "8.8.8.8",
        "::1",
        "fd12::1",
        "2a00:1450::7",
        "::ffff:10.0.0.1",
        "64:ff9b::8.8.8.8",
    ],
)
def test_public_private_and_own_addresses_may_be_a_brokers(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address)) is None


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fe80::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::ffff:169.254.169.254",
        "64:ff9b::169.254.169.254",
    ],
)
def test_no_broker_is_at_a_metadata_service_address(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address)) == LINK_LOCAL


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "192.0.0.8",
        "192.0.2.1",
        "203.0.113.9",
        "192.88.99.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "2001:db8::7",
        "fec0::1",
        "ff02::1",
        "2001::1",
        "2002:a9fe:a9fe::1",
        "::ffff:240.0.0.1",
    ],
)
def test_no_broker_is_in_a_special_purpose_range(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address)) == NO_MACHINE
