"""One run of a report: plan, read with Spark, publish; cancellable until it publishes."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation, functions as F  # noqa: N812 - as in Spark's documentation
from pyspark.sql.pandas.types import to_arrow_schema

from analytics import sink
from analytics.commitlog_source import FORMAT
from analytics.errors import ReportCancelledError, ReportError
from analytics.java import require_java
from analytics.progress import reading_followed
from analytics.schemas import DAMAGE_COLUMN, messages_with
from analytics.session import LOOPBACK, MASTER_DEFAULT, build_session, java_has_ended, stop_session
from analytics.store_reader import SPLIT_BYTES_DEFAULT, ReadPlan, StoreReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from analytics.progress import ProgressLines
    from analytics.reports.report import Report

logger = logging.getLogger(__name__)

JOB_GROUP = "trebuchet-report"
# Damaged ranges that result.json names; the log names all of them.
DAMAGES_SHOWN_MAX = 1000
SENTENCE_LENGTH_MAX = 400
_OUR_SENTENCE = re.compile(r"ReportError: (.+)")
JAVA_ENDED = "Spark's Java process ended in the middle of the run; the log says why."
_KNOWN_FAILURES = (
    ("maxResultSize", "The result is too large for one report: choose a shorter time or a topic."),
    ("No space left on device", "The disk is full: Spark's temporary files had no room."),
    ("masters are unresponsive", "The Spark master does not answer: is it running at {master}?"),
    ("Java gateway process exited", "Spark's Java process did not start; the log says why."),
    ("OutOfMemoryError", "Spark ran out of memory: choose a shorter time or a topic."),
)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for; times are ms since epoch, `[from_ms, to_ms)`."""

    report: Report
    store: Path
    out: Path
    commit_log: Path | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    topic: str | None = None
    master: str = MASTER_DEFAULT
    driver_host: str = LOOPBACK
    split_bytes: int = SPLIT_BYTES_DEFAULT


@dataclass(frozen=True, slots=True)
class Outcome:
    """What Spark brought back: the report, how many rows it is made of, what was unreadable."""

    table: pa.Table
    rows_read: int
    damages: list[dict[str, Any]]


class ReportRun:
    """Runs a request once. `execute` belongs to one thread; `cancel` may come from another."""

    def __init__(self, request: Request, lines: ProgressLines) -> None:
        self._request = request
        self._lines = lines
        self._lock = threading.Lock()
        self._cancelled = False
        self._publishing = False
        self._session: SparkSession | None = None
        self._work: Path | None = None

    def execute(self) -> None:
        """Make the report; its progress and its end go to the lines.

        Raises:
            ReportError: it cannot be made; nothing was published.
            ReportCancelledError: `cancel` was called in time; nothing was published.
        """
        started = time.monotonic()
        self._lines.progress("starting", 0, 1)
        plan = self._reader().plan(from_ms=self._request.from_ms, to_ms=self._request.to_ms)
        logger.info(
            "plan: log_from=%d log_to=%d splits=%d split_bytes=%d skipped_bytes=%d",
            plan.log_from,
            plan.log_to,
            len(plan.splits),
            plan.split_bytes,
            plan.skipped_bytes,
        )
        if plan.tail is not None:
            logger.info("behind the readable end: %s at %d", plan.tail.reason, plan.log_to)
        require_java()
        try:
            self._work = self._make_work_directory()
            outcome = self._compute(plan, self._work)
            table = outcome.table
            self._check_cancelled(publishing=True)
            self._lines.progress("writing", 0, 1, outcome.rows_read, plan.split_bytes)
            messages, size = _total(table, "messages"), _total(table, "bytes")
            about = self._about(plan, messages, size, outcome.damages)
            try:
                sink.publish(table, about, work=self._work, out=self._request.out)
            except OSError as error:
                raise ReportError(
                    f"The result cannot be written to {self._request.out}: {error.strerror}."
                ) from error
        finally:
            self.clean_up()
        self._lines.progress("writing", 1, 1, outcome.rows_read, plan.split_bytes)
        self._lines.done(
            rows=table.num_rows,
            messages=messages,
            bytes_=size,
            seconds=time.monotonic() - started,
        )

    def cancel(self) -> bool:
        """Ask the run to stop; False when it is already publishing and will end by itself."""
        with self._lock:
            if self._publishing:
                return False
            self._cancelled = True
            session = self._session
        if session is not None:
            try:
                session.sparkContext.cancelJobGroup(JOB_GROUP)
            except (Py4JError, OSError):
                # A signal to the whole process group has ended the Java process, too.
                logger.info("Spark is gone already")
        return True

    def clean_up(self) -> None:
        """Remove what the run left beside its results; called again it does nothing."""
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)

    def _reader(self) -> StoreReader:
        request = self._request
        return StoreReader(
            request.store, commit_log_path=request.commit_log, split_bytes=request.split_bytes
        )

    def _make_work_directory(self) -> Path:
        out = self._request.out
        try:
            out.mkdir(parents=True, exist_ok=True)
            # Mode 0700: Spark's spill files hold what the messages hold.
            return Path(tempfile.mkdtemp(prefix=".run-", dir=out))
        except OSError as error:
            raise ReportError(f"{out} cannot be written to: {error.strerror}.") from error

    def _compute(self, plan: ReadPlan, work: Path) -> Outcome:
        request = self._request
        scratch = work / "spark"
        scratch.mkdir(mode=0o700)
        session: SparkSession | None = None
        try:
            session = build_session(scratch, master=request.master, driver_host=request.driver_host)
            with self._lock:
                self._session = session
            self._check_cancelled()
            return self._collect(session, plan)
        except (PySparkException, Py4JError, OSError, EOFError, pa.ArrowException) as error:
            self._check_cancelled()
            logger.exception("Spark failed")
            if session is not None and java_has_ended(session):
                # What the error itself says is then one of many forms of a broken connection.
                raise ReportError(JAVA_ENDED) from error
            raise ReportError(_sentence(error, request)) from error
        finally:
            with self._lock:
                self._session = None
            if session is not None:
                try:
                    stop_session(session)
                except (Py4JError, OSError):
                    logger.exception("Spark could not be stopped")

    def _collect(self, session: SparkSession, plan: ReadPlan) -> Outcome:
        report = self._request.report
        context = session.sparkContext
        context.setJobGroup(JOB_GROUP, report.summary, interruptOnCancel=True)
        observed = Observation("reading")
        messages = self._messages(session, plan).observe(
            observed,
            F.count(F.lit(1)).alias("rows"),
            F.collect_list(DAMAGE_COLUMN).alias("damages"),
        )
        sound = messages.where(F.col(DAMAGE_COLUMN).isNull()).drop(DAMAGE_COLUMN)
        with reading_followed(
            context,
            JOB_GROUP,
            self._lines,
            total_bytes=plan.split_bytes,
            tasks=len(plan.shares(self._request.split_bytes)),
        ):
            table = report.transform(sound).toArrow()
        table = table.cast(to_arrow_schema(report.schema, timezone="UTC"))
        table = table.sort_by([(name, "ascending") for name in report.sorted_by])
        damages = [row.asDict() for row in observed.get["damages"]]
        damages.sort(key=lambda damage: damage["commit_log_from"])
        return Outcome(table, observed.get["rows"] - len(damages), damages)

    def _messages(self, session: SparkSession, plan: ReadPlan) -> DataFrame:
        request = self._request
        options = {
            "commitLogPath": request.commit_log,
            "fromTimestamp": request.from_ms,
            "toTimestamp": request.to_ms,
            "topic": request.topic,
            # The picture has been taken: what is appended from now on is for the next run.
            "fromOffset": plan.log_from,
            "toOffset": plan.log_to,
            "splitBytes": request.split_bytes,
        }
        reader = session.read.format(FORMAT).schema(
            messages_with(request.report.columns, damage=True)
        )
        for name, value in options.items():
            if value is not None:
                reader = reader.option(name, str(value))
        return reader.load(str(request.store.absolute()))

    def _about(
        self, plan: ReadPlan, messages: int, size: int, damages: list[dict[str, Any]]
    ) -> dict[str, Any]:
        request = self._request
        for damage in damages:
            logger.warning(
                "damaged: file=%s commit_log_from=%d commit_log_to=%d: %s",
                damage["file"],
                damage["commit_log_from"],
                damage["commit_log_to"],
                damage["reason"],
            )
        lost = sum(damage["commit_log_to"] - damage["commit_log_from"] for damage in damages)
        return {
            "report": request.report.name,
            "messages": str(messages),
            "bytes": str(size),
            "from": _text(request.from_ms),
            "to": _text(request.to_ms),
            "topic": request.topic,
            "log_from": str(plan.log_from),
            "log_to": str(plan.log_to),
            "read_bytes": str(plan.split_bytes),
            "skipped_bytes": str(plan.skipped_bytes),
            "damaged_ranges": len(damages),
            "damaged_bytes": str(lost),
            "damaged": [
                {
                    "file": damage["file"],
                    "from": str(damage["commit_log_from"]),
                    "to": str(damage["commit_log_to"]),
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


def _total(table: pa.Table, column: str) -> int:
    return int(pc.sum(table[column]).as_py() or 0)


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _sentence(error: Exception, request: Request) -> str:
    """Turn what Spark says, pages of it, into one sentence."""
    text = str(error)
    ours = _OUR_SENTENCE.search(text)
    if ours:
        return ours.group(1).strip()
    for sign, sentence in _KNOWN_FAILURES:
        if sign in text:
            return sentence.format(master=request.master)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return f"Spark failed: {first[:SENTENCE_LENGTH_MAX].rstrip('.')}; the log has the details."
