"""Runner: passes one run to the pipeline's session, monitors it and records its end.

Only runs in the pipeline's worker, and blocks until the report has ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections import deque
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.db import OperationalError, connection
from django.utils import timezone

from console.celery import REPORT_SECONDS_MAX
from console.data.pipeline.program import program
from console.data.pipeline.session import SessionError, session
from console.data.reports import catalog, progress, results
from console.data.reports.models import (
    HEARTBEAT_S,
    LOG_TAIL_CHARS_MAX,
    RESULT_ROWS_MAX,
    SENTENCE_CHARS_MAX,
    WORKING,
    ReportRun,
    RunState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Minimum time between updates of the row; the page polls once a second.
UPDATE_EVERY_S = 0.25
CANCEL_POLL_S = 0.5
# How long to retry essential writes while the database is locked or unreachable.
DATABASE_SECONDS_MAX = 300.0
DATABASE_PAUSE_S = 1.0
LOG_LINES_KEPT = 400
OUTPUT_PREFIX = "run-"
PARQUET_NAME = "result.parquet"
PARQUET_KEPT = 100
RESULT_BYTES_MAX = 64 * 1024 * 1024


class ReportFailedError(Exception):
    """The report ended without a result; the text is a sentence for the page."""


class ReportCancelledError(Exception):
    """Someone cancelled the run."""


class Runner:
    """Runs one claimed run to its end."""

    def __init__(self, run: ReportRun) -> None:
        self._run = run
        self._out = output_directory() / f"{OUTPUT_PREFIX}{run.pk}"
        self._log: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self._latest: progress.Progress | None = None
        self._failed: str | None = None
        self._memory = 0
        self._done = False

    def run(self) -> None:
        """Run the program, and leave the row in a final state."""
        run = self._run
        try:
            result = self._result_of_program()
        except ReportCancelledError:
            self._finish(RunState.CANCELLED)
        except ReportFailedError as failure:
            self._finish(RunState.FAILED, failure=str(failure)[:SENTENCE_CHARS_MAX])
        else:
            # The last rows are the newest; the program itself may have omitted older ones.
            rows = result["rows"]
            keep_parquet(run.pk, self._out / PARQUET_NAME)
            self._finish(
                RunState.DONE,
                result={**result, "rows": rows[-RESULT_ROWS_MAX:]},
                result_rows=len(rows) + int(result.get("rows_omitted", 0)),
            )
        finally:
            shutil.rmtree(self._out, ignore_errors=True)
        logger.info("report ended run=%s report=%s state=%s", run.pk, run.report, run.state)

    def _finish(self, state: RunState, **values: Any) -> None:
        now = timezone.now()
        persistently(
            lambda: self._run.move(
                state,
                among=WORKING,
                finished_at=now,
                heartbeat_at=now,
                process=None,
                log_tail=self._log_tail(),
                **self._counts(),
                **values,
            )
        )

    def _counts(self) -> dict[str, Any]:
        latest = self._latest
        if latest is None:
            return {"memory_bytes": self._memory}
        return {
            "memory_bytes": self._memory,
            "stage": latest.stage[:200],
            "progress_done": latest.done,
            "progress_total": latest.total,
            "rows_read": latest.rows,
            "bytes_read": latest.bytes,
        }

    def _log_tail(self) -> str:
        return "\n".join(self._log)[-LOG_TAIL_CHARS_MAX:]

    def _result_of_program(self) -> dict[str, Any]:
        words = self._words()
        self._out.mkdir(parents=True, exist_ok=True)
        try:
            with session.job(program(), words):
                self._run.process = session.identity()
                self._memory = session.memory()
                self._watch()
        except SessionError as error:
            raise ReportFailedError(str(error)) from error
        if self._failed is not None:
            raise ReportFailedError(self._failed)
        if not self._done:
            code = session.exit_code
            text = f", saying: {self._log[-1][:300]}" if self._log else " and gave no reason."
            raise ReportFailedError(f"The analytics program ended with code {code}{text}")
        return read_result(self._out / "result.json")

    def _words(self) -> list[str]:
        try:
            report = catalog.reports().get(self._run.report)
        except catalog.CatalogError as error:
            raise ReportFailedError(str(error)) from error
        if report is None:
            raise ReportFailedError(f"The report {self._run.report} no longer exists.")
        return catalog.words(report, self._run.parameters, self._out)

    def _watch(self) -> None:
        """Follow the job until it ends.

        Raises:
            ReportCancelledError: the row was marked as cancelled.
            ReportFailedError: the report timed out, or the worker is shutting down.
        """
        deadline = monotonic() + REPORT_SECONDS_MAX
        with self._ignoring_database_errors():
            self._write(RunState.STARTING)
        written = asked = monotonic()
        dirty = False
        while not self._done and self._failed is None and session.pid is not None:
            dirty |= session.read(UPDATE_EVERY_S, self._on_event, self._on_log)
            now = monotonic()
            if now >= deadline:
                raise ReportFailedError(
                    f"The report took longer than {timedelta(seconds=REPORT_SECONDS_MAX)} and "
                    "was stopped. Choose a shorter time range."
                )
            with self._ignoring_database_errors():
                if now - asked >= CANCEL_POLL_S:
                    asked = now
                    self._memory = max(self._memory, session.memory())
                    self._obey()
                if (dirty and now - written >= UPDATE_EVERY_S) or now - written >= HEARTBEAT_S:
                    written, dirty = now, False
                    self._write(self._state())
        # The pipes still contain the program's last output.
        while session.read(0, self._on_event, self._on_log):
            continue
        session.is_warm = True

    @contextlib.contextmanager
    def _ignoring_database_errors(self) -> Iterator[None]:
        """Ignore database errors; the next heartbeat writes the same values."""
        try:
            yield
        except OperationalError as error:
            logger.warning("run state not written run=%s error=%s", self._run.pk, error)
            close_broken_connection()

    def _state(self) -> RunState:
        latest = self._latest
        if latest is None or latest.stage.startswith("starting"):
            return RunState.STARTING
        return RunState.WRITING if latest.stage.startswith("writing") else RunState.RUNNING

    def _write(self, state: RunState) -> None:
        """Write state, numbers and heartbeat; end the program if the row's state is final."""
        moved = self._run.move(
            state,
            among=WORKING,
            heartbeat_at=timezone.now(),
            process=self._run.process,
            log_tail=self._log_tail(),
            **self._counts(),
        )
        if not moved:
            raise ReportCancelledError

    def _obey(self) -> None:
        row = (
            ReportRun.objects.filter(pk=self._run.pk)
            .values_list("cancel_requested", "stop_reason")
            .first()
        )
        if row is None:
            raise ReportCancelledError
        cancelled, reason = row
        if reason:
            raise ReportFailedError(reason)
        if cancelled:
            raise ReportCancelledError

    def _on_event(self, line: bytes) -> None:
        match progress.parse(line):
            case progress.Progress() as latest:
                self._latest = latest
            case progress.Done():
                self._done = True
            case progress.Failed(message):
                self._failed = message
            case None:
                self._on_log(line)

    def _on_log(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip().replace("\0", "")
        if text:
            self._log.append(text[:2_000])


def persistently(write: Callable[[], T]) -> T:
    """Return the result of `write`, retrying while the console's database is locked or unreachable.

    Raises:
        OperationalError: it still failed after DATABASE_SECONDS_MAX.
    """
    deadline = monotonic() + DATABASE_SECONDS_MAX
    while True:
        try:
            return write()
        except OperationalError as error:
            if monotonic() >= deadline:
                raise
            logger.warning("database unavailable, waiting error=%s", error)
            close_broken_connection()
        sleep(DATABASE_PAUSE_S)


def close_broken_connection() -> None:
    """Close a broken connection, so that the next query reconnects."""
    if not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()


def output_directory() -> Path:
    """Return the directory that contains each run's output directory."""
    return Path(settings.TREBUCHET_DATA) / "reports"


def parquet_path(run_id: int) -> Path:
    """Return the path of the file with all rows of a result."""
    return Path(settings.TREBUCHET_DATA) / "parquet" / f"{run_id}.parquet"


def keep_parquet(run_id: int, made: Path) -> None:
    """Store a run's Parquet file, and delete all but the PARQUET_KEPT newest files."""
    kept = parquet_path(run_id)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        made.replace(kept)
    except OSError as error:
        # The result itself is in the database.
        logger.warning("Parquet file not stored run=%s error=%s", run_id, error.strerror)
        return
    files = [path for path in kept.parent.glob("*.parquet") if path.stem.isdecimal()]
    for path in sorted(files, key=lambda path: int(path.stem))[:-PARQUET_KEPT]:
        path.unlink(missing_ok=True)


def remove_leftovers() -> None:
    """Delete the output of runs whose worker was killed."""
    working = set(ReportRun.objects.filter(state__in=WORKING).values_list("pk", flat=True))
    for left in output_directory().glob(f"{OUTPUT_PREFIX}*"):
        number = left.name.removeprefix(OUTPUT_PREFIX)
        if number.isdecimal() and int(number) not in working:
            shutil.rmtree(left, ignore_errors=True)


def read_result(path: Path) -> dict[str, Any]:
    """Return the report's result.

    Raises:
        ReportFailedError: the file is missing, too large or invalid.
    """
    try:
        if path.stat().st_size > RESULT_BYTES_MAX:
            raise ReportFailedError(
                f"The result is larger than {RESULT_BYTES_MAX // 1024**2} MiB. Choose a "
                "shorter time range."
            )
        result = json.loads(path.read_bytes())
    except OSError as error:
        raise ReportFailedError(
            f"The analytics program finished, but its result can't be read: {error.strerror}."
        ) from error
    except ValueError as error:
        raise ReportFailedError(f"The report's result isn't JSON: {error}.") from error
    rows = result.get("rows") if isinstance(result, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ReportFailedError("The report's result has no list of rows.")
    try:
        results.check(catalog.report_of(result.get("report")), result)
    except ValueError as error:
        raise ReportFailedError(f"The report's result isn't valid: {error}.") from error
    return dict(result)
