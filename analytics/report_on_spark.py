"""`python -m analytics.report_on_spark REPORT ...`: one report, by Spark over the log.

What `python -m analytics` becomes where the lake does not answer; arguments and output are its.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
from typing import IO, TYPE_CHECKING

from analytics.arguments import EXIT_BAD_ARGUMENTS, EXIT_FAILED, parse_arguments
from analytics.errors import ReportCancelledError, ReportError
from analytics.guest import is_guest, step_back
from analytics.progress import ProgressLines
from analytics.run import ReportRun
from analytics.session import is_local
from analytics.zygote import Zygote
from broker_core.log_lines import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

logger = logging.getLogger("analytics")

EXIT_SIGNALLED = 128
FINISHED = 0
# Longer than Spark needs to start or to stop.
CANCEL_SECONDS_MAX = 25.0
CANCEL_AGAIN_SECONDS = 0.5


def main(arguments: Sequence[str]) -> int:
    request = parse_arguments(arguments)
    assert request is not None
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
        zygote = Zygote(stream) if is_local(request.master) else None
        return _supervise(ReportRun(request, lines, zygote), lines)


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
