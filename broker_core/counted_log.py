"""CountedLog: rate-limited log lines about events that clients can repeat at will.

The first event about a subject is logged immediately. After that there is one line per minute with
their count, as long as events occur.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

    from broker_core.clock import Clock, Timer

PERIOD_S = 60.0
SUBJECTS_MAX = 1_000
"""Subjects beyond this share one line per event, because clients choose some of their names."""
OTHERS = "others"


@dataclass(slots=True)
class _RepeatedLine:
    logger: logging.Logger
    level: int
    event: str
    subject: str
    timer: Timer | None = None
    count: int = 0
    detail: str = ""
    values: tuple[object, ...] = ()


class CountedLog:
    """Event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._repeated: dict[tuple[str, str], _RepeatedLine] = {}

    def report(
        self,
        logger: logging.Logger,
        level: int,
        event: str,
        subject: str,
        detail: str = "",
        *values: object,
    ) -> None:
        """Count an event about a subject; log the first event immediately.

        The detail, formatted with the values, describes this event: a line with a count has the
        detail of the last event.
        """
        repeated = self._repeated.get((event, subject))
        if repeated is None and len(self._repeated) >= SUBJECTS_MAX:
            subject = OTHERS
            repeated = self._repeated.get((event, subject))
        is_first = repeated is None
        if repeated is None:
            repeated = _RepeatedLine(logger, level, event, subject)
            self._repeated[event, subject] = repeated
        repeated.count += 1
        repeated.detail, repeated.values = detail, values
        if is_first:
            self._log(repeated)
            self._wait(repeated)

    def shutdown(self) -> None:
        """Log events that were counted but not logged yet."""
        for repeated in self._repeated.values():
            if repeated.timer is not None:
                repeated.timer.cancel()
            if repeated.count:
                self._log(repeated)
        self._repeated.clear()

    def _wait(self, repeated: _RepeatedLine) -> None:
        when = self._clock.monotonic() + PERIOD_S
        repeated.timer = self._clock.call_at(when, lambda: self._end_period(repeated))

    def _end_period(self, repeated: _RepeatedLine) -> None:
        if not repeated.count:
            del self._repeated[repeated.event, repeated.subject]
            return
        self._log(repeated)
        self._wait(repeated)

    def _log(self, repeated: _RepeatedLine) -> None:
        detail = repeated.detail % repeated.values
        repeated.logger.log(
            repeated.level,
            "%s %s count=%d%s",
            repeated.event,
            repeated.subject,
            repeated.count,
            f" {detail}" if detail else "",
        )
        repeated.count = 0
