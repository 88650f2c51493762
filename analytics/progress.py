"""Progress of a run, as JSON lines for whoever started it.

One line an event, on the stream that carries nothing else:

    {"event":"progress","stage":"reading","done":3,"total":12,"rows":0,"bytes":201326592}
    {"event":"done","rows":40,"messages":"1000","bytes":"300000","seconds":9.1}
    {"event":"failed","message":"There is no store at /data/store: no such directory."}
"""

from __future__ import annotations

import json
import logging
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.3


class ProgressLines:
    """Writes the events. Any thread; a line is never torn."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._last = ""

    def progress(self, stage: str, done: int, total: int, rows: int = 0, bytes_: int = 0) -> None:
        """Say how far a stage is; saying the same again writes nothing."""
        line = _line(event="progress", stage=stage, done=done, total=total, rows=rows, bytes=bytes_)
        with self._lock:
            if line == self._last:
                return
            self._last = line
            self._write(line)

    def done(self, *, rows: int, messages: int, bytes_: int, seconds: float) -> None:
        self._say(
            event="done",
            rows=rows,
            messages=str(messages),
            bytes=str(bytes_),
            seconds=round(seconds, 3),
        )

    def failed(self, message: str) -> None:
        self._say(event="failed", message=message)

    def _say(self, **event: object) -> None:
        with self._lock:
            self._write(_line(**event))

    def _write(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except BrokenPipeError:
            # Nobody listens any more; the result on disk is still worth having.
            logger.debug("progress is not read any more")


@contextmanager
def reading_followed(
    context: SparkContext, job_group: str, lines: ProgressLines, *, total_bytes: int, tasks: int
) -> Iterator[None]:
    """Report a job group's first stage, the one that reads the log, from a thread of its own."""
    stop = threading.Event()
    following = threading.Thread(
        target=_follow,
        args=(context, job_group, lines, total_bytes, tasks, stop),
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
    context: SparkContext,
    job_group: str,
    lines: ProgressLines,
    total_bytes: int,
    tasks: int,
    stop: threading.Event,
) -> None:
    total = max(1, tasks)
    lines.progress("reading", 0, total)
    ended = False
    while not ended:
        ended = stop.wait(POLL_SECONDS)
        try:
            done, rows = _first_stage(context, job_group)
        except (Py4JError, OSError):
            # Spark is going away; why it does is for the thread that runs the report to say.
            return
        lines.progress("reading", done, total, rows, total_bytes * min(done, total) // total)


def _first_stage(context: SparkContext, job_group: str) -> tuple[int, int]:
    """Return how many tasks of the reading stage are done, and how many rows they yielded."""
    tracker = context.statusTracker()
    stages = [
        stage
        for job in tracker.getJobIdsForGroup(job_group)
        if (info := tracker.getJobInfo(job)) is not None
        for stage in info.stageIds
    ]
    if not stages or (first := tracker.getStageInfo(min(stages))) is None:
        return 0, 0
    # The status tracker counts tasks only; rows are in the store that it reads from.
    store = context._jsc.sc().statusStore()
    return first.numCompletedTasks, int(store.lastStageAttempt(min(stages)).inputRecords())


def _line(**event: object) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)
