"""Metrics of services next to the console: Redis, the worker, the lake.

Reading them takes seconds, too long for a scrape. The page shows values from the last minute, and
no values in the first seconds after a start.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from django.conf import settings

from console.data.pipeline.lake_status import LakeStatus, status
from console.data.reports import health
from console.lib.moment import now_ms as wall_ms
from console.observe.scraping.families import gauge, one, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker_core.metrics.exposition import Family

logger = logging.getLogger(__name__)

EVERY_MS = 60_000
STALE_MS = 5 * EVERY_MS
"""Older values are dropped."""
Value = TypeVar("Value")


class Cached(Generic[Value]):
    """Caches the result of `read`, which runs in one thread at a time. Thread-safe."""

    def __init__(self, read: Callable[[], Value], clock: Callable[[], int] = wall_ms) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._value: Value | None = None
        self._found_ms: int | None = None
        self._reader: threading.Thread | None = None

    def get(self) -> Value | None:
        """Return the latest result; refresh it in the background if it is old."""
        with self._lock:
            age_ms = None if self._found_ms is None else self._clock() - self._found_ms
            is_due = age_ms is None or not 0 <= age_ms < EVERY_MS
            if is_due and (self._reader is None or not self._reader.is_alive()):
                self._reader = threading.Thread(target=self._run, name="services", daemon=True)
                self._reader.start()
            return self._value if age_ms is not None and 0 <= age_ms < STALE_MS else None

    def wait(self) -> None:
        """Wait for the reader thread, if there is one."""
        if self._reader is not None:
            self._reader.join()

    def _run(self) -> None:
        found = self._read()
        with self._lock:
            self._value, self._found_ms = found, self._clock()


@dataclass(frozen=True, slots=True)
class Services:
    """The state of the services."""

    redis_answers: bool
    worker_answers: bool
    pipeline_answers: bool
    lake: LakeStatus | None


def read_services() -> Services:
    """Read the state of all services; takes up to some seconds."""
    redis = health.redis_responds(settings.TREBUCHET_REDIS_URL)
    return Services(
        redis_answers=redis,
        worker_answers=redis and health.worker_responds(),
        pipeline_answers=redis and health.pipeline_responds(),
        lake=status() if settings.TREBUCHET_LAKE else None,
    )


cached: Cached[Services] = Cached(read_services)


def families(now_ms: int) -> Iterator[Family]:
    """Yield the metrics of Redis, the worker and the lake."""
    known = cached.get()
    if known is None:
        return
    yield one("redis_up", "Whether Redis responds", float(known.redis_answers))
    yield one("worker_up", "Whether a Celery worker responds", float(known.worker_answers))
    yield one(
        "pipeline_up",
        "Whether the pipeline's worker is waiting for a job or running one",
        float(known.pipeline_answers),
    )
    if known.lake is not None:
        yield from _lake(known.lake)


def _lake(lake: LakeStatus) -> Iterator[Family]:
    yield one("lake_readable", "Whether the lake can be read", float(not lake.problem))
    if lake.problem:
        return
    state = lake.found
    jobs = state.get("jobs") or {}
    yield one(
        "lake_committed_timestamp_seconds",
        "Time up to which the lake contains all messages",
        seconds(state["committed_ms"]),
    )
    yield one(
        "lake_pending_bytes",
        "Bytes of the log that the lake hasn't ingested",
        state["pending_bytes"],
    )
    yield one(
        "lake_checked_timestamp_seconds",
        "Time of the pipeline's last job on the lake",
        seconds(jobs.get("checked_ms") or None),
    )
    yield one(
        "lake_failing",
        "Whether the pipeline's last job on the lake failed",
        float(bool(jobs.get("error"))),
    )
    for name, text in (
        ("rows", "Rows in a table of the lake"),
        ("bytes", "Bytes of a table of the lake"),
        ("files", "Files of a table of the lake"),
    ):
        yield gauge(
            f"lake_table_{name}", text, [({"table": t["table"]}, t[name]) for t in state["tables"]]
        )
