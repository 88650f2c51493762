"""Desk: starts, monitors and ends query processes. There is one per console process.

A query process ends with the console because it watches its standard input.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.cache import cache
from django.utils.translation import gettext as _

from broker_core.environment import without_secrets
from console.data.reports.catalog import lake_state
from console.data.sql.runs import PARQUET, ROWS, Column, Outcome, Run, forget_old
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

SECONDS_MAX = 30
ROWS_MAX = 20_000
BYTES_MAX = 16 * 1024 * 1024
MEMORY_MB = 400
AT_ONCE_MAX = 2
SENTENCE_CHARACTERS_MAX = 1_000
TABLES_KEPT_S = 300
DESCRIBE_SECONDS_MAX = 30


class DeskError(Exception):
    """The query can't be started; the text is a sentence."""


@dataclass(slots=True)
class ActiveQuery:
    """A run whose process is still active."""

    run: Run
    process: subprocess.Popen[bytes]
    percent: float | None = None
    rows: int = 0
    ended_because: Outcome | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class Desk:
    """Runs queries, at most AT_ONCE_MAX at a time and one per person."""

    def __init__(self, seconds_max: float = SECONDS_MAX) -> None:
        self._seconds_max = seconds_max
        self._lock = threading.Lock()
        self._working: dict[str, ActiveQuery] = {}

    def start(self, run: Run) -> None:
        """Start a run.

        Raises:
            DeskError: too many others are running, or the process can't be started.
        """
        with self._lock:
            if any(each.run.user_id == run.user_id for each in self._working.values()):
                raise DeskError(
                    _("You already have a query running. Wait for it to finish, or cancel it.")
                )
            if len(self._working) >= AT_ONCE_MAX:
                raise DeskError(
                    _("Other people are querying the lake right now. Try again in a moment.")
                )
            try:
                forget_old()
                run.make()
                working = ActiveQuery(run, _start(run))
            except OSError as error:
                raise DeskError(
                    _("Couldn't start the query: %s.") % (error.strerror or error)
                ) from error
            self._working[run.id] = working
        late = Outcome("failed", 0, _late(self._seconds_max))
        timer = threading.Timer(self._seconds_max, self._end, (working, late))
        timer.daemon = True
        timer.start()
        threading.Thread(target=self._follow, args=(working, timer), daemon=True).start()

    def working(self, run_id: str) -> ActiveQuery | None:
        """Return a run that hasn't ended."""
        return self._working.get(run_id)

    def wait(self, run_id: str, seconds: float) -> None:
        """Wait for a run to end, with a timeout."""
        working = self._working.get(run_id)
        if working is not None:
            working.ended.wait(seconds)

    def cancel(self, run_id: str) -> bool:
        """End a run now; return whether it was still running."""
        working = self._working.get(run_id)
        if working is None:
            return False
        self._end(working, Outcome("cancelled", 0))
        return True

    def _end(self, working: ActiveQuery, because: Outcome) -> None:
        if working.ended_because is None:
            working.ended_because = because
        # The process needs no cleanup; its files are deleted with the run.
        with contextlib.suppress(ProcessLookupError):
            working.process.kill()

    def _follow(self, working: ActiveQuery, timer: threading.Timer) -> None:
        last: dict[str, Any] = {}
        process = working.process
        assert process.stdout is not None
        assert process.stderr is not None
        with process:
            for line in process.stdout:
                with contextlib.suppress(ValueError):
                    last = json.loads(line)
                if last.get("event") == "progress":
                    working.percent = last.get("percent", working.percent)
                    working.rows = last.get("rows", working.rows)
            text = process.stderr.read(4_096).decode("utf-8", "replace").strip()
        timer.cancel()
        if text:
            # The text may name files of the lake, which not everyone with SQL access may see.
            logger.warning("query process wrote errors run=%s text=%r", working.run.id, text)
        outcome = _outcome(last, process.returncode)
        because = working.ended_because
        if because is not None and outcome.state != "done":
            outcome = Outcome(because.state, now_ms(), because.sentence)
        # The run's directory may have been deleted in the meantime.
        with contextlib.suppress(OSError):
            working.run.end(outcome)
        with self._lock:
            del self._working[working.run.id]
        working.ended.set()


def _start(run: Run) -> subprocess.Popen[bytes]:
    with (
        (run.directory / ROWS).open("wb") as rows_file,
        (run.directory / PARQUET).open("wb") as parquet_file,
    ):
        descriptors = (rows_file.fileno(), parquet_file.fileno())
        process = subprocess.Popen(
            [
                *program(),
                *("--rows-fd", str(descriptors[0]), "--parquet-fd", str(descriptors[1])),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=descriptors,
            cwd=settings.BASE_DIR,
            env=without_secrets(os.environ),
            start_new_session=True,
        )
    request = {
        "sql": run.sql,
        "zone": run.zone,
        "rows_max": ROWS_MAX,
        "bytes_max": BYTES_MAX,
        "seconds_max": SECONDS_MAX,
        "topics": run.topics,
        "masks": run.masks,
    }
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
    return process


def program() -> list[str]:
    """Return the analytics command that queries this console's lake."""
    command = [sys.executable, "-m", "analytics.query", "--lake", settings.TREBUCHET_LAKE]
    state = lake_state()
    return command if state is None else [*command, "--state", str(state)]


def _outcome(last: dict[str, Any], code: int) -> Outcome:
    now = now_ms()
    if last.get("event") == "done" and code == 0:
        columns = tuple(
            Column(each["name"], each["type"], each["kind"]) for each in last["columns"]
        )
        return Outcome("done", now, "", columns, last["rows"], last["bytes"], last["cut"])
    if last.get("event") == "failed":
        return Outcome("failed", now, str(last["message"])[:SENTENCE_CHARACTERS_MAX])
    sentence = _(
        "The query stopped unexpectedly (exit code %(code)s). It may have run out of memory; the "
        "console log has details."
    ) % {"code": code}
    return Outcome("failed", now, sentence)


def _late(seconds: float) -> str:
    return _(
        "The query took longer than %(seconds)d s and was stopped. Use a shorter time range "
        "(column day) or fewer topics."
    ) % {"seconds": seconds}


def tables() -> dict[str, Any]:
    """Return the lake's tables with their columns, or `problem`: why they are unknown."""
    key = f"sql-tables-{hash(settings.TREBUCHET_LAKE)}"
    found: dict[str, Any] | None = cache.get(key)
    if found is None:
        found = _described(lambda: [*program(), "--describe"])
        if found.get("tables"):
            cache.set(key, found, TABLES_KEPT_S)
    return found


def _described(command: Callable[[], list[str]]) -> dict[str, Any]:
    try:
        completed = subprocess.run(
            command(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DESCRIBE_SECONDS_MAX,
            cwd=settings.BASE_DIR,
            env=without_secrets(os.environ),
        )
        found: dict[str, Any] = json.loads(completed.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return {
            "tables": [],
            "problem": _("The analytics program didn't report which tables the lake has."),
        }
    if "tables" not in found:
        return {"tables": [], "problem": str(found.get("message", ""))}
    return found


desk = Desk()
