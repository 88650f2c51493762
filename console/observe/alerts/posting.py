"""Sends one HTTP request to a target, without redirects or proxies, with time and size limits."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from typing import TYPE_CHECKING, NamedTuple

from console.observe.alerts.targets import checked, first_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.observe.alerts.targets import Target

SECONDS_MAX = 10.0
BODY_BYTES_MAX = 16_384
USER_AGENT = "Trebuchet-Alerts/1"


class Answer(NamedTuple):
    """A target's response; `text` is the start of its body."""

    status: int
    reason: str
    text: str
    retry_after_s: int | None


def request(method: str, target: Target, headers: Mapping[str, str], body: bytes | None) -> Answer:
    """Send one request and return its response, whatever its status.

    Raises:
        TargetError: the target isn't allowed.
        OSError, http.client.HTTPException: the request failed or took longer than SECONDS_MAX.
    """
    address = first_of(checked(target))
    connected = socket.create_connection((address, target.port), timeout=SECONDS_MAX)
    # Each read may take SECONDS_MAX, so a slow peer could keep the request open without this.
    watchdog = threading.Timer(SECONDS_MAX, _close_connection, [connected])
    watchdog.daemon = True
    watchdog.start()
    try:
        if target.scheme == "https":
            connected = ssl.create_default_context().wrap_socket(
                connected, server_hostname=target.host
            )
        connection = http.client.HTTPConnection(target.host, target.port)
        connection.sock = connected
        sent = {
            "Host": target.host_header,
            "User-Agent": USER_AGENT,
            "Connection": "close",
            **headers,
        }
        connection.request(method, target.path, body, sent)
        response = connection.getresponse()
        text = response.read(BODY_BYTES_MAX).decode("utf-8", "replace")
        after = response.headers.get("Retry-After", "")
        wait = int(after) if after.isascii() and after.isdigit() and len(after) < 9 else None
        return Answer(response.status, response.reason, text, wait)
    finally:
        watchdog.cancel()
        connected.close()


def _close_connection(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
