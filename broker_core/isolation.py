"""Isolation: a failing item (a topic, a client, a message) doesn't affect the others.

A loop over many items handles each one within `isolated`, which logs unforeseen errors (a bug or an
unexpected value), so that the loop continues with the next item.
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
    """Logs each kind of failure once a minute, with a traceback and the number not logged since.

    Repeated failures can't fill a disk. Any thread; the count may miss some.
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
            "step failed, continuing with the next step=%s item=%s failures_not_logged=%d",
            what,
            str(item)[:ITEM_CHARS_MAX],
            count,
            exc_info=error,
        )


FAILURES = FailureLog(SystemClock())


class isolated:  # noqa: N801  used like a statement, as in contextlib
    """Log an exception of the block instead of raising it, except MemoryError.

    Attributes:
        error: the exception of the block; None if it succeeded.
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
