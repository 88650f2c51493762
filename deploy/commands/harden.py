"""Prints sandboxed systemd units for the appliance: the part of deploy/harden inside .venv.

Options and environment are those of deploy/up; secrets must be in files.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from broker_core.environment import without_secrets
from deploy.brokers import broker_file, cluster
from deploy.install.requirements import ROOT
from deploy.machine import java, redis_server
from deploy.machine.data_directory import NotStartedError
from deploy.processes import programs, units
from deploy.settings import options, secret_files
from deploy.terminal.output import complain, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.brokers.broker_file import BrokerSettings
    from deploy.settings.options import Options

OTHERS = ("FORWARDED_ALLOW_IPS", "JAVA_HOME")
"""Variables without our prefix that the console's processes or reports read."""
OWN = re.compile(r"TREBUCHET_(ADMIN|DATA$|HANDED_FD|REDIS_URL|STARTED_AT|TEST_|USER$)")
"""Variables that only deploy/up reads, or that the units get in another way."""
SYSTEM_DIRECTORY = "/etc/systemd/system"


class HardenError(Exception):
    """The units can't be created; the text is one sentence."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; SystemExit for --help (0) or bad arguments (2)."""
    parser = argparse.ArgumentParser(
        prog="deploy/harden",
        description="Print systemd units (broker, console, Redis, reports and a target for all) "
        "with a sandbox, for this checkout and the environment of deploy/up (deploy/up --help). "
        "The first lines say how to install them; see also docs/hardening.md.",
        epilog="Put secrets in files (TREBUCHET_SECRET_KEY_FILE, DATABASE_URL_FILE and so on); "
        "systemd passes them to the services, so only root needs access.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-c",
        metavar="FILE",
        type=Path,
        help="broker configuration with storePathRootDir "
        "(default: broker.conf in the data directory, created now if missing)",
    )
    parser.add_argument(
        "--to", metavar="DIR", type=Path, help=f"write the units to DIR, such as {SYSTEM_DIRECTORY}"
    )
    return parser.parse_args(arguments)


def texts(
    asked: Options, environment: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    """Return the text of each unit by file name.

    `secrets` are the secrets with values in the environment.

    Raises:
        HardenError: the units would be wrong, or contain a secret.
        BrokerFileError: the broker rejects its configuration.
        NotStartedError: the environment selects an engine that can't run.
    """
    if secrets:
        name = min(secrets)
        raise HardenError(
            f"{name} would be in a unit file, which every user can read. Write its value to a file "
            f"that only root can read, and set {name}_FILE to that file."
        )
    if asked.user == "root":
        raise HardenError("The units can't run as root. Set TREBUCHET_USER to another user.")
    file = broker_file.effective_file(asked.broker_file, asked.data)
    if asked.broker_file not in (None, file):
        raise HardenError(
            f"{asked.broker_file} doesn't set storePathRootDir. Add it, such as "
            f"storePathRootDir={asked.data / 'store'}."
        )
    own = cluster.settings(broker_file.settings(file), asked)
    redis_command: Sequence[str] | None = None
    has_own_redis = not (asked.redis_url or environment.get("TREBUCHET_REDIS_URL_FILE"))
    if has_own_redis:
        binary = redis_server.find()
        if binary is None:
            raise HardenError(
                "redis-server isn't installed. Install it, or set TREBUCHET_REDIS_URL."
            )
        socket = Path(units.REDIS_SOCKET)
        redis_command = redis_server.command(binary, socket, asked.data / "redis")
    chosen = sorted(
        programs.chosen(asked, own, redis_command, with_queue=True, as_root=False),
        key=lambda one: one.priority,
    )
    place = place_of(asked, own, environment, has_own_redis=has_own_redis)
    found = {
        units.name_of(one.name): units.service(one, [each.name for each in chosen[:index]], place)
        for index, one in enumerate(chosen)
    }
    return {units.TARGET: units.target(chosen), **found}


def place_of(
    asked: Options,
    own: Mapping[str, BrokerSettings],
    environment: Mapping[str, str],
    *,
    has_own_redis: bool,
) -> units.Place:
    filed = {f"{name}_FILE" for name in secret_files.FILED}
    variables = {
        name: value
        for name, value in without_secrets(environment).items()
        if value and (name in OTHERS or (name.startswith("TREBUCHET_") and not OWN.match(name)))
        if name not in filed
    }
    engine = java.engine(environment, java.missing())
    variables |= programs.variables(asked, own, environment.get("TREBUCHET_BROKERS", ""), engine)
    if has_own_redis:
        variables["TREBUCHET_REDIS_URL"] = redis_server.url(Path(units.REDIS_SOCKET))
    elif asked.redis_url:
        variables["TREBUCHET_REDIS_URL"] = asked.redis_url
    credentials = {
        name: Path(environment[f"{name}_FILE"]).absolute()
        for name in secret_files.FILED
        if environment.get(f"{name}_FILE")
    }
    # With a remote database, Redis, name server or broker, any address may be needed.
    near = {"127.0.0.1", "localhost", "::1", None}
    is_remote = (
        "DATABASE_URL" in credentials
        or "TREBUCHET_REDIS_URL" in credentials
        or urlsplit(asked.redis_url or "").hostname not in near
        or own[cluster.FIRST].namesrv_port is None
        or bool(environment.get("TREBUCHET_BROKERS"))
        or "://" in (asked.lake or "")
    )
    lakes = [Path(asked.lake)] if asked.lake is not None and asked.lake.startswith("/") else []
    stores = [Path(each) for one in own.values() for each in (one.store, one.commit_log)]
    return units.Place(
        user=asked.user or options.DEFAULT_USER,
        reads=[ROOT, Path(sys.base_prefix), *(one.file for one in own.values())],
        writes=[asked.data, *stores, *lakes],
        variables=variables,
        credentials=credentials,
        listens={
            **{
                name: [(one.bind_address, port) for _, port, _ in one.ports]
                for name, one in own.items()
            },
            "web": [(asked.web_host, asked.web_port)],
        },
        is_remote=is_remote,
    )


def steps(asked: Options, given: Sequence[str]) -> list[str]:
    """Return the commands that root runs to install the units."""
    user = asked.user or options.DEFAULT_USER
    data = shlex.quote(str(asked.data))
    python = ROOT / ".venv" / "bin" / "python"
    prepare = shlex.join(
        [
            *("runuser", "-u", user, "--", "env", "-C", str(ROOT)),
            *(f"TREBUCHET_DATA={asked.data}", f"TREBUCHET_WEB={asked.web_host}:{asked.web_port}"),
            *(str(python), "-m", "deploy.commands.prepare"),
        ]
    )
    made = []
    try:
        pwd.getpwnam(user)
    except KeyError:
        made = [shlex.join([*options.USER_COMMAND[:-1], user])]
    return [
        *made,
        f"mkdir -p {data}/redis && chown -hR {user}: {data} && chmod 700 {data}",
        f"{prepare}  # prints the administrator's password once",
        shlex.join([str(ROOT / "deploy" / "harden"), *given, "--to", SYSTEM_DIRECTORY]),
        f"systemctl daemon-reload && systemctl enable --now {units.TARGET}",
    ]


def main(arguments: Sequence[str]) -> int:
    given = parse(arguments)
    secrets = secret_files.values(os.environ)
    file = [] if given.c is None else ["-c", str(given.c)]
    os.umask(0o077)
    try:
        asked = options.parse(file, os.environ)
        found = texts(asked, os.environ, secrets)
        if given.to is None:
            say("# To install these units, run as root:")
            for step in steps(asked, file):
                say(f"#   {step}")
            for name, text in found.items():
                say(f"\n# {SYSTEM_DIRECTORY}/{name}\n{text}")
            return 0
        for name, text in found.items():
            path = given.to / name
            path.write_text(text)
            path.chmod(0o644)
            say(str(path))
    except (
        HardenError,
        NotStartedError,
        broker_file.BrokerFileError,
        options.OptionError,
    ) as error:
        complain(str(error))
        return 2
    except OSError as error:
        complain(f"Can't write {error.filename}: {error.strerror}.")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
