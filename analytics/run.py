"""ReportRun: reads a report's input with Spark and publishes the result; cancellable until then."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from analytics import sink
from analytics.brokers import broker_options, is_blind_to, name_servers_to_read
from analytics.collect import collect
from analytics.errors import ReportCancelledError, ReportError, sentence_in
from analytics.inputs import LOG, input_of, log_input, unreadable
from analytics.progress import COMPARING, READING
from analytics.reports.totals import totals_of
from analytics.request import period_before
from analytics.result import SPARK, about
from analytics.topics import require_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from analytics.collect import Outcome
    from analytics.engine import Engine
    from analytics.inputs import Input
    from analytics.progress import ProgressLines
    from analytics.request import Request

logger = logging.getLogger(__name__)

# Damaged ranges that result.json names; the log names all of them.
DAMAGES_SHOWN_MAX = 1000
SENTENCE_LENGTH_MAX = 400
_KNOWN_FAILURES = (
    ("maxResultSize", "The result is too large. Choose a shorter time range or a single topic."),
    ("No space left on device", "The disk is full, so Spark couldn't write its temporary files."),
    (
        "masters are unresponsive",
        "The Spark master at {master} doesn't respond. Check that it's running.",
    ),
    (
        "Java gateway process exited",
        "Spark's Java process didn't start. See the log for the reason.",
    ),
    ("OutOfMemoryError", "Spark ran out of memory. Choose a shorter time range or a single topic."),
    (
        "PYTHON_VERSION_MISMATCH",
        "The Spark workers at {master} run a different Python version than this machine. Use the "
        "same minor version on both.",
    ),
    (
        "ModuleNotFoundError",
        "The Spark workers at {master} lack a Python module. Install pyarrow, numpy and msgspec "
        "there; the log names the missing module.",
    ),
)


class ReportRun:
    """Runs a request once. One thread calls `execute`; any other may call `cancel`."""

    def __init__(
        self, request: Request, lines: ProgressLines, engine: Callable[[], Engine]
    ) -> None:
        """`engine` starts Spark, or returns a running one."""
        self._start = engine
        self._request = request
        self._lines = lines
        self._lock = threading.Lock()
        self._cancelled = False
        self._publishing = False
        self._spark: Engine | None = None
        self._work: Path | None = None
        self._brokers = ""
        self._application = ""
        self._done = {"stages": 0, "tasks": 0}

    def execute(self) -> None:
        """Make the report; write its progress and result as JSON lines.

        Raises:
            ReportError: the report failed; nothing was published.
            ReportCancelledError: `cancel` was called in time; nothing was published.
        """
        started = time.monotonic()
        request = self._request
        self._lines.progress("starting", 0, 1)
        broker_options(request.brokers)  # fails early if a setting is wrong
        require_topic(request)
        given = input_of(request)
        plan = given.plan
        logger.info(
            "read planned reads=%s tasks=%d log_from=%d log_to=%d split_bytes=%d skipped_bytes=%d",
            given.reads,
            len(given.readings),
            plan.log_from,
            plan.log_to,
            plan.split_bytes,
            plan.skipped_bytes,
        )
        if plan.tail is not None:
            logger.info("log tail unreadable log_to=%d reason=%s", plan.log_to, plan.tail.reason)
        try:
            outcome, given, before = self._compute(given)
            table = outcome.table
            self._check_cancelled(publishing=True)
            self._lines.progress("writing", 0, 1, outcome.rows_read, plan.split_bytes)
            totals = totals_of(request.report, table)
            about = self._about(given, totals, outcome) | before
            self._publish(table, about)
        finally:
            self.clean_up()
        self._lines.progress("writing", 1, 1, outcome.rows_read, plan.split_bytes)
        self._lines.done(rows=table.num_rows, totals=totals, seconds=time.monotonic() - started)

    def cancel(self) -> bool:
        """Ask the run to stop. Return False if it is already publishing."""
        with self._lock:
            if self._publishing:
                return False
            self._cancelled = True
            spark = self._spark
        if spark is not None:
            spark.cancel()
        return True

    def clean_up(self) -> None:
        """Remove the run's temporary files. Idempotent."""
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)

    def _publish(self, table: pa.Table, about: dict[str, Any]) -> None:
        out = self._request.out
        try:
            out.mkdir(parents=True, exist_ok=True)
            self._work = Path(tempfile.mkdtemp(prefix=".run-", dir=out))
            sink.publish(table, about, work=self._work, out=out)
        except OSError as error:
            raise ReportError(
                f"The result can't be written to {out}: {error.strerror}. Choose a directory that "
                "this user can write to."
            ) from error

    def _compute(self, given: Input) -> tuple[Outcome, Input, dict[str, Any]]:
        request = self._request
        spark: Engine | None = None
        try:
            spark = self._start()
            with self._lock:
                self._spark = spark
            self._check_cancelled()
            given = self._readable_by_workers(spark, given)
            logger.info("reading started source=%s", self._brokers or given.reads)
            outcome, given = self._collect_or_read_log(spark, given)
            return outcome, given, self._period_before(spark)
        except (PySparkException, Py4JError, OSError, EOFError, pa.ArrowException) as error:
            self._check_cancelled()
            logger.exception("Spark failed")
            gone = "" if spark is None else spark.end_reason()
            if gone:
                # A broken connection raises one of many exceptions.
                raise ReportError(gone) from error
            raise ReportError(sentence_of(error, request)) from error
        finally:
            with self._lock:
                self._spark = None

    def _readable_by_workers(self, spark: Engine, given: Input) -> Input:
        """Return the part of the input that a cluster's workers can read."""
        request = self._request
        if given.lake_file and is_blind_to(spark, request, given):
            if request.report.samples:
                raise ReportError(
                    f"The Spark cluster at {request.master} doesn't see the lake "
                    f"{request.lake}. Share it with every worker under the same path, or run "
                    "reports on this machine."
                )
            given = log_input(request)
        self._brokers = name_servers_to_read(spark, request, given.plan)
        return given

    def _collect_or_read_log(self, spark: Engine, given: Input) -> tuple[Outcome, Input]:
        """Collect from the input, or from the log if the lake isn't readable; return the input
        used, too.
        """
        try:
            return self._collect(spark, self._request, given), given
        except (PySparkException, OSError) as error:
            self._check_cancelled()
            if given.reads == LOG or self._request.report.samples or spark.end_reason():
                raise
            logger.exception("lake unreadable, reading the log lake=%s", self._request.lake)
            given = log_input(self._request, because=unreadable(error))
            return self._collect(spark, self._request, given), given

    def _collect(
        self, spark: Engine, request: Request, given: Input, stage: str = READING
    ) -> Outcome:
        found = collect(spark, request, given, self._lines, stage, from_brokers=bool(self._brokers))
        about_spark = spark.about()
        self._done = {name: count + about_spark[name] for name, count in self._done.items()}
        self._application = str(about_spark["application_id"])
        return found

    def _period_before(self, spark: Engine) -> dict[str, Any]:
        """Return the totals of the previous period, {} unless requested.

        The totals are missing if messages of that period may have expired.
        """
        earlier = period_before(self._request, int(datetime.now(UTC).timestamp() * 1000))
        if earlier is None:
            return {}
        before: dict[str, Any] = {"from": str(earlier.from_ms), "to": str(earlier.to_ms)}
        try:
            given = input_of(earlier)
        except ReportError:
            return {"before": before}
        if not given.reaches(earlier.from_ms):
            return {"before": before}
        outcome = self._collect(spark, earlier, given, COMPARING)
        return {"before": before | {"totals": totals_of(earlier.report, outcome.table)}}

    def _about(self, given: Input, totals: Mapping[str, str], outcome: Outcome) -> dict[str, Any]:
        """Return the fields of result.json besides the rows, including the report's description."""
        request, damages, plan = self._request, outcome.damages, given.plan
        for damage in damages:
            logger.warning(
                "damaged range file=%s commit_log_from=%s commit_log_to=%s reason=%s",
                damage["file"],
                damage["commit_log_from"],
                damage["commit_log_to"],
                damage["reason"],
            )
        lost = sum(
            (damage["commit_log_to"] or 0) - (damage["commit_log_from"] or 0) for damage in damages
        )
        return {
            **about(request, outcome.table, totals, outcome.step_seconds),
            **dict(given.about),
            "engine": {
                "name": SPARK,
                "application_id": self._application,
                **{name: str(count) for name, count in self._done.items()},
                "rows": str(outcome.rows_read),
                "reads": given.reads,
                "because": given.because,
                "brokers": self._brokers,
            },
            "erased": str(given.erased),
            "log_from": str(plan.log_from),
            "log_to": str(plan.log_to),
            "read_bytes": str(plan.split_bytes),
            "skipped_bytes": str(plan.skipped_bytes),
            "damaged_ranges": len(damages),
            "damaged_bytes": str(lost),
            "damaged": [
                {
                    "file": damage["file"],
                    "from": str(damage["commit_log_from"] or 0),
                    "to": str(damage["commit_log_to"] or 0),
                    "reason": damage["reason"],
                }
                for damage in damages[:DAMAGES_SHOWN_MAX]
            ],
        }

    def _check_cancelled(self, *, publishing: bool = False) -> None:
        with self._lock:
            if self._cancelled:
                raise ReportCancelledError
            self._publishing = publishing


def sentence_of(error: Exception, request: Request) -> str:
    """Shorten Spark's long error to one sentence."""
    text = str(error)
    ours = sentence_in(text)
    if ours is not None:
        return ours
    for sign, sentence in _KNOWN_FAILURES:
        if sign in text:
            return sentence.format(master=request.master)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return f"Spark failed: {first[:SENTENCE_LENGTH_MAX].rstrip('.')}. See the log for details."
