"""Which origins can open a WebSocket: the rule, behind proxies too."""

from __future__ import annotations

import pytest

from console.serving.origin import is_allowed


def scope(
    host: str = "localhost:8000", *, proto: str = "", scheme: str = "ws"
) -> dict[str, object]:
    headers = [(b"host", host.encode())]
    if proto:
        headers.append((b"x-forwarded-proto", proto.encode()))
    return {"type": "websocket", "scheme": "ws", "path": "/", "headers": headers}


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("localhost:8000", "http://localhost:8000", True),
        ("localhost:8000", "http://LOCALHOST:8000", True),
        ("localhost", "http://localhost:80", True),
        ("[::1]:8000", "http://[::1]:8000", True),
        ("localhost:8000", "http://localhost", False),
        ("localhost:8000", "http://localhost:8000/path", False),
        ("localhost:8000", "http://localhost:99999", False),
        ("localhost:8000", "ftp://localhost:8000", False),
        ("evil.example", "http://evil.example", False),
    ],
)
def test_origin_and_host_are_the_same_address(host, origin, allowed) -> None:
    assert is_allowed(scope(host), origin) == allowed


def test_a_proxys_header_says_whether_the_connection_is_tls(settings) -> None:
    settings.ALLOWED_HOSTS = ["console.example.org"]
    behind = scope("console.example.org", proto="https")

    assert not is_allowed(behind, "https://console.example.org")

    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert is_allowed(behind, "https://console.example.org")
    assert not is_allowed(behind, "http://console.example.org")


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://console.example.org", True),
        ("https://console.example.org:444", False),
        ("http://console.example.org", False),
        ("https://a.example.net", True),
        ("https://a.b.example.net", True),
        ("https://example.net.evil.org", False),
    ],
)
def test_trusted_origins_come_from_settings(settings, origin, allowed) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://console.example.org", "https://*.example.net"]

    assert is_allowed(scope(), origin) == allowed
