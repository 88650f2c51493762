"""What the console needs and keeps beside it: Redis, the worker, the lake.

Asking takes seconds, which a scrape has not: the page tells what was found within the last minute,
and nothing for the first seconds after a start.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from django.conf import settings

from console.gateway.moment import now_ms as wall_ms
from console.lake.status import LakeStatus, status
from console.reports import health
from console.scraping.families import gauge, one, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker_core.metrics.exposition import Family

logger = logging.getLogger(__name__)

EVERY_MS = 60_000
STALE_MS = 5 * EVERY_MS
"""What was found is told no longer than this."""
Value = TypeVar("Value")


class Lately(Generic[Value]):
    """What `read` returned last; it runs in a thread of its own, one at a time. Any thread."""

    def __init__(self, read: Callable[[], Value], clock: Callable[[], int] = wall_ms) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._value: Value | None = None
        self._found_ms: int | None = None
        self._reader: threading.Thread | None = None

    def get(self) -> Value | None:
        """Return what was found last; have it read again if that is a while ago."""
        with self._lock:
            age_ms = None if self._found_ms is None else self._clock() - self._found_ms
            is_due = age_ms is None or not 0 <= age_ms < EVERY_MS
            if is_due and (self._reader is None or not self._reader.is_alive()):
                self._reader = threading.Thread(target=self._run, name="surroundings", daemon=True)
                self._reader.start()
            return self._value if age_ms is not None and 0 <= age_ms < STALE_MS else None

    def wait(self) -> None:
        """Wait for the reader, if there is one."""
        if self._reader is not None:
            self._reader.join()

    def _run(self) -> None:
        found = self._read()
        with self._lock:
            self._value, self._found_ms = found, self._clock()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was found."""

    redis_answers: bool
    worker_answers: bool
    lake: LakeStatus | None


def found() -> Surroundings:
    """Look around; that takes up to some seconds."""
    redis = health.redis_answers(settings.TREBUCHET_REDIS_URL)
    return Surroundings(
        redis_answers=redis,
        worker_answers=redis and health.worker_answers(),
        lake=status() if settings.TREBUCHET_LAKE else None,
    )


lately: Lately[Surroundings] = Lately(found)


def families(now_ms: int) -> Iterator[Family]:
    """Yield what is known of Redis, the worker and the lake."""
    known = lately.get()
    if known is None:
        return
    yield one("redis_up", "Whether Redis answers", float(known.redis_answers))
    yield one("worker_up", "Whether a worker of reports answers", float(known.worker_answers))
    if known.lake is not None:
        yield from _lake(known.lake)


def _lake(lake: LakeStatus) -> Iterator[Family]:
    yield one("lake_readable", "Whether the lake can be read", float(not lake.problem))
    if lake.problem:
        return
    state = lake.found
    keeper = state.get("keeper") or {}
    yield one(
        "lake_committed_timestamp_seconds",
        "Up to when the lake has the messages",
        seconds(state["committed_ms"]),
    )
    yield one("lake_pending_bytes", "Bytes of the log that it lacks", state["pending_bytes"])
    yield one(
        "lake_checked_timestamp_seconds",
        "When the process that keeps it looked last",
        seconds(keeper.get("checked_ms") or None),
    )
    yield one(
        "lake_failing",
        "Whether the process that keeps it has failed last",
        float(bool(keeper.get("error"))),
    )
    for name, text in (
        ("rows", "Rows of a table of the lake"),
        ("bytes", "Bytes of a table of the lake"),
        ("files", "Files of a table of the lake"),
    ):
        yield gauge(
            f"lake_table_{name}", text, [({"table": t["table"]}, t[name]) for t in state["tables"]]
        )
