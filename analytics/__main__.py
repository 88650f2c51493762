"""`python -m analytics REPORT --store DIR --out DIR`: one report, as one process.

Standard output carries JSON lines only (see analytics.progress); what Spark and Java have to say
goes to standard error. Exit codes: 0 done, 1 failed, 2 bad arguments, 130 and 143 cancelled by
SIGINT and SIGTERM with nothing published.
"""

from __future__ import annotations

import argparse
import logging
import os
import queue
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

from analytics.errors import ReportCancelledError, ReportError
from analytics.progress import ProgressLines
from analytics.reports.catalog import REPORTS
from analytics.run import ReportRun, Request
from analytics.session import LOOPBACK, MASTER_DEFAULT
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

logger = logging.getLogger("analytics")

EXIT_FAILED = 1
EXIT_BAD_ARGUMENTS = 2
EXIT_SIGNALLED = 128
FINISHED = 0
# Reports yield to the broker on the same machine.
NICENESS = 10
# Longer than Spark needs to start or to stop.
CANCEL_SECONDS_MAX = 25.0
CANCEL_AGAIN_SECONDS = 0.5
MASTER = re.compile(r"local|local\[(\*|[1-9]\d{0,2})\]|spark://[A-Za-z0-9._:,\[\]-]+")
TIMESTAMP_DIGITS_MAX = 15


class Arguments(argparse.ArgumentParser):
    """An argument parser whose complaint is one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_ARGUMENTS, f"{self.prog}: {message}\n")


def parse_arguments(arguments: Sequence[str]) -> Request:
    """Return the request; exits with code 2 and one sentence when it makes no sense."""
    parser = Arguments(
        prog="python -m analytics", description="Make a report from a store's message log."
    )
    reports = parser.add_subparsers(
        dest="report", metavar="REPORT", required=True, parser_class=Arguments
    )
    for report in REPORTS.values():
        one = reports.add_parser(
            report.name, help=report.summary, description=f"Report {report.summary}."
        )
        one.add_argument(
            "--store", type=Path, required=True, metavar="DIR", help="storePathRootDir"
        )
        one.add_argument(
            "--commit-log", type=Path, metavar="DIR", help="storePathCommitLog, where it is set"
        )
        one.add_argument(
            "--out", type=Path, required=True, metavar="DIR", help="gets result.parquet, .json"
        )
        one.add_argument(
            "--from", dest="from_ms", type=_timestamp_ms, metavar="MS", help="stored at or after"
        )
        one.add_argument(
            "--to", dest="to_ms", type=_timestamp_ms, metavar="MS", help="stored before"
        )
        one.add_argument("--topic", type=_topic, metavar="T", help="this topic only")
        one.add_argument(
            "--master",
            type=_master,
            default=MASTER_DEFAULT,
            help="local[*] (default) or spark://HOST:PORT",
        )
        one.add_argument(
            "--driver-host",
            default=LOOPBACK,
            metavar="HOST",
            help=f"where a cluster reaches this process (default {LOOPBACK})",
        )
    given = parser.parse_args(arguments)
    if given.from_ms is not None and given.to_ms is not None and given.from_ms >= given.to_ms:
        parser.error(f"--from {given.from_ms} must be before --to {given.to_ms}")
    if set(str(given.out.absolute())) & set(',"\\'):
        parser.error(f"--out {given.out} must have no comma, quote or backslash in its path")
    return Request(
        report=REPORTS[given.report],
        store=given.store,
        commit_log=given.commit_log,
        out=given.out,
        from_ms=given.from_ms,
        to_ms=given.to_ms,
        topic=given.topic,
        master=given.master,
        driver_host=given.driver_host,
    )


def main(arguments: Sequence[str]) -> int:
    request = parse_arguments(arguments)
    with _private_stdout() as stream:
        logging.basicConfig(
            stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s"
        )
        logging.getLogger("py4j").setLevel(logging.WARNING)
        os.nice(NICENESS)
        return _supervise(ReportRun(request, lines := ProgressLines(stream)), lines)


def _supervise(run: ReportRun, lines: ProgressLines) -> int:
    """Execute the run in a thread, so that a signal is heard while Spark is waited for."""
    # SimpleQueue.put may be called by a signal handler at any point.
    events: queue.SimpleQueue[int] = queue.SimpleQueue()
    failures: list[str] = []

    def execute() -> None:
        try:
            run.execute()
        except (ReportError, ReportCancelledError) as error:
            failures.append(str(error) or "The report was cancelled.")
        except Exception:
            # The boundary of the thread: whoever waits for the run must hear of its end.
            logger.exception("the run failed")
            failures.append("The report failed for an unforeseen reason; the log has the details.")
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
    """Wait for a cancelled run; Spark forgets a wish that comes before the job it is for."""
    give_up = time.monotonic() + CANCEL_SECONDS_MAX
    while working.is_alive() and time.monotonic() < give_up:
        working.join(CANCEL_AGAIN_SECONDS)
        run.cancel()


def _private_stdout() -> IO[str]:
    """Keep standard output for our lines: Java and Python workers inherit stderr in its place."""
    sys.stdout.flush()
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return private


def _timestamp_ms(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= TIMESTAMP_DIGITS_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is no time in milliseconds since 1970")
    return int(text)


def _topic(text: str) -> str:
    wrong = names.check_topic(text)
    if wrong is not None:
        raise argparse.ArgumentTypeError(f"{text!r} is no topic: {wrong}")
    return text


def _master(text: str) -> str:
    if not MASTER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither local[*] nor spark://HOST:PORT")
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
