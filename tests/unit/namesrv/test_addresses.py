from __future__ import annotations

import pytest

from broker_core.namesrv.addresses import check_address


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1:10911",
        "127.0.0.1:1024",
        "192.168.7.9:65535",
        "100.64.0.7:10911",
        "198.19.0.7:10911",
        "8.8.8.8:10911",
        "[2a00:1450::7]:10911",
        "[::1]:10911",
        "[fd12:3456::1]:10911",
        "broker-a:10911",
        "rocketmq_broker_1:10911",
        "broker.example.com.:10911",
        "1broker.7.example:10911",
        "localhost:10911",
        "ip-10-0-0-1.ec2.internal:10911",
        "10.0.0.1.nip.io:10911",
        "broker.deadbeef.example:10911",
        "xn--brker-jua.example:10911",
    ],
)
def test_a_broker_address_is_accepted(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "host:port"),
        ("10.0.0.1", "host:port"),
        (":10911", "host:port"),
        ("10.0.0.1:", "port is not a number"),
        ("10.0.0.1:1 0", "port is not a number"),
        ("10.0.0.1:٣٣٣٣", "port is not a number"),
        ("10.0.0.1:+2222", "port is not a number"),
        ("10.0.0.1:000010911", "port is not a number"),
        ("10.0.0.1:22", "between 1024 and 65535"),
        ("10.0.0.1:0", "between 1024 and 65535"),
        ("10.0.0.1:65536", "between 1024 and 65535"),
        ("2852039166:10911", "four decimal parts"),
        ("0xa9fea9fe:10911", "four decimal parts"),
        ("0251.0376.0251.0376:10911", "four decimal parts"),
        ("169.254.43518:10911", "four decimal parts"),
        ("10.0.0.1.:10911", "four decimal parts"),
        ("10.0.0.1.5:10911", "four decimal parts"),
        ("broker.0x7f:10911", "four decimal parts"),
        ("169.254.169.254:10911", "link-local"),
        ("169.254.1.1:10911", "link-local"),
        ("[fe80::1]:10911", "link-local"),
        ("[fe80::1%eth0]:10911", "zone"),
        ("[::1%lo]:10911", "zone"),
        ("100.100.100.200:10911", "metadata"),
        ("[fd00:ec2::254]:10911", "metadata"),
        ("[FD00:0EC2:0::254]:10911", "metadata"),
        ("Metadata.Google.Internal.:10911", "metadata"),
        ("192.0.0.192:10911", "metadata"),
        ("168.63.129.16:10911", "metadata"),
        ("[fd20:ce::254]:10911", "metadata"),
        ("metadata:10911", "metadata"),
        ("instance-data.ec2.internal:10911", "metadata"),
        ("169.254.169.254.nip.io:10911", "metadata service: its host name spells 169.254.169.254"),
        ("1.169.254.169.254.nip.io:10911", "spells 169.254.169.254"),
        ("app-169-254-169-254.sslip.io:10911", "spells 169.254.169.254"),
        ("100-100-100-200.sslip.io:10911", "spells 100.100.100.200"),
        ("0.0.0.0.nip.io:10911", "spells 0.0.0.0"),
        ("a9fea9fe.nip.io:10911", "spells 169.254.169.254"),
        ("0xc00000c0.nip.io:10911", "spells 192.0.0.192"),
        ("fe80--1.sslip.io:10911", "spells fe80::1"),
        ("fd00-ec2--254.sslip.io:10911", "spells fd00:ec2::254"),
        ("[::ffff:169.254.169.254]:10911", "in the form of an IPv6 address"),
        ("[::ffff:a00:1]:10911", "in the form of an IPv6 address"),
        ("[::169.254.169.254]:10911", "in the form of an IPv6 address"),
        ("[64:ff9b::a9fe:a9fe]:10911", "in the form of an IPv6 address"),
        ("[2002:a9fe:a9fe::1]:10911", "in the form of an IPv6 address"),
        ("0.0.0.0:10911", "not the address of one machine"),
        ("0.1.2.3:10911", "not the address of one machine"),
        ("255.255.255.255:10911", "not the address of one machine"),
        ("240.0.0.1:10911", "not the address of one machine"),
        ("224.0.0.1:10911", "not the address of one machine"),
        ("192.0.0.8:10911", "not the address of one machine"),
        ("192.0.2.1:10911", "not the address of one machine"),
        ("203.0.113.9:10911", "not the address of one machine"),
        ("192.88.99.1:10911", "not the address of one machine"),
        ("[2001:db8::7]:10911", "not the address of one machine"),
        ("[fec0::1]:10911", "not the address of one machine"),
        ("[100::1]:10911", "not the address of one machine"),
        ("[::]:10911", "not the address of one machine"),
        ("[ff02::1]:10911", "not the address of one machine"),
        ("[10.0.0.1]:10911", "not an IPv6 address"),
        ("[]:10911", "not an IPv6 address"),
        ("2001:db8::7:10911", "neither an IP address nor a host name"),
        ("[2001:db8::7:10911", "neither an IP address nor a host name"),
        ("a..b:10911", "neither an IP address nor a host name"),
        ("-a:10911", "neither an IP address nor a host name"),
        ("a b:10911", "neither an IP address nor a host name"),
        ("user@host:10911", "neither an IP address nor a host name"),
        ("host/path:10911", "neither an IP address nor a host name"),
        ("bröker:10911", "neither an IP address nor a host name"),
        ("a\n:10911", "neither an IP address nor a host name"),
        (f"{'a' * 64}:10911", "neither an IP address nor a host name"),
        (f"{'a.' * 127}a:10911", "neither an IP address nor a host name"),
    ],
)
def test_a_path_that_leads_elsewhere_is_rejected_with_the_reason(address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_address(address)


def test_with_a_minimum_of_1_a_low_port_is_valid() -> None:
    check_address("10.0.0.1:911", port_min=1)
    with pytest.raises(ValueError, match="between 1 and 65535"):
        check_address("10.0.0.1:0", port_min=1)
