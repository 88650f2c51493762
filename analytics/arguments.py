"""The command line of a report: its name, log and parameters."""

from __future__ import annotations

import argparse
import functools
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from analytics.reports.catalog import REPORTS
from analytics.reports.report import HOURS
from analytics.request import (
    CONNECT_PREFIX,
    LOOPBACK,
    MASTER_DEFAULT,
    MS_A_MINUTE,
    Request,
)
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from analytics.reports.report import Parameter, Value

EXIT_FAILED = 1
EXIT_BAD_ARGUMENTS = 2
MASTER = re.compile(
    r"local|local\[(\*|[1-9]\d{0,2})\]|spark://[A-Za-z0-9._:,\[\]-]+|yarn"
    r"|k8s://(https?://)?[A-Za-z0-9._:\[\]-]+"
    r"|sc://[A-Za-z0-9._:\[\]-]+(/|/;use_ssl=(true|false))?"
)
TOKEN = "token="
TIMESTAMP_DIGITS_MAX = 15
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
MS_AN_HOUR = 3_600_000
DESCRIBE = "describe"
SERVE = "serve"
DESCRIBE_HELP = (
    "Print the available reports as JSON, with their parameters, columns and requirements."
)
PARAMETER_PREFIX = "parameter_"


class Arguments(argparse.ArgumentParser):
    """An argument parser that reports each error as one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_ARGUMENTS, f"{self.prog}: {message}\n")


def parse_arguments(arguments: Sequence[str]) -> Request | None:
    """Return the request, or None for `describe`. Exits with code 2 and one sentence on bad
    arguments.
    """
    parser = Arguments(
        prog="python -m analytics", description="Make a report from a store's message log."
    )
    commands = parser.add_subparsers(
        dest="command", metavar="REPORT", required=True, parser_class=Arguments
    )
    commands.add_parser(
        DESCRIBE, help="print the available reports as JSON", description=DESCRIBE_HELP
    )
    commands.add_parser(SERVE, help="run jobs from standard input in one warm Spark session")
    for report in REPORTS.values():
        one = commands.add_parser(report.name, help=report.title, description=report.question)
        for parameter in report.parameters:
            one.add_argument(
                f"--{parameter.name}",
                dest=PARAMETER_PREFIX + parameter.name,
                type=_value_of(parameter),
                metavar=parameter.name[0].upper(),
                help=parameter.label,
            )
        _add_options_of_a_run(one)
    given = parser.parse_args(arguments)
    if given.command == DESCRIBE:
        return None
    report = REPORTS[given.command]
    parameters = {
        parameter.name: value
        for parameter in report.parameters
        if (value := getattr(given, PARAMETER_PREFIX + parameter.name)) is not None
    }
    if HOURS.name in parameters:
        if given.from_ms is not None:
            parser.error("--hours and --from can't be combined")
        given.from_ms = _hours_back(int(parameters[HOURS.name]), datetime.now(UTC))
    if given.from_ms is not None and given.to_ms is not None and given.from_ms >= given.to_ms:
        parser.error(f"--from {given.from_ms} must be before --to {given.to_ms}")
    if set(str(given.out.absolute())) & set(',"\\'):
        parser.error(f"--out {given.out} can't have a comma, quote or backslash in its path")
    return Request(
        report=report.with_parameters(parameters),
        store=given.store,
        commit_log=given.commit_log,
        out=given.out,
        from_ms=given.from_ms,
        to_ms=given.to_ms,
        parameters=parameters,
        master=given.master,
        driver_host=given.driver_host,
        lake=given.lake,
        lake_state=given.lake_state,
        brokers=given.brokers,
    )


def _add_options_of_a_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", type=Path, required=True, metavar="DIR", help="storePathRootDir")
    parser.add_argument(
        "--commit-log", type=Path, metavar="DIR", help="storePathCommitLog, if it is set"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="directory of the result"
    )
    parser.add_argument(
        "--from", dest="from_ms", type=_timestamp_ms, metavar="MS", help="stored at or after"
    )
    parser.add_argument(
        "--to", dest="to_ms", type=_timestamp_ms, metavar="MS", help="stored before"
    )
    parser.add_argument(
        "--master",
        type=_master,
        default=os.environ.get("TREBUCHET_SPARK_MASTER", "").strip() or MASTER_DEFAULT,
        help=f"{MASTER_DEFAULT} (default), local[*], spark://HOST:PORT, yarn, k8s://HOST:PORT, or "
        "sc://HOST:PORT, a Spark Connect server; sc://HOST:PORT/;use_ssl=true over TLS "
        "(default: $TREBUCHET_SPARK_MASTER)",
    )
    parser.add_argument(
        "--driver-host",
        default=os.environ.get("TREBUCHET_SPARK_DRIVER_HOST", "").strip() or LOOPBACK,
        metavar="HOST",
        help=f"address where a cluster reaches this process (default {LOOPBACK})",
    )
    parser.add_argument(
        "--lake",
        metavar="URI",
        help="read this lake if it gives the same numbers: a directory, or s3://",
    )
    parser.add_argument(
        "--lake-state", type=Path, metavar="DIR", help="directory for the state of a lake in S3"
    )
    parser.add_argument(
        "--brokers",
        default="",
        metavar="TEXT",
        help="name servers, or options of the source rocketmq as name=value, separated by blanks; "
        "used if a cluster doesn't see the log",
    )


def _hours_back(hours: int, now: datetime) -> int:
    """Return the time this many hours ago in ms since epoch, rounded down to the minute."""
    return (int(now.timestamp() * 1000) - hours * MS_AN_HOUR) // MS_A_MINUTE * MS_A_MINUTE


def _value_of(parameter: Parameter) -> Callable[[str], Value]:
    """Return the argparse type of a parameter, which also checks its range."""
    match parameter.type:
        case "integer":
            return functools.partial(_integer, parameter)
        case "topic":
            return _topic
        case "text":
            return functools.partial(_text, parameter)


def _integer(parameter: Parameter, text: str) -> int:
    least = INTEGER_MIN if parameter.minimum is None else parameter.minimum
    most = INTEGER_MAX if parameter.maximum is None else parameter.maximum
    if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII) or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(
            f"expected a whole number from {least} to {most}, got {text!r}"
        )
    return int(text)


def _text(parameter: Parameter, text: str) -> str:
    if parameter.maximum is not None and len(text) > parameter.maximum:
        raise argparse.ArgumentTypeError(f"expected at most {parameter.maximum} characters")
    offered = [str(choice.value) for choice in parameter.choices]
    if offered and text not in offered:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(offered)}, got {text!r}")
    return text


def _timestamp_ms(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= TIMESTAMP_DIGITS_MAX):
        raise argparse.ArgumentTypeError(f"expected milliseconds since 1970, got {text!r}")
    return int(text)


def _topic(text: str) -> str:
    wrong = names.check_topic(text)
    if wrong is not None:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a valid topic. {wrong}")
    return text


def _master(text: str) -> str:
    if text.startswith(CONNECT_PREFIX) and TOKEN in text:
        # Don't accept or repeat the secret: every user of this machine can read command lines.
        raise argparse.ArgumentTypeError(
            "the address of a Spark Connect server must not contain a token; put the token in a "
            "file and set TREBUCHET_SPARK_SECRET_FILE to its path"
        )
    if not MASTER.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} isn't a Spark master; use local[N], spark://HOST:PORT, yarn, "
            "k8s://HOST:PORT or sc://HOST:PORT"
        )
    return text
