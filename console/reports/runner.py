"""Runner: starts the analytics program for one run, watches it, records its end.

The program has its own process group, so that cancelling also ends its JVM. Runs in a worker
process only, and blocks until the report has ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import shutil
import signal
import subprocess
from collections import deque
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.db import OperationalError, connection
from django.utils import timezone

from broker_core.environment import without_secrets
from console.celery import REPORT_SECONDS_MAX
from console.processes import identity, memory_of_session
from console.reports import catalog, progress, results
from console.reports.models import (
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

# The runner writes the row at most this often; the page asks once a second.
UPDATE_EVERY_S = 0.25
CANCEL_ASKED_EVERY_S = 0.5
# SIGTERM first, so that the program can end Spark. Whoever cancelled waits for it, and whatever
# it leaves behind is removed here.
GRACE_S = 2.0
# For so long a database that is locked or gone is waited for, with what must not be lost.
DATABASE_SECONDS_MAX = 300.0
DATABASE_PAUSE_S = 1.0
LINE_BYTES_MAX = 65_536
LOG_LINES_KEPT = 400
OUTPUT_PREFIX = "run-"
PARQUET_NAME = "result.parquet"
PARQUET_KEPT = 100
RESULT_BYTES_MAX = 64 * 1024 * 1024


class ReportFailedError(Exception):
    """The report ended without a result; the text is a sentence for the page."""


class ReportCancelledError(Exception):
    """Somebody asked to cancel the run."""


class Lines:
    """Splits a byte stream into lines, and a line longer than LINE_BYTES_MAX into pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from lines
        while len(self._rest) > LINE_BYTES_MAX:
            yield self._rest[:LINE_BYTES_MAX]
            self._rest = self._rest[LINE_BYTES_MAX:]

    def end(self) -> Iterator[bytes]:
        if self._rest:
            yield self._rest
        self._rest = b""


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
        """Run the program; leave the row in a final state."""
        run = self._run
        try:
            result = self._result_of_program()
        except ReportCancelledError:
            self._finish(RunState.CANCELLED)
        except ReportFailedError as failure:
            self._finish(RunState.FAILED, failure=str(failure)[:SENTENCE_CHARS_MAX])
        else:
            # The last rows are the newest; the program itself may have left out older ones.
            rows = result["rows"]
            keep_parquet(run.pk, self._out / PARQUET_NAME)
            self._finish(
                RunState.DONE,
                result={**result, "rows": rows[-RESULT_ROWS_MAX:]},
                result_rows=len(rows) + int(result.get("rows_omitted", 0)),
            )
        finally:
            shutil.rmtree(self._out, ignore_errors=True)
        logger.info("report ended: run=%s report=%s state=%s", run.pk, run.report, run.state)

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
        command = self._command()
        self._out.mkdir(parents=True, exist_ok=True)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=settings.BASE_DIR,
                env=without_secrets(os.environ),
                start_new_session=True,
            )
        except OSError as error:
            raise ReportFailedError(
                f"The analytics program {command[0]} cannot be started: {error.strerror}."
            ) from error
        with process:
            try:
                self._run.process = identity(process.pid)
                self._memory = memory_of_session(process.pid)
                self._watch(process)
            finally:
                # The JVM may outlive the Python process that started it.
                end_group(process.pid, wait=process)
        if self._failed is not None:
            raise ReportFailedError(self._failed)
        if process.returncode != 0 or not self._done:
            said = f", saying: {self._log[-1][:300]}" if self._log else " and gave no reason."
            raise ReportFailedError(
                f"The analytics program ended with code {process.returncode}{said}"
            )
        return read_result(self._out / "result.json")

    def _command(self) -> list[str]:
        try:
            report = catalog.reports().get(self._run.report)
        except catalog.CatalogError as error:
            raise ReportFailedError(str(error)) from error
        if report is None:
            raise ReportFailedError(f"There is no report {self._run.report} any more.")
        return catalog.command(report, self._run.parameters, self._out)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Follow both pipes until the program has ended.

        Raises:
            ReportCancelledError: the row says to cancel.
            ReportFailedError: the report took too long, or the worker is stopping.
        """
        assert process.stdout is not None
        assert process.stderr is not None
        deadline = monotonic() + REPORT_SECONDS_MAX
        with self._database_may_fail():
            self._write(RunState.STARTING)
        written = asked = monotonic()
        dirty = False
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, (Lines(), self._on_event))
            selector.register(process.stderr, selectors.EVENT_READ, (Lines(), self._on_log))
            while process.poll() is None:
                for key, _ in selector.select(timeout=UPDATE_EVERY_S):
                    dirty |= drain_once(selector, key)
                now = monotonic()
                if now >= deadline:
                    raise ReportFailedError(
                        f"The report took longer than {timedelta(seconds=REPORT_SECONDS_MAX)} and "
                        "was ended; ask for a shorter time range."
                    )
                with self._database_may_fail():
                    if now - asked >= CANCEL_ASKED_EVERY_S:
                        asked = now
                        self._memory = max(self._memory, memory_of_session(process.pid))
                        self._obey()
                    if (dirty and now - written >= UPDATE_EVERY_S) or now - written >= HEARTBEAT_S:
                        written, dirty = now, False
                        self._write(self._state())
            # The pipes still hold what the program wrote before it ended.
            gave = True
            while gave:
                gave = False
                for key, _ in selector.select(timeout=0):
                    gave |= drain_once(selector, key)

    @contextlib.contextmanager
    def _database_may_fail(self) -> Iterator[None]:
        """Leave the program at its work: the next heartbeat tells what this one could not."""
        try:
            yield
        except OperationalError as error:
            logger.warning("run's state not written: run=%s: %s", self._run.pk, error)
            let_go_of_broken_connection()

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
    """Return what `write` does, again and again while the console's database is locked or gone.

    Raises:
        OperationalError: it was so for DATABASE_SECONDS_MAX.
    """
    deadline = monotonic() + DATABASE_SECONDS_MAX
    while True:
        try:
            return write()
        except OperationalError as error:
            if monotonic() >= deadline:
                raise
            logger.warning("the console's database is waited for: %s", error)
            let_go_of_broken_connection()
        sleep(DATABASE_PAUSE_S)


def let_go_of_broken_connection() -> None:
    """Have the next query connect again, where this connection is of no use any more."""
    if not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()


def output_directory() -> Path:
    """Return where each run's program writes, in a directory of its own."""
    return Path(settings.TREBUCHET_DATA) / "reports"


def parquet_path(run_id: int) -> Path:
    """Return where the file with all rows of a result is kept."""
    return Path(settings.TREBUCHET_DATA) / "parquet" / f"{run_id}.parquet"


def keep_parquet(run_id: int, made: Path) -> None:
    """Keep a run's Parquet file, and of all files the PARQUET_KEPT newest."""
    kept = parquet_path(run_id)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        made.replace(kept)
    except OSError as error:
        # The result itself is in the database.
        logger.warning("Parquet file not kept: run=%s: %s", run_id, error.strerror)
        return
    files = [path for path in kept.parent.glob("*.parquet") if path.stem.isdecimal()]
    for path in sorted(files, key=lambda path: int(path.stem))[:-PARQUET_KEPT]:
        path.unlink(missing_ok=True)


def remove_leftovers() -> None:
    """Remove the output of runs that nobody works at: their worker was killed."""
    working = set(ReportRun.objects.filter(state__in=WORKING).values_list("pk", flat=True))
    for left in output_directory().glob(f"{OUTPUT_PREFIX}*"):
        number = left.name.removeprefix(OUTPUT_PREFIX)
        if number.isdecimal() and int(number) not in working:
            shutil.rmtree(left, ignore_errors=True)


def drain_once(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> bool:
    """Pass on the lines of one chunk of a pipe; at its end, unregister it and return False."""
    lines, take = key.data
    data = os.read(key.fd, 65_536)
    for line in lines.feed(data) if data else lines.end():
        take(line)
    if not data:
        selector.unregister(key.fileobj)
    return bool(data)


def read_result(path: Path) -> dict[str, Any]:
    """Return the report's result.

    Raises:
        ReportFailedError: the file is missing, too large, or not in the agreed form.
    """
    try:
        if path.stat().st_size > RESULT_BYTES_MAX:
            raise ReportFailedError(
                f"The result is larger than {RESULT_BYTES_MAX // 1024**2} MiB; "
                "ask for a shorter time range."
            )
        result = json.loads(path.read_bytes())
    except OSError as error:
        raise ReportFailedError(
            f"The analytics program says done, but its result cannot be read: {error.strerror}."
        ) from error
    except ValueError as error:
        raise ReportFailedError(f"The result of the report is not JSON: {error}.") from error
    rows = result.get("rows") if isinstance(result, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ReportFailedError("The result of the report has no list of rows.")
    try:
        results.check(catalog.report_of(result.get("report")), result)
    except ValueError as error:
        raise ReportFailedError(f"The result of the report is not usable: {error}.") from error
    return dict(result)


def end_group(group: int, *, wait: subprocess.Popen[bytes]) -> None:
    """End a process group: SIGTERM, then SIGKILL after GRACE_S. Returns once its leader is gone."""
    if wait.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            wait.wait(timeout=GRACE_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    wait.wait()
