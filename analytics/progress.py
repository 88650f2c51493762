"""Reports a run's progress as JSON lines to the parent process.

One line for each event, on a stream that carries nothing else:

    {"event":"progress","stage":"reading","done":3,"total":12,"rows":0,"bytes":201326592}
    {"event":"done","rows":40,"totals":{"messages":"1000","bytes":"300000"},"seconds":9.1}
    {"event":"failed","message":"The access key ops has no secret key."}
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from analytics.engine import Engine

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.3
READING = "reading"
COMPARING = "comparing"


class ProgressLines:
    """Writes the events. Thread-safe; lines are written whole."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._last = ""

    def progress(self, stage: str, done: int, total: int, rows: int = 0, bytes_: int = 0) -> None:
        """Write the progress of a stage, unless it hasn't changed."""
        line = _line(event="progress", stage=stage, done=done, total=total, rows=rows, bytes=bytes_)
        with self._lock:
            if line == self._last:
                return
            self._last = line
            self._write(line)

    def done(self, *, rows: int, totals: Mapping[str, str], seconds: float) -> None:
        """Write that the result is complete, and its number of rows."""
        self.say(event="done", rows=rows, totals=dict(totals), seconds=round(seconds, 3))

    def failed(self, message: str, *, is_last: bool = False) -> None:
        """Write why the run failed, and whether the program exits."""
        self.say(event="failed", message=message, **({"is_last": True} if is_last else {}))

    def say(self, **event: object) -> None:
        """Write an event."""
        with self._lock:
            self._write(_line(**event))

    def _write(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except BrokenPipeError:
            # The reader has exited, but the result on disk is still useful.
            logger.debug("progress reader gone")


def reserve_stdout() -> IO[str]:
    """Reserve standard output for these lines: Java and Python workers write to stderr instead."""
    sys.stdout.flush()
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return private


@contextmanager
def reading_progress(
    spark: Engine,
    lines: ProgressLines,
    stage: str,
    *,
    total_bytes: int,
    tasks: int,
) -> Iterator[None]:
    """Report the reading stage, which is the next job, from a thread."""
    stop = threading.Event()
    following = threading.Thread(
        target=_follow,
        args=(spark, lines, stage, total_bytes, tasks, stop),
        name="progress",
        daemon=True,
    )
    following.start()
    try:
        yield
    finally:
        stop.set()
        following.join()


def _follow(
    spark: Engine,
    lines: ProgressLines,
    stage: str,
    total_bytes: int,
    tasks: int,
    stop: threading.Event,
) -> None:
    total = max(1, tasks)
    lines.progress(stage, 0, total)
    ended = False
    while not ended:
        ended = stop.wait(POLL_SECONDS)
        try:
            done = spark.first_stage_tasks()
        except (Py4JError, OSError):
            # Spark is stopping; the thread that runs the report says why.
            return
        lines.progress(stage, done, total, 0, total_bytes * min(done, total) // total)


def _line(**event: object) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)
