"""The command line of deploy/up, and its part of the environment.

Standard library only: `deploy/up --help` must answer before anything is installed.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from broker_core.config.broker import BROKERS_MAX
from broker_core.environment import is_secret
from deploy.settings import SETTINGS, TRUE
from deploy.usage import DESCRIPTION, EPILOG
from deploy.virtualenv import ROOT
from deploy.words import told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.settings import Setting

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
    brokers: int | None = None
    """How many masters run, if the command line says it; else the configuration does."""
    has_slave: bool = False
    """Whether each master has a slave beside it."""
    is_verbose: bool = False
    """Whether the terminal shows every line of the logs."""
    lake: str | None = None
    """Where a lake is kept, or `true`; None for nowhere."""
    chosen: Mapping[str, str] = field(default_factory=dict)
    """Values of the given options, by the environment variables that they stand for."""


class Parser(argparse.ArgumentParser):
    """Refuses arguments in one sentence instead of with the whole usage."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(
            told(
                "{message}; deploy/up --help lists the options.",
                message=f"{message[0].upper()}{message[1:]}",
            )
        )


class OptionError(Exception):
    """A setting is invalid; the text is one sentence."""


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Read the command line; an option wins over its environment variable.

    Raises:
        OptionError: a setting is invalid.
        SystemExit: --help.
    """
    parser = Parser(
        prog="deploy/up",
        description=told(DESCRIPTION),
        epilog=told(EPILOG),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-c",
        metavar="FILE",
        type=Path,
        help=told(
            "broker configuration in RocketMQ's key=value form "
            "(default: broker.conf in the data directory, written at the first start)"
        ),
    )
    parser.add_argument(
        "--brokers",
        metavar="N",
        type=int,
        choices=range(1, BROKERS_MAX + 1),
        help=told(
            "start N masters of one cluster, 1 to 16: one for each core that sends may use; each "
            "twenty ports above the one before, with a directory of its own in the data directory "
            "(default: the key brokers of the configuration, else 1; docs/operating.md)"
        ),
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help=told(
            "show every line of the logs; without it warnings and a count a minute, once all runs"
        ),
    )
    for one in SETTINGS:
        text = f"{told(one.help)} [{one.variable}]".replace("%", "%%")
        parser.add_argument(one.option, dest=one.variable, help=text, **one.arguments)
    given = parser.parse_args(arguments)
    chosen = {
        one.variable: value
        for one in SETTINGS
        if (value := getattr(given, one.variable)) is not None
    }
    for one in SETTINGS:
        if one.variable in chosen:
            _require_argument(one, chosen[one.variable])
        value = {**environment, **chosen}.get(one.variable, "").strip()
        if value and one.words and value.lower() not in {word.lower() for word in one.words}:
            raise OptionError(
                told(
                    "{name} is {text!r}; expected {words}.",
                    name=one.option if one.variable in chosen else one.variable,
                    text=value,
                    words=", ".join(one.words),
                )
            )
    environment = {**environment, **chosen}
    web = environment.get("TREBUCHET_WEB", "").strip() or DEFAULT_WEB
    host, port = _host_port("--web" if "TREBUCHET_WEB" in chosen else "TREBUCHET_WEB", web)
    return Options(
        broker_file=given.c.expanduser().resolve() if given.c else None,
        data=data_of(environment),
        web_host=host,
        web_port=port,
        redis_url=environment.get("TREBUCHET_REDIS_URL", "").strip() or None,
        brokers=given.brokers,
        has_slave=environment.get("TREBUCHET_SLAVE", "").strip().lower() in TRUE,
        is_verbose=given.verbose,
        user=environment.get("TREBUCHET_USER", "").strip() or None,
        lake=lake_of(environment.get("TREBUCHET_LAKE", "").strip()),
        chosen=chosen,
    )


def _require_argument(one: Setting, value: str) -> None:
    """Refuse values that an option can't have although its variable can."""
    if not value.strip():
        raise OptionError(
            told("{name} is empty; expected {value}.", name=one.option, value=one.value.strip("[]"))
        )
    if is_secret("", value):
        raise OptionError(
            told(
                "{name} contains a password, and every user of this machine can read a command's "
                "arguments; leave the password out.",
                name=one.option,
            )
        )


def data_of(environment: Mapping[str, str]) -> Path:
    """Return the data directory that the environment names, else the checkout's."""
    data = environment.get("TREBUCHET_DATA", "").strip() or str(ROOT / "data")
    return Path(data).expanduser().resolve()


def lake_of(text: str) -> str | None:
    """Return where TREBUCHET_LAKE says that a lake is kept, or `true`; None for nowhere."""
    return None if text.lower() in ("", "0", "false", "no", "off") else text


def _host_port(name: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
        raise OptionError(
            told(
                "{name} is {text!r}; expected host:port, such as {example}.",
                name=name,
                text=text,
                example=DEFAULT_WEB,
            )
        )
    return host, int(port)
