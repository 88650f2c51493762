"""A PostgreSQL server from Debian, on a socket in a private directory; no TCP port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINE = "django.db.backends.postgresql"
VERSIONS = Path("/usr/lib/postgresql")
SERVER_USER = "postgres"
"""The server refuses to run as root."""
START_SECONDS = "60"


def programs() -> Path | None:
    """Return the directory of the newest server's programs, or None if there isn't one."""
    found = sorted(VERSIONS.glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def postgres(binaries: Path) -> Iterator[dict[str, Any]]:
    """Run a server; yield Django's settings for an empty database."""
    # Not pytest's directory, which only root can enter.
    home = Path(tempfile.mkdtemp(prefix="trebuchet-pg-"))
    user = SERVER_USER if os.geteuid() == 0 else None
    if user is not None:
        os.chown(home, pwd.getpwnam(user).pw_uid, -1)
    data = home / "data"

    def run(program: str, *arguments: str) -> None:
        command = [str(binaries / program), "-D", str(data), *arguments]
        subprocess.run(command, user=user, cwd=home, check=True, capture_output=True)

    try:
        run("initdb", "--auth", "trust", "--username", "tests", "--no-sync", "-E", "UTF8")
        options = f"-c listen_addresses= -c unix_socket_directories={home} -c fsync=off"
        run("pg_ctl", "-w", "-t", START_SECONDS, "-l", str(home / "log"), "-o", options, "start")
        yield {"ENGINE": ENGINE, "NAME": "postgres", "USER": "tests", "HOST": str(home)}
    finally:
        if (data / "postmaster.pid").exists():
            run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(home)
