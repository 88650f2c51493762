"""`python -m console.serving --host HOST --port PORT`: the web server of the console."""

from __future__ import annotations

import argparse
import ipaddress
import sys
from typing import TYPE_CHECKING

import uvicorn
from django.core.exceptions import ImproperlyConfigured

from console.env import Environment
from console.serving.door import Door
from console.serving.protocols import HEADER_BYTES_MAX, DoorConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv4Network, IPv6Network

WEB_SOCKET_BYTES_MAX = 65_536
IDLE_SECONDS_MAX = 5
SHUTDOWN_SECONDS_MAX = 3
NOT_STARTED = 3
PROXIES_VARIABLE = "FORWARDED_ALLOW_IPS"
"""uvicorn's own name."""
DEFAULT_PROXIES = ["127.0.0.1", "::1"]
EVERYWHERE = ["0.0.0.0/0", "::/0"]


def trusted_proxies(env: Environment) -> list[IPv4Network | IPv6Network]:
    """Return the networks of the proxies whose X-Forwarded-For counts.

    Raises:
        ImproperlyConfigured: an item is neither an address nor a network nor `*`.
    """
    if not env.flag("TREBUCHET_BEHIND_PROXY", default=False):
        return []
    names = env.names(PROXIES_VARIABLE) or DEFAULT_PROXIES
    if "*" in names:
        names = EVERYWHERE
    try:
        return [ipaddress.ip_network(name, strict=False) for name in names]
    except ValueError as error:
        expected = "addresses or networks, separated by commas, or *"
        raise ImproperlyConfigured(f"{PROXIES_VARIABLE}: {error}; expected {expected}.") from error


def configuration(host: str, port: int, proxies: Sequence[IPv4Network | IPv6Network]) -> DoorConfig:
    return DoorConfig(
        "console.asgi:application",
        door=Door(proxies=proxies),
        host=host,
        port=port,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        ws_max_size=WEB_SOCKET_BYTES_MAX,
        timeout_keep_alive=IDLE_SECONDS_MAX,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS_MAX,
        access_log=False,
        # uvicorn logs through Django's logging setup, which escapes each line.
        log_config=None,
        server_header=False,
        lifespan="on",
        # Anyone can send X-Forwarded-For; only trust a proxy's.
        proxy_headers=bool(proxies),
        forwarded_allow_ips=[str(each) for each in proxies],
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="console.serving", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args()
    try:
        proxies = trusted_proxies(Environment())
    except ImproperlyConfigured as error:
        sys.stderr.write(f"{error}\n")
        return NOT_STARTED
    server = uvicorn.Server(configuration(asked.host, asked.port, proxies))
    server.run()
    return 0 if server.started else NOT_STARTED


if __name__ == "__main__":
    sys.exit(main())
