"""When a maintenance window is open, in its own zone, over changes of summer time."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from console.alerts.models import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTES_MAX = 7 * 24 * 60
DAYS_AHEAD = 15


class Span(NamedTuple):
    """From `low_ms` to `high_ms`, the latter not included."""

    low_ms: int
    high_ms: int


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """Return the names of zones that this machine knows."""
    return frozenset(available_timezones())


def spans(window: Window, now_ms: int) -> Iterator[Span]:
    """Yield the times of a window in their order: the one that may be open now, and later ones."""
    zone = ZoneInfo(window.zone)
    length = timedelta(minutes=window.minutes)
    if window.kind == Window.Kind.ONCE:
        begins = [datetime.fromisoformat(window.begins).replace(tzinfo=zone)]
    else:
        at = time.fromisoformat(window.begins)
        today = datetime.fromtimestamp(now_ms / 1000, tz=zone).date()
        # A window may have begun as long ago as it lasts.
        days = range(-(window.minutes // (24 * 60)) - 1, DAYS_AHEAD)
        dates = (today + timedelta(days=each) for each in days)
        begins = [
            datetime.combine(date, at, tzinfo=zone)
            for date in dates
            if date.weekday() in window.weekdays
        ]
    for begin in begins:
        # The length is real time: an hour is an hour in the night when clocks are set.
        low = begin.astimezone(UTC)
        span = Span(_ms(low), _ms(low + length))
        if span.high_ms > now_ms:
            yield span


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def is_open(window: Window, now_ms: int) -> bool:
    return window.enabled and any(span.low_ms <= now_ms for span in spans(window, now_ms))


def next_span(window: Window, now_ms: int) -> Span | None:
    """Return when it is open, now or next; None: never again."""
    return next(spans(window, now_ms), None)


def matches(pattern: str, text: str) -> bool:
    """Whether a text is one of the shell-like patterns, which blanks or commas separate."""
    return any(fnmatchcase(text, each) for each in pattern.replace(",", " ").split())


def is_about(broker_pattern: str, name_pattern: str, broker: str, name: str) -> bool:
    """Whether patterns mean a subject; a progress `group@topic` is meant by either of its names."""
    if not matches(broker_pattern, broker):
        return False
    return any(matches(name_pattern, each) for each in (name, *name.split("@")))
