"""`python -m analytics REPORT --store DIR --out DIR`: one report, as one process.

`python -m analytics describe` prints what reports there are (see analytics.reports.describe),
`python -m analytics bench` what sources, lake and reports take on this machine.

Standard output carries JSON only, of a run one line for each event (see analytics.progress); Spark
and Java write to standard error. Exit codes: 0 done, 1 failed, 2 bad arguments, 130 and 143
cancelled by SIGINT and SIGTERM with nothing published.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

from analytics.collect import Request
from analytics.errors import ReportCancelledError, ReportError
from analytics.guest import is_guest, step_back
from analytics.progress import ProgressLines
from analytics.reports.catalog import REPORTS
from analytics.reports.describe import catalog
from analytics.reports.report import HOURS
from analytics.run import ReportRun
from analytics.session import LOOPBACK, MASTER_DEFAULT
from broker_core.log_lines import log_to_stderr
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from analytics.reports.report import Parameter, Value

logger = logging.getLogger("analytics")

EXIT_FAILED = 1
EXIT_BAD_ARGUMENTS = 2
EXIT_SIGNALLED = 128
FINISHED = 0
# Longer than Spark needs to start or to stop.
CANCEL_SECONDS_MAX = 25.0
CANCEL_AGAIN_SECONDS = 0.5
MASTER = re.compile(r"local|local\[(\*|[1-9]\d{0,2})\]|spark://[A-Za-z0-9._:,\[\]-]+")
TIMESTAMP_DIGITS_MAX = 15
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
MS_A_MINUTE = 60_000
MS_AN_HOUR = 3_600_000
DESCRIBE = "describe"
BENCH = "bench"
DESCRIBE_HELP = "Print as JSON what reports there are, with their parameters, columns and needs."
PARAMETER_PREFIX = "parameter_"


class Arguments(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_ARGUMENTS, f"{self.prog}: {message}\n")


def parse_arguments(arguments: Sequence[str]) -> Request | None:
    """Return the request, None for `describe`; exit with code 2 and one sentence on nonsense."""
    parser = Arguments(
        prog="python -m analytics", description="Make a report from a store's message log."
    )
    commands = parser.add_subparsers(
        dest="command", metavar="REPORT", required=True, parser_class=Arguments
    )
    commands.add_parser(
        DESCRIBE, help="print as JSON what reports there are", description=DESCRIBE_HELP
    )
    commands.add_parser(BENCH, help="measure sources, lake and reports on this machine")
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
            parser.error("--hours and --from exclude each other")
        given.from_ms = _hours_back(int(parameters[HOURS.name]), datetime.now(UTC))
    if given.from_ms is not None and given.to_ms is not None and given.from_ms >= given.to_ms:
        parser.error(f"--from {given.from_ms} must be before --to {given.to_ms}")
    if set(str(given.out.absolute())) & set(',"\\'):
        parser.error(f"--out {given.out} must have no comma, quote or backslash in its path")
    return Request(
        report=report,
        store=given.store,
        commit_log=given.commit_log,
        out=given.out,
        from_ms=given.from_ms,
        to_ms=given.to_ms,
        parameters=parameters,
        master=given.master,
        driver_host=given.driver_host,
    )


def _add_options_of_a_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", type=Path, required=True, metavar="DIR", help="storePathRootDir")
    parser.add_argument(
        "--commit-log", type=Path, metavar="DIR", help="storePathCommitLog, where it is set"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="gets result.parquet, result.json"
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
        default=MASTER_DEFAULT,
        help="local[*] (default) or spark://HOST:PORT",
    )
    parser.add_argument(
        "--driver-host",
        default=LOOPBACK,
        metavar="HOST",
        help=f"where a cluster reaches this process (default {LOOPBACK})",
    )


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == [BENCH]:
        # In a process of its own: it measures more than a report has need of.
        return subprocess.run([sys.executable, "-m", "analytics.bench", *arguments[1:]]).returncode
    request = parse_arguments(arguments)
    if request is None:
        print(json.dumps(catalog(REPORTS.values()), ensure_ascii=False, indent=2))
        return 0
    with _private_stdout() as stream:
        log_to_stderr("%(levelname)s %(name)s: %(message)s")
        logging.getLogger("py4j").setLevel(logging.WARNING)
        lines = ProgressLines(stream)
        try:
            if is_guest():
                step_back()
        except ReportError as error:
            lines.failed(str(error))
            return EXIT_BAD_ARGUMENTS
        return _supervise(ReportRun(request, lines), lines)


def _supervise(run: ReportRun, lines: ProgressLines) -> int:
    """Execute the run in a thread, so that signals are handled while it waits for Spark."""
    # SimpleQueue.put may be called by a signal handler at any point.
    events: queue.SimpleQueue[int] = queue.SimpleQueue()
    failures: list[str] = []

    def execute() -> None:
        try:
            run.execute()
        except (ReportError, ReportCancelledError) as error:
            failures.append(str(error) or "The report was cancelled.")
        except Exception:
            # The boundary of the thread: the waiting main thread must learn of the run's end.
            logger.exception("the run failed")
            failures.append("The report failed unexpectedly; the log has the details.")
        events.put(FINISHED)

    def on_signal(number: int, frame: FrameType | None) -> None:
        events.put(number)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    working = threading.Thread(target=execute, name="report", daemon=True)
    working.start()
    while (event := events.get()) != FINISHED and not run.cancel():
        logger.info("the result is being published: too late to cancel")
    if event != FINISHED:
        _wait_for_end(working, run)
        run.clean_up()
        logger.info("cancelled by signal %d", event)
        return EXIT_SIGNALLED + event
    for sentence in failures:
        lines.failed(sentence)
    return EXIT_FAILED if failures else 0


def _wait_for_end(working: threading.Thread, run: ReportRun) -> None:
    """Wait for a cancelled run; Spark ignores a cancellation that comes before its job."""
    give_up = time.monotonic() + CANCEL_SECONDS_MAX
    while working.is_alive() and time.monotonic() < give_up:
        working.join(CANCEL_AGAIN_SECONDS)
        run.cancel()


def _private_stdout() -> IO[str]:
    """Keep standard output for our lines: Java and Python workers get stderr in its place."""
    sys.stdout.flush()
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return private


def _hours_back(hours: int, now: datetime) -> int:
    """Return when so many hours ago was, in ms since epoch, at the start of its minute."""
    return (int(now.timestamp() * 1000) - hours * MS_AN_HOUR) // MS_A_MINUTE * MS_A_MINUTE


def _value_of(parameter: Parameter) -> Callable[[str], Value]:
    """Return what reads a parameter from the command line, and refuses what is out of range."""
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
    return int(text)


def _text(parameter: Parameter, text: str) -> str:
    if parameter.maximum is not None and len(text) > parameter.maximum:
        raise argparse.ArgumentTypeError(f"longer than {parameter.maximum} characters")
    return text


def _timestamp_ms(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= TIMESTAMP_DIGITS_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in milliseconds since 1970")
    return int(text)


def _topic(text: str) -> str:
    wrong = names.check_topic(text)
    if wrong is not None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a topic: {wrong}")
    return text


def _master(text: str) -> str:
    if not MASTER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither local[*] nor spark://HOST:PORT")
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
