"""When a maintenance window is open, in its own time zone, across daylight saving changes."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from console.observe.alerts.models import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTES_MAX = 7 * 24 * 60
DAYS_AHEAD = 15


class Span(NamedTuple):
    """From `low_ms` up to but excluding `high_ms`."""

    low_ms: int
    high_ms: int


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """Return the names of the time zones that this machine has."""
    return frozenset(available_timezones())


def spans(window: Window, now_ms: int) -> Iterator[Span]:
    """Yield a window's times in order, starting with the current one, if any."""
    zone = ZoneInfo(window.zone)
    length = timedelta(minutes=window.minutes)
    if window.kind == Window.Kind.ONCE:
        begins = [datetime.fromisoformat(window.begins).replace(tzinfo=zone)]
    else:
        at = time.fromisoformat(window.begins)
        today = datetime.fromtimestamp(now_ms / 1000, tz=zone).date()
        # The current span may have begun as long ago as a window's length.
        days = range(-(window.minutes // (24 * 60)) - 1, DAYS_AHEAD)
        dates = (today + timedelta(days=each) for each in days)
        begins = [
            datetime.combine(date, at, tzinfo=zone)
            for date in dates
            if date.weekday() in window.weekdays
        ]
    for begin in begins:
        # The length is elapsed time: an hour is an hour even in the night when clocks change.
        low = begin.astimezone(UTC)
        span = Span(_ms(low), _ms(low + length))
        if span.high_ms > now_ms:
            yield span


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def is_open(window: Window, now_ms: int) -> bool:
    return window.enabled and any(span.low_ms <= now_ms for span in spans(window, now_ms))


def next_span(window: Window, now_ms: int) -> Span | None:
    """Return the current or next span, or None if the window never opens again."""
    return next(spans(window, now_ms), None)


def matches(pattern: str, text: str) -> bool:
    """Return whether a text matches one of the glob patterns, separated by spaces or commas."""
    return any(fnmatchcase(text, each) for each in pattern.replace(",", " ").split())


def is_about(broker_pattern: str, name_pattern: str, broker: str, name: str) -> bool:
    """Return whether patterns match a subject; a progress `group@topic` matches by either name."""
    if not matches(broker_pattern, broker):
        return False
    return any(matches(name_pattern, each) for each in (name, *name.split("@")))
