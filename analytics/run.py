"""ReportRun: plans a report, reads with Spark and publishes; cancellable until it publishes."""

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
from analytics.brokers import broker_options, brokers_instead
from analytics.collect import collect
from analytics.engine import start_engine
from analytics.errors import ReportCancelledError, ReportError, sentence_in
from analytics.java import require_java
from analytics.progress import COMPARING
from analytics.reports.totals import totals_of
from analytics.request import period_before
from analytics.result import SPARK, about
from analytics.session import Spark, is_connect, require_executor
from analytics.store.reader import StoreReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.collect import Outcome
    from analytics.engine import Engine
    from analytics.progress import ProgressLines
    from analytics.request import Request
    from analytics.store.plan import ReadPlan
    from analytics.zygote import Zygote

logger = logging.getLogger(__name__)

# Damaged ranges that result.json names; the log names all of them.
DAMAGES_SHOWN_MAX = 1000
SENTENCE_LENGTH_MAX = 400
_KNOWN_FAILURES = (
    ("maxResultSize", "The result is too large for one report: choose a shorter time or a topic."),
    ("No space left on device", "The disk is full: Spark's temporary files had no room."),
    ("masters are unresponsive", "The Spark master does not answer: is it running at {master}?"),
    ("Java gateway process exited", "Spark's Java process did not start; the log says why."),
    ("OutOfMemoryError", "Spark ran out of memory: choose a shorter time or a topic."),
    (
        "PYTHON_VERSION_MISMATCH",
        "The workers of Spark at {master} run another Python than this machine: both need the same "
        "minor version.",
    ),
    (
        "ModuleNotFoundError",
        "The Python of the workers of Spark at {master} lacks a module: it needs pyarrow, numpy "
        "and msgspec; the log names the missing one.",
    ),
)


class ReportRun:
    """Runs a request once. One thread calls `execute`; any other may call `cancel`.

    Spark's Python workers come from the `zygote` where there is one.
    """

    def __init__(
        self, request: Request, lines: ProgressLines, zygote: Zygote | None = None
    ) -> None:
        self._zygote = zygote
        self._request = request
        self._lines = lines
        self._lock = threading.Lock()
        self._cancelled = False
        self._publishing = False
        self._spark: Engine | None = None
        self._work: Path | None = None
        self._brokers = ""
        self._reader = StoreReader(
            request.store, commit_log_path=request.commit_log, split_bytes=request.split_bytes
        )

    def execute(self) -> None:
        """Make the report; write its progress and end as JSON lines.

        Raises:
            ReportError: the report failed; nothing was published.
            ReportCancelledError: `cancel` was called in time; nothing was published.
        """
        started = time.monotonic()
        self._lines.progress("starting", 0, 1)
        broker_options(self._request.brokers)  # a wrong setting is told before anything starts
        plan = self._plan(self._request)
        logger.info(
            "plan: log_from=%d log_to=%d parts=%d split_bytes=%d skipped_bytes=%d",
            plan.log_from,
            plan.log_to,
            len(plan.splits) + len(plan.slices),
            plan.split_bytes,
            plan.skipped_bytes,
        )
        if plan.tail is not None:
            logger.info("readable end of the log: at %d, %s", plan.log_to, plan.tail.reason)
        if not is_connect(self._request.master):
            require_java()
        try:
            self._work = self._make_work_directory()
            outcome, before = self._compute(plan, self._work)
            table = outcome.table
            self._check_cancelled(publishing=True)
            self._lines.progress("writing", 0, 1, outcome.rows_read, plan.split_bytes)
            totals = totals_of(self._request.report, table)
            said = self._about(plan, totals, outcome) | before
            try:
                sink.publish(table, said, work=self._work, out=self._request.out)
            except OSError as error:
                raise ReportError(
                    f"The result cannot be written to {self._request.out}: {error.strerror}."
                ) from error
        finally:
            self.clean_up()
        self._lines.progress("writing", 1, 1, outcome.rows_read, plan.split_bytes)
        self._lines.done(rows=table.num_rows, totals=totals, seconds=time.monotonic() - started)

    def cancel(self) -> bool:
        """Ask the run to stop; False if it is already publishing and about to end."""
        with self._lock:
            if self._publishing:
                return False
            self._cancelled = True
            spark = self._spark
        if spark is not None:
            spark.cancel()
        return True

    def clean_up(self) -> None:
        """Remove the run's temporary files; a second call does nothing."""
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)

    def _plan(self, request: Request) -> ReadPlan:
        topic = request.topic_read
        return self._reader.plan(
            from_ms=request.from_ms,
            to_ms=request.to_ms,
            topics=None if topic is None else frozenset({topic}),
        )

    def _make_work_directory(self) -> Path:
        out = self._request.out
        try:
            out.mkdir(parents=True, exist_ok=True)
            # Mode 0700: Spark's spill files contain message data.
            return Path(tempfile.mkdtemp(prefix=".run-", dir=out))
        except OSError as error:
            raise ReportError(f"{out} cannot be written to: {error.strerror}.") from error

    def _compute(self, plan: ReadPlan, work: Path) -> tuple[Outcome, dict[str, Any]]:
        request = self._request
        scratch = work / "spark"
        scratch.mkdir(mode=0o700)
        spark: Engine | None = None
        try:
            spark = start_engine(
                scratch,
                master=request.master,
                driver_host=request.driver_host,
                zygote=self._zygote,
            )
            with self._lock:
                self._spark = spark
            self._check_cancelled()
            if isinstance(spark, Spark):
                require_executor(spark, request.master)
            self._brokers = brokers_instead(spark, request, plan)
            logger.info("read from: %s", self._brokers or "log")
            outcome = collect(spark, request, plan, self._lines, from_brokers=bool(self._brokers))
            return outcome, self._period_before(spark)
        except (PySparkException, Py4JError, OSError, EOFError, pa.ArrowException) as error:
            self._check_cancelled()
            logger.exception("Spark failed")
            gone = "" if spark is None else spark.why_gone()
            if gone:
                # The error itself is one of many forms of a broken connection.
                raise ReportError(gone) from error
            raise ReportError(sentence_of(error, request)) from error
        finally:
            with self._lock:
                self._spark = None
            if spark is not None:
                spark.close()

    def _period_before(self, spark: Engine) -> dict[str, Any]:
        """Return the totals of the period before, {} when nobody asked for them.

        Without totals: the log does not reach back to its beginning.
        """
        earlier = period_before(self._request, int(datetime.now(UTC).timestamp() * 1000))
        if earlier is None:
            return {}
        before: dict[str, Any] = {"from": str(earlier.from_ms), "to": str(earlier.to_ms)}
        plan = self._plan(earlier)
        assert earlier.from_ms is not None
        expired = plan.log_from > 0
        if expired and (plan.stored_from_ms is None or plan.stored_from_ms > earlier.from_ms):
            return {"before": before}
        outcome = collect(
            spark, earlier, plan, self._lines, COMPARING, from_brokers=bool(self._brokers)
        )
        return {"before": before | {"totals": totals_of(earlier.report, outcome.table)}}

    def _about(self, plan: ReadPlan, totals: Mapping[str, str], outcome: Outcome) -> dict[str, Any]:
        """Return the fields of result.json besides the rows, the report's description included."""
        request, damages = self._request, outcome.damages
        for damage in damages:
            logger.warning(
                "damaged: file=%s commit_log_from=%s commit_log_to=%s: %s",
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
            "engine": {"name": SPARK, "because": request.because, "brokers": self._brokers},
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
    """Turn Spark's long error into one sentence."""
    text = str(error)
    ours = sentence_in(text)
    if ours is not None:
        return ours
    for sign, sentence in _KNOWN_FAILURES:
        if sign in text:
            return sentence.format(master=request.master)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return f"Spark failed: {first[:SENTENCE_LENGTH_MAX].rstrip('.')}; the log has the details."
