"""When a maintenance window is open, in its own time zone, across daylight saving changes."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from django.urls import reverse
from django.utils.translation import gettext as _

from console.lib.moment import now_ms
from console.observe.alerts.models import Alert, Window
from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.http import HttpRequest

    from console.observe.alerts.forms import WindowForm

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


def audit_state(window: Window) -> dict[str, Any]:
    return {
        each.name: getattr(window, each.name) for each in Window._meta.fields if each.name != "id"
    }


def save_window(request: HttpRequest, form: WindowForm, before: dict[str, Any] | None) -> Window:
    """Save a valid form under an audit log entry; `before` is None for a new window."""
    action = "alert-window.create" if before is None else "alert-window.update"
    with change(request, action, form.cleaned_data["name"], before=before) as entry:
        saved: Window = form.save()
        entry.after = audit_state(saved)
    return saved


def delete_window(request: HttpRequest, window: Window) -> None:
    """Delete a window under an audit log entry."""
    with change(request, "alert-window.delete", window.name, before=audit_state(window)):
        window.delete()


def danger_of(window: Window) -> Danger:
    """Return the confirmation for deleting a window, which ends it if it is open now."""
    quiet = 0
    if is_open(window, now_ms()):
        quiet = Alert.objects.filter(open_key__isnull=False, muted=Alert.Muted.WINDOW).count()
    return Danger(
        title=_("Delete window %(name)s?") % {"name": window.name},
        text=_("Alerts also send notifications at these times, starting within a minute."),
        effects=(Effect(_("Alerts currently muted by windows"), quiet, is_bad=True),),
        undo=_("This can't be undone. To pause the channel, turn it off instead."),
        action=_("Delete window"),
        keep=_("Cancel"),
        address=reverse("alerts:window-delete", args=[window.pk]),
        back=reverse("alerts:window-edit", args=[window.pk]),
        name=window.name,
    )
