"""Installs Debian packages, if this process may."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.terminal.output import complain, say
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY = Path("/usr/sbin/policy-rc.d")
DENY_ALL_SERVICES = "#!/bin/sh\nexit 101\n"


def may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def command_for(*packages: str) -> str:
    """The command for a person to type."""
    return f"sudo apt-get install --no-install-recommends {' '.join(packages)}"


def install(*packages: str) -> bool:
    """Install without starting services; on failure, show apt's output and return False."""
    say(translated("Installing Debian's {names}", names=", ".join(packages)))
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    get = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300"]
    with _no_services_started():
        for command in (
            [*get, "update"],
            [*get, "install", "-y", "--no-install-recommends", *packages],
        ):
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            if done.returncode != 0 and "install" in command:
                complain(done.stdout.rstrip())
                return False
    return True


@contextlib.contextmanager
def _no_services_started() -> Iterator[None]:
    """Keep packages from starting their services, because the appliance runs its own instances.

    Leaves an existing policy alone, because it is the machine's own.
    """
    if POLICY.exists():
        yield
        return
    POLICY.write_text(DENY_ALL_SERVICES)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
