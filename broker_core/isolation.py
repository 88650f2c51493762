"""Isolation: one of many that fails (a topic, a client, a message) keeps the others from nothing.

A loop over many serves each of them within `isolated`. What fails there is a bug of ours or a value
that nobody thought of: it is logged, and the loop goes on with the next one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.clock import SystemClock

if TYPE_CHECKING:
    from types import TracebackType

    from broker_core.clock import Clock

logger = logging.getLogger(__name__)

QUIET_S = 60.0
KINDS_MAX = 1_000
ITEM_CHARS_MAX = 300


class FailureLog:
    """Logs failures so that nobody fills a disk with them: each kind with its traceback once a
    minute, and how many were not logged since. Any thread; a lost count harms nobody.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}

    def report(self, what: str, item: object, error: BaseException) -> None:
        """Log that `what` failed for an item."""
        now = self._clock.monotonic()
        logged_s, count = self._logged.get(what, (now - QUIET_S, 0))
        if now - logged_s < QUIET_S:
            self._logged[what] = logged_s, count + 1
            return
        if len(self._logged) >= KINDS_MAX:
            self._logged.clear()
        self._logged[what] = now, 0
        logger.error(
            "%s failed, going on with the others: item=%s failures_not_logged=%d",
            what,
            str(item)[:ITEM_CHARS_MAX],
            count,
            exc_info=error,
        )


FAILURES = FailureLog(SystemClock())


class isolated:  # noqa: N801  it reads as a statement, as contextlib's do
    """Log what a block raises, instead of passing it on; but a lack of memory, which is of all.

    Attributes:
        error: what the block raised, None after a block that ended well.
    """

    __slots__ = ("_item", "_what", "error")

    def __init__(self, what: str, item: object = "") -> None:
        self._what = what
        self._item = item
        self.error: Exception | None = None

    def __enter__(self) -> isolated:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            return False
        self.error = error
        FAILURES.report(self._what, self._item, error)
        return True
