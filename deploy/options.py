"""The command line of deploy/up, and its part of the environment.

Standard library only: `deploy/up --help` must answer before anything is installed.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.virtualenv import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EPILOG = """\
environment:
  TREBUCHET_WEB             address of the console's pages (default 127.0.0.1:8000)
  TREBUCHET_DATA            directory for everything written (default ./data in the checkout)
  TREBUCHET_USER            started by root, the user that everything runs as (default
                            trebuchet, a system user that is made when missing); root stays root
  TREBUCHET_ADMIN           name of the first administrator (default admin)
  TREBUCHET_ADMIN_PASSWORD  that administrator's password; without it one is generated and
                            printed once
  TREBUCHET_REDIS_URL       a Redis of your own, e.g. redis://127.0.0.1:6379/0; without it one is
                            started, on a unix socket that only this user can open
  TREBUCHET_ALLOWED_HOSTS   host names, separated by commas, under which the pages may be visited
  TREBUCHET_BEHIND_PROXY    true when a reverse proxy on this machine terminates TLS; with it
                            TREBUCHET_HTTPS=true and TREBUCHET_TRUSTED_ORIGINS=https://name
  TREBUCHET_BROKER_ACCESS_KEY, TREBUCHET_BROKER_SECRET_KEY (or _SECRET_KEY_FILE)
                            the administrator's account in plain_acl.yml with which the console
                            works with a broker whose aclEnable is true
  TREBUCHET_BROKERS         further brokers that it asks with this account, host:port separated by
                            semicolons; others must be confirmed on the overview
  TREBUCHET_SLAVE           true: the same as --slave
  TREBUCHET_LAKE            true, a directory or s3://bucket/prefix: keep the broker's messages as
                            Delta tables there, true in the data directory (docs/lake.md)
  TREBUCHET_LANGUAGE        en (default) or zh-hans: the console's language for whoever chose none
  TREBUCHET_LOG_LEVEL       the console's log level (default INFO)
  DATABASE_URL              the console's database, e.g. postgres://user@host/name
                            (default: SQLite in the data directory)
  JAVA_HOME                 the Java 17 or newer that runs the reports (default: java on PATH)

ports:
  The broker's ports and directories are set in its configuration: FILE, or broker.conf in the data
  directory, which the first start writes. Two appliances run side by side when each has its own
  TREBUCHET_DATA, TREBUCHET_WEB, listenPort and namesrvListenPort.

exit code:
  0  it was asked to stop (Ctrl-C or SIGTERM), and every process did its work until then
  1  a process could not be kept running; the last lines say which, and where its log is
  2  nothing was started: bad configuration, a port that is taken, a data directory in use, or
     something missing on this machine
"""

DEFAULT_WEB = "127.0.0.1:8000"
DEFAULT_USER = "trebuchet"
USER_COMMAND = [
    *("useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"),
    *("--shell", "/usr/sbin/nologin", DEFAULT_USER),
]
PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class Options:
    """Arguments and environment, with absolute paths."""

    broker_file: Path | None
    data: Path
    web_host: str
    web_port: int
    redis_url: str | None
    user: str | None
    """The user to run as, if somebody chose one."""
    has_slave: bool = False
    """Whether a second broker of the set runs beside the first."""
    is_verbose: bool = False
    """Whether the terminal shows every line of the logs."""
    lake: str | None = None
    """Where a lake is kept, or `true`; None for nowhere."""


class OptionError(Exception):
    """An environment variable makes no sense; the text is one sentence."""


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Read the command line.

    Raises:
        OptionError: an environment variable makes no sense.
        SystemExit: --help (0), or arguments that make no sense (2).
    """
    parser = argparse.ArgumentParser(
        prog="deploy/up",
        description="Bring up the whole appliance (name server, broker, console, reports) and\n"
        "stay in the foreground; Ctrl-C stops all of it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-c",
        metavar="FILE",
        type=Path,
        help="broker configuration in RocketMQ's key=value form "
        "(default: broker.conf in the data directory, written at the first start)",
    )
    parser.add_argument(
        "--slave",
        action="store_true",
        help="start a second broker of the set beside the first, ten ports above it, with a store "
        "of its own in the data directory: its slave (docs/replication.md)",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="show every line of the logs; without it warnings and a count a minute, once all runs",
    )
    given = parser.parse_args(arguments)
    web = environment.get("TREBUCHET_WEB", "").strip() or DEFAULT_WEB
    host, port = _host_port(web)
    data = environment.get("TREBUCHET_DATA", "").strip() or str(ROOT / "data")
    return Options(
        broker_file=given.c.expanduser().resolve() if given.c else None,
        data=Path(data).expanduser().resolve(),
        web_host=host,
        web_port=port,
        redis_url=environment.get("TREBUCHET_REDIS_URL", "").strip() or None,
        has_slave=given.slave
        or environment.get("TREBUCHET_SLAVE", "").strip().lower() in ("1", "true", "yes"),
        is_verbose=given.verbose,
        user=environment.get("TREBUCHET_USER", "").strip() or None,
        lake=_lake(environment.get("TREBUCHET_LAKE", "").strip()),
    )


def _lake(text: str) -> str | None:
    return None if text.lower() in ("", "0", "false", "no", "off") else text


def _host_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
        raise OptionError(f"TREBUCHET_WEB is {text!r}; expected host:port, such as {DEFAULT_WEB}.")
    return host, int(port)
