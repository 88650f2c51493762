"""Targets: no message makes the console connect to its internal network."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from console.observe.alerts.targets import TargetError, checked, is_public, parsed

INSIDE = (
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1"),
    *("::ffff:10.0.0.1", "::ffff:8.8.8.8", "64:ff9b::a00:1", "2002:0a00:0001::", "2001:db8::1"),
    *("168.63.129.16", "192.0.0.192"),
)


@pytest.mark.parametrize("address", INSIDE)
def test_an_internal_address_is_rejected(settings, address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    settings.TREBUCHET_ALERT_TARGETS = []
    settings.TREBUCHET_ALERT_TARGETS_ONLY = False

    assert not is_public(ipaddress.ip_address(address))
    with pytest.raises(TargetError, match="isn't allowed"):
        checked(parsed(f"https://{host}/hook"))


def test_an_internet_address_is_allowed_only_over_https(settings) -> None:
    settings.TREBUCHET_ALERT_TARGETS = []
    settings.TREBUCHET_ALERT_TARGETS_ONLY = False

    assert checked(parsed("https://8.8.8.8/hook")) == [ipaddress.ip_address("8.8.8.8")]
    with pytest.raises(TargetError, match="https"):
        checked(parsed("http://8.8.8.8/hook"))


def test_with_allowed_targets_only_internet_addresses_are_rejected(settings) -> None:
    settings.TREBUCHET_ALERT_TARGETS = ["10.0.0.0/8"]
    settings.TREBUCHET_ALERT_TARGETS_ONLY = True

    assert checked(parsed("https://10.1.2.3/hook"))
    with pytest.raises(TargetError):
        checked(parsed("https://8.8.8.8/hook"))


@pytest.mark.parametrize(
    ("words", "url", "good"),
    [
        (["127.0.0.1"], "http://127.0.0.1:8080/hook", True),
        (["localhost"], "http://localhost/hook", True),
        (["10.0.0.0/8"], "http://127.0.0.1/hook", False),
        (["10.0.0.0/8"], "http://8.8.8.8/hook", False),
        (["hooks.internal"], "http://127.0.0.1/hook", False),
    ],
)
def test_addresses_named_by_the_machines_administrator_are_allowed(
    settings, words, url, good
) -> None:
    settings.TREBUCHET_ALERT_TARGETS = words
    settings.TREBUCHET_ALERT_TARGETS_ONLY = False

    if good:
        assert checked(parsed(url))
    else:
        with pytest.raises(TargetError):
            checked(parsed(url))


def test_a_name_with_one_internal_address_is_rejected(settings, monkeypatch) -> None:
    settings.TREBUCHET_ALERT_TARGETS = []
    settings.TREBUCHET_ALERT_TARGETS_ONLY = False
    found = [(2, 1, 6, "", ("8.8.8.8", 443)), (2, 1, 6, "", ("127.0.0.1", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_a, **_k: found)

    with pytest.raises(TargetError):
        checked(parsed("https://rebinding.example/hook"))


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://example.com/", "https://", "https:///x", "//example.com", "javascript:x"),
        *("https://a:b@example.com/", "https://a@example.com/", "https://example.com:99999/"),
        *("https://example.com/a b", "https://example.com/\r\nX: 1", "https://exa mple.com/"),
        *("https://[::1", "https://example.com/" + "x" * 2_000, "https://ex\u00e4mple.com/"),
    ],
)
def test_an_invalid_address_is_rejected(url: str) -> None:
    with pytest.raises(TargetError):
        parsed(url)


def test_an_address_is_shown_without_its_secret() -> None:
    target = parsed("https://hooks.slack.com/services/T0/B0/secret?token=x")

    assert target.shown == "https://hooks.slack.com/…"
    assert parsed("http://[::1]:8080/x").host_header == "[::1]:8080"
