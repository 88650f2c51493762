"""Passes the console's secrets from deploy/up's environment to the processes that need them.

They are removed from the environment first, cross each exec in an anonymous file, and reach the
console in files that only its user may read: NAME_FILE names the file, as console.env expects.
Secrets that were in such a file from the start are passed in the same way. Standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.environment import is_secret, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

ADMIN_PASSWORD = "TREBUCHET_ADMIN_PASSWORD"
REDIS_URL = "TREBUCHET_REDIS_URL"
FILED = (
    "DATABASE_URL",
    "PGPASSWORD",
    "TREBUCHET_BROKER_ACCESS_KEY",
    "TREBUCHET_BROKER_SECRET_KEY",
    REDIS_URL,
    "TREBUCHET_METRICS_TOKEN",
    "TREBUCHET_SECRET_KEY",
    "TREBUCHET_SECRET_KEY_FALLBACKS",
    "TREBUCHET_SMTP_PASSWORD",
)
"""The secrets that the console reads through console.env.Environment.secret while it runs."""
NAMES = (ADMIN_PASSWORD, *FILED)
HANDED_FD = "TREBUCHET_HANDED_FD"
"""The descriptor with the secrets for the next program of this process."""
BYTES_MAX = 1 << 20


def take(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Return the console's secrets and remove all secrets from the environment."""
    secrets = _received(environment) | _in_files(environment)
    secrets |= {name: environment[name] for name in NAMES if environment.get(name)}
    kept = without_secrets(environment)
    for name in [name for name in environment if name not in kept or name in NAMES]:
        del environment[name]
    return secrets


def values(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets with values in the environment."""
    return {
        name: environment[name]
        for name in FILED
        if environment.get(name)
        and (name != "TREBUCHET_REDIS_URL" or is_secret(name, environment[name]))
    }


def pass_on(secrets: Mapping[str, str], environment: MutableMapping[str, str]) -> None:
    """Keep the secrets for the program that this process becomes by exec, for `take`."""
    # No MFD_CLOEXEC: the descriptor must survive the exec.
    descriptor = os.memfd_create("trebuchet", 0)
    os.write(descriptor, json.dumps(dict(secrets)).encode())
    environment[HANDED_FD] = str(descriptor)


def write(directory: Path, secrets: Mapping[str, str]) -> dict[str, str]:
    """Write new files; return the variables that name them."""
    remove(directory)
    directory.mkdir(mode=0o700)
    return dict(_written(directory, secrets))


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


def _written(directory: Path, secrets: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in FILED:
        if name in secrets:
            file = directory / name.lower()
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as opened:
                # Only the first line counts.
                opened.write(" ".join(secrets[name].split()) + "\n")
            yield f"{name}_FILE", str(file)


def _in_files(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Return the secrets in files that the environment names; unusable files stay named."""
    found = {}
    for name in NAMES:
        try:
            with Path(environment.get(f"{name}_FILE", "").strip()).open(encoding="utf-8") as file:
                line = file.read(BYTES_MAX).partition("\n")[0].strip()
        except (OSError, UnicodeDecodeError):
            continue
        if line:
            found[name] = line
            del environment[f"{name}_FILE"]
    return found


def _received(environment: MutableMapping[str, str]) -> dict[str, str]:
    descriptor = environment.pop(HANDED_FD, "")
    if not descriptor:
        return {}
    number = int(descriptor)
    try:
        table: dict[str, str] = json.loads(os.pread(number, BYTES_MAX, 0))
        return table
    finally:
        os.close(number)
