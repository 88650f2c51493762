"""Template tags: icons, numbers with units, times, unknown values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django import template
from django.conf import settings
from django.templatetags.static import static
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language, gettext as _, ngettext

from console.accounts.actions import Action
from console.accounts.rights import rights_on
from console.lib.moment import now_ms
from console.ui import words

if TYPE_CHECKING:
    from django.template import Context

register = template.Library()

KIB = 1024.0
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
THIN_SPACE = "\u202f"
SECONDS_A_DAY = 86_400
SECONDS_AN_HOUR = 3_600
SPAN_SECONDS_MAX = 90
SPAN_MINUTES_MAX = 90 * 60


@register.simple_tag(takes_context=True)
def may(context: Context, action: str, name: str = "") -> bool:
    """Whether the reader may do this with a topic or group; without a name, with any."""
    rights = rights_on(context["request"])
    return rights.may(Action(action), name) if name else rights.may_somewhere(Action(action))


@register.simple_tag
def script_words() -> str:
    """Return the URL of the scripts' translations in the page's language."""
    return words.address(get_language() or settings.LANGUAGE_CODE)


@register.simple_tag
def icon(name: str, css: str = "") -> SafeString:
    """Render an icon from the sprite; it is decorative, so hidden from screen readers."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        css,
        static("console/icons.svg"),
        name,
    )


class Unknown(SafeString):
    """Placeholder for an unknown value."""


@register.simple_tag
def unknown(reason: object = "") -> Unknown:
    """Render an unknown value: a dash that says why, never a zero."""
    text = str(reason) or _("Unknown.")
    return Unknown(
        format_html(
            '<span class="unknown" title="{0}" tabindex="0">\u2013'
            '<span class="visually-hidden"> ({0})</span></span>',
            text,
        )
    )


def grouped(value: int) -> str:
    return f"{value:,}".replace(",", THIN_SPACE)


# The filters below take the reason to show for None.


@register.filter
def count(value: float | None, reason: object = "") -> str:
    """Format an integer with groups of three digits."""
    return unknown(reason) if value is None else grouped(int(value))


@register.filter
def rate(value: float | None, reason: object = "") -> str:
    """Format a number per second; the unit is next to it or in the table header."""
    if value is None:
        return unknown(reason)
    if value >= 100 or value == 0:
        return grouped(round(value))
    return f"{value:.1f}" if value >= 0.1 else "< 0.1"


def bytes_text(value: float) -> str:
    size = float(value)
    for unit in BYTE_UNITS:
        if abs(size) < KIB or unit == BYTE_UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= KIB
    raise AssertionError


@register.filter
def byte_size(value: float | None) -> SafeString | str:
    """Format a number of bytes in binary units."""
    return unknown() if value is None else bytes_text(value)


@register.filter
def percent(value: float | None, reason: object = "") -> SafeString | str:
    """Format a ratio from 0 to 1 as a percentage."""
    return unknown(reason) if value is None else f"{value * 100:.1f} %"


@register.filter
def duration(seconds: float | None, reason: object = "") -> SafeString | str:
    """Format a duration in its two largest units, omitting the second if it is 0."""
    if seconds is None:
        return unknown(reason)
    whole = int(seconds)
    days, rest = divmod(whole, SECONDS_A_DAY)
    hours, rest = divmod(rest, SECONDS_AN_HOUR)
    minutes, left = divmod(rest, 60)
    if days:
        whole_days = ngettext("%(count)d day", "%(count)d days", days) % {"count": days}
        return f"{whole_days} {_('%s h') % hours}" if hours else whole_days
    if hours:
        text = _("%s h") % hours
        return f"{text} {_('%s min') % minutes}" if minutes else text
    if minutes:
        text = _("%s min") % minutes
        return f"{text} {_('%s s') % left}" if left else text
    return _("%s s") % left


@register.filter
def moment(timestamp_ms: int | None) -> SafeString:
    """Format an exact time in the person's zone; the script uses the browser's."""
    return time_element(timestamp_ms, "moment")


@register.filter
def age(timestamp_ms: int | None, reason: object = "") -> SafeString:
    """Format the age of a time, or the exact time after a day; the script keeps it current."""
    return time_element(timestamp_ms, "age", reason)


def clock_text(timestamp_ms: int) -> str:
    when = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    return timezone.localtime(when).strftime("%H:%M")


@register.filter
def clock(timestamp_ms: int) -> SafeString:
    """Format the hour and minute of a time of today; the script uses the browser's zone."""
    return format_html('<time data-clock="{}">{}</time>', timestamp_ms, clock_text(timestamp_ms))


@register.filter
def is_within_a_day(timestamp_ms: int) -> bool:
    """Whether `age` formats a time relatively."""
    return abs(now_ms() - timestamp_ms) < SECONDS_A_DAY * 1000


def time_element(timestamp_ms: int | None, kind: str, reason: object = "") -> SafeString:
    if timestamp_ms is None:
        return unknown(reason)
    try:
        when = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
        exact = timezone.localtime(when).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return unknown(_("The broker reported an invalid time: %s ms.") % timestamp_ms)
    seconds = (now_ms() - timestamp_ms) / 1000
    is_relative = kind == "age" and is_within_a_day(timestamp_ms)
    return format_html(
        '<time data-{}="{}" datetime="{}" title="{}">{}</time>',
        mark_safe(kind),
        str(timestamp_ms),
        when.isoformat(timespec="milliseconds"),
        f"{exact} {timezone.get_current_timezone_name()}",
        ago(seconds) if is_relative else exact,
    )


def ago(seconds: float) -> str:
    """Format an age in its largest unit, as the script does."""
    if -2 < seconds < 2:
        return _("just now")
    span = abs(seconds)
    if span < SPAN_SECONDS_MAX:
        text = _("%s s") % round(span)
    elif span < SPAN_MINUTES_MAX:
        text = _("%s min") % round(span / 60)
    else:
        text = _("%s h") % round(span / SECONDS_AN_HOUR)
    return (_("%s ago") if seconds > 0 else _("in %s")) % text


@register.inclusion_tag("ui/field.html")
def field(bound: Any, *, wide: bool = False) -> dict[str, Any]:
    """Render a form field, with its label, help and errors linked for screen readers."""
    widget = bound.field.widget
    described = [f"{bound.id_for_label}-help"] if bound.help_text else []
    if bound.errors:
        described.append(f"{bound.id_for_label}-error")
        widget.attrs["aria-invalid"] = "true"
    if described:
        widget.attrs["aria-describedby"] = " ".join(described)
    checkbox = getattr(widget, "input_type", "") == "checkbox"
    return {"field": bound, "wide": wide, "checkbox": checkbox}


@register.inclusion_tag("ui/source.html")
def source(name: str, read_at_ms: int | None) -> dict[str, Any]:
    """Render the source of numbers, and their age."""
    return {"name": name, "read_at_ms": read_at_ms}


@register.inclusion_tag("ui/tile.html")
def tile(
    icon_name: str,
    label: str,
    value: object,
    unit: str = "",
    note: str = "",
    spark: object = None,
    spark_unit: str = "",
) -> dict[str, Any]:
    """Render a figure with its label and sparkline; unknown values have no unit.

    `spark_unit` is the sparkline's unit if the figure's unit is part of its text.
    """
    shown_unit = "" if isinstance(value, Unknown) else unit
    return {
        "icon": icon_name,
        "label": label,
        "value": value,
        "is_words": isinstance(value, str | Promise) and not any(map(str.isdigit, str(value))),
        "unit": shown_unit,
        "note": note,
        "spark": spark,
        "spark_unit": spark_unit or unit,
    }


TOAST_STATES = {"success": "ok", "error": "bad", "warning": "warn"}


@register.filter
def toast_state(level_tag: str) -> str:
    """Return the health colour for a Django message."""
    return TOAST_STATES.get(level_tag, "info")
