"""Progress of a run, as JSON lines for the process that started it.

One line for each event, on a stream that carries nothing else:

    {"event":"progress","stage":"reading","done":3,"total":12,"rows":0,"bytes":201326592}
    {"event":"done","rows":40,"totals":{"messages":"1000","bytes":"300000"},"seconds":9.1}
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
    from collections.abc import Callable, Iterator, Mapping

    from analytics.engine import Engine

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.3
READING = "reading"
COMPARING = "comparing"


class ProgressLines:
    """Writes the events. Any thread; a line is never torn."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._last = ""

    def progress(self, stage: str, done: int, total: int, rows: int = 0, bytes_: int = 0) -> None:
        """Write how far a stage is; the same again writes nothing."""
        line = _line(event="progress", stage=stage, done=done, total=total, rows=rows, bytes=bytes_)
        with self._lock:
            if line == self._last:
                return
            self._last = line
            self._write(line)

    def done(self, *, rows: int, totals: Mapping[str, str], seconds: float) -> None:
        """Write that the result is there, with how many rows it has."""
        self._say(event="done", rows=rows, totals=dict(totals), seconds=round(seconds, 3))

    def failed(self, message: str) -> None:
        """Write why there is no result."""
        self._say(event="failed", message=message)

    def _say(self, **event: object) -> None:
        with self._lock:
            self._write(_line(**event))

    def _write(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except BrokenPipeError:
            # Nobody reads any more; the result on disk is still worth having.
            logger.debug("nobody reads the progress any more")


@contextmanager
def reading_followed(
    spark: Engine,
    lines: ProgressLines,
    stage: str,
    *,
    total_bytes: int,
    tasks: int,
    tells_rows: bool = True,
) -> Iterator[None]:
    """Report the stage that reads the log, the first of the jobs to come, from a thread.

    Without `tells_rows`, Spark's rows are not messages, and are left out.
    """
    stop = threading.Event()
    with spark.watched(tells_rows=tells_rows) as first_stage:
        following = threading.Thread(
            target=_follow,
            args=(first_stage, lines, stage, total_bytes, tasks, stop),
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
    first_stage: Callable[[], tuple[int, int]],
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
            done, rows = first_stage()
        except (Py4JError, OSError):
            # Spark is going away; the thread that runs the report says why.
            return
        lines.progress(stage, done, total, rows, total_bytes * min(done, total) // total)


def _line(**event: object) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)
