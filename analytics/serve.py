"""Runs the pipeline's jobs in one Spark session: `python -m analytics serve`, or one report.

`serve` reads jobs from its standard input, runs them one by one and keeps the session warm:

    -> {"job": ["traffic", "--store", DIR, "--out", DIR, ...]}
    <- {"event":"progress",...}                                     (see analytics.progress)
    <- {"event":"done","rows":40,...} or {"event":"failed","message":"..."}
    -> {"job": ["lake", "ingest", "--broker", "broker-a", ...]}
    <- {"event":"done","rows":1000,"batches":1,"is_all":true,...}
    -> {"cancel": true}

The server exits when its input ends: normally when idle, at once during a job. It also exits after
a job that killed its Java process, whose event has `"is_last": true`; the next job needs a new
server. A report given as arguments is the only job. Standard error is the log, including that of
Spark and Java.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from analytics.arguments import parse_arguments
from analytics.errors import ReportCancelledError, ReportError
from analytics.lake.__main__ import Command, parser_of, program_of
from analytics.low_priority import is_low_priority, lower_priority
from analytics.pipeline import WarmSpark
from analytics.progress import ProgressLines, reserve_stdout
from analytics.run import ReportRun
from analytics.session import Spark
from broker_core.log_lines import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

logger = logging.getLogger("analytics")

LAKE = "lake"
JOBS_OF_LAKE = ("ingest", "maintain")
EXIT_FAILED, EXIT_LOST, EXIT_SIGNALLED = 1, 3, 128
PARENT_CHECK_SECONDS = 1.0


class Server:
    """Runs jobs in a separate thread while the main thread reads messages."""

    def __init__(self, lines: ProgressLines, spark: WarmSpark) -> None:
        self._lines = lines
        self._spark = spark
        self._jobs: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_working = False
        self._run: ReportRun | None = None
        self._exit_code: int | None = None

    def serve(self) -> int:
        """Accept jobs until the input ends; return the exit code."""
        # Spark keeps a Java thread for each Python thread that calls it.
        threading.Thread(target=self._work, name="jobs", daemon=True).start()
        threading.Thread(target=self._watch, name="java", daemon=True).start()
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("cancel"):
                self._cancel()
            else:
                with self._lock:
                    self._is_working = True
                self._jobs.put([str(word) for word in message["job"]])
        with self._lock:
            in_order = not self._is_working
        self._spark.close(in_order=in_order)
        return 0

    def run(self, words: Sequence[str]) -> int:
        """Run one job and exit; return the exit code."""
        failure = self._ended(words)
        self._spark.close()
        if failure and self._exit_code is not None:
            return self._exit_code
        if failure:
            self._lines.failed(failure)
        return EXIT_FAILED if failure else 0

    def end(self, code: int) -> None:
        """End this process and its Java process now; leave no partial result."""
        with self._lock:
            run = self._run
        if run is not None and not run.cancel():
            logger.info("cancel ignored, the result is being published")
            return
        self._exit_code = code
        self._spark.close()
        if run is not None:
            run.clean_up()
        os._exit(code)

    def _work(self) -> None:
        while True:
            self._end_job(self._ended(self._jobs.get()))

    def _ended(self, words: Sequence[str]) -> str:
        """Run a job; return why it failed, "" if it succeeded."""
        try:
            self._perform(words)
        except (ReportError, ReportCancelledError) as error:
            return str(error) or "The report was cancelled."
        except SystemExit:
            return f"The job {words[:2]} has invalid arguments."
        except Exception:
            # A failed job must not end the server, and the caller needs a response.
            logger.exception("job failed")
            return "The job failed unexpectedly. See the log for details."
        return ""

    def _perform(self, words: Sequence[str]) -> None:
        if words[0] == LAKE:
            self._do_lake(words[1:])
            return
        request = parse_arguments([*words, "--master", self._spark.master])
        assert request is not None
        run = ReportRun(request, self._lines, self._spark.engine)
        with self._lock:
            self._run = run
        try:
            run.execute()
        finally:
            with self._lock:
                self._run = None

    def _do_lake(self, words: Sequence[str]) -> None:
        begun = time.monotonic()
        given = parser_of(program_of(os.environ)).parse_args(words)
        if given.command not in JOBS_OF_LAKE:
            raise ReportError(f"{given.command} isn't a pipeline job.")
        command = Command(given, os.environ, self._spark.writer)
        done = (
            command.jobs.ingest(command.source)
            if given.command == "ingest"
            else command.jobs.maintain()
        )
        self._lines.say(
            event="done",
            rows=done.rows,
            batches=done.batches,
            steps=done.steps,
            is_all=done.is_all,
            is_warm=self._spark.running is not None,
            seconds=round(time.monotonic() - begun, 3),
        )

    def _end_job(self, failure: str) -> None:
        gone = self._spark.running.end_reason() if failure and self._spark.running else ""
        if failure:
            # The next job may be sent before this process has ended.
            self._lines.failed(failure, is_last=bool(gone))
        with self._lock:
            self._is_working = False
        if gone:
            logger.error("Spark ended reason=%s", gone)
            self.end(EXIT_LOST)

    def _cancel(self) -> None:
        with self._lock:
            run = self._run
        if run is not None and not run.cancel():
            logger.info("cancel ignored, the result is being published")

    def _watch(self) -> None:
        """Stop an idle server if its Java process ends, so that the next job starts a new one."""
        while True:
            time.sleep(PARENT_CHECK_SECONDS)
            engine = self._spark.running
            with self._lock:
                is_idle = not self._is_working
            if is_idle and isinstance(engine, Spark) and engine.has_ended():
                logger.error("Spark ended while idle")
                self.end(EXIT_LOST)


def main(arguments: Sequence[str]) -> int:
    with reserve_stdout() as stream:
        log_to_stderr("%(levelname)s %(name)s: %(message)s")
        logging.getLogger("py4j").setLevel(logging.WARNING)
        lines = ProgressLines(stream)
        request = parse_arguments(arguments) if arguments else None
        try:
            if is_low_priority():
                lower_priority()
            master = ("", "") if request is None else (request.master, request.driver_host)
            server = Server(lines, WarmSpark(os.environ, *master))
        except ReportError as error:
            lines.failed(str(error))
            return EXIT_FAILED

        def on_signal(number: int, frame: FrameType | None) -> None:
            # Runs in a thread, because the main thread may hold a lock that `end` needs.
            threading.Thread(target=server.end, args=(EXIT_SIGNALLED + number,)).start()

        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)
        return server.run(arguments) if arguments else server.serve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
