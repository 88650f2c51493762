"""The command line of deploy/up, and the environment variables that it reads.

Standard library only: `deploy/up --help` must work before anything is installed.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from broker_core.config.broker import BROKERS_MAX
from broker_core.environment import is_secret
from deploy.install.virtualenv import ROOT
from deploy.settings.variables import SETTINGS, TRUE
from deploy.terminal.translation import translated
from deploy.terminal.up_help import DESCRIPTION, EPILOG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.settings.variables import Setting

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
    """The user to run as, if set explicitly."""
    brokers: int | None = None
    """The number of masters on the command line; None for the configuration's."""
    has_slave: bool = False
    """Whether each master has a slave."""
    is_verbose: bool = False
    """Whether the terminal shows every line of the logs."""
    lake: str | None = None
    """The lake's location, or `true`; None for no lake."""
    chosen: Mapping[str, str] = field(default_factory=dict)
    """Values of the given options, by their environment variables."""


class Parser(argparse.ArgumentParser):
    """A parser that reports a bad argument in one sentence, without the whole usage."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(
            translated(
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
        description=translated(DESCRIPTION),
        epilog=translated(EPILOG),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-c",
        metavar="FILE",
        type=Path,
        help=translated(
            "broker configuration in RocketMQ's key=value form "
            "(default: broker.conf in the data directory, written at the first start)"
        ),
    )
    parser.add_argument(
        "--brokers",
        metavar="N",
        type=int,
        choices=range(1, BROKERS_MAX + 1),
        help=translated(
            "start N masters of one cluster, 1 to 16: one for each core that sends may use; "
            "each listens twenty ports above the previous one and has its own directory in "
            "the data directory (default: the key brokers of the configuration, else 1; "
            "docs/operating.md)"
        ),
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help=translated("show every line of the logs instead of warnings and a count per minute"),
    )
    for one in SETTINGS:
        text = f"{translated(one.help)} [{one.variable}]".replace("%", "%%")
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
                translated(
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
    """Reject values that are valid only for an option's variable."""
    if not value.strip():
        raise OptionError(
            translated(
                "{name} is empty; expected {value}.", name=one.option, value=one.value.strip("[]")
            )
        )
    if is_secret("", value):
        raise OptionError(
            translated(
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
    """Return the lake's location in TREBUCHET_LAKE, or `true`; None for no lake."""
    return None if text.lower() in ("0", "false", "no", "off") else text or "true"


def _host_port(name: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
        raise OptionError(
            translated(
                "{name} is {text!r}; expected host:port, such as {example}.",
                name=name,
                text=text,
                example=DEFAULT_WEB,
            )
        )
    return host, int(port)
