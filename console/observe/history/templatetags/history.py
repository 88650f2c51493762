"""Server-rendered sparklines of a figure's last hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django import template
from django.utils.html import format_html
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _

from console.ui.templatetags.ui import clock_text, grouped, unknown

if TYPE_CHECKING:
    from django.utils.safestring import SafeString

    from console.observe.history.reading import Spark

register = template.Library()

WIDTH, HEIGHT, MARGIN = 96, 22, 2
ARROWS = {1: "\u2197", -1: "\u2198"}


@register.simple_tag
def sparkline(spark: Spark | None, unit: str = "") -> SafeString:
    """Render the last hour, with gaps for unknown values, or a dash without data.

    A younger figure says since when; the script shows that time in the person's zone.
    """
    if spark is None or not spark.is_known:
        return unknown(_("The collector has no data for the last hour."))
    known = [value for value in spark.values if value is not None]
    low, high = min(known), max(known)
    named = {"low": short(low), "high": short(high), "unit": unit}
    since_ms, since = spark.since_ms, mark_safe("")
    if since_ms is not None:
        # The script replaces the time.
        text = _("since %(time)s: %(low)s to %(high)s %(unit)s") % {**named, "time": "%s"}
        since = format_html(' data-since="{}" data-words="{}"', since_ms, text)
        # A unit may be a percent sign.
        words = text.replace("%s", clock_text(since_ms))
    elif spark.is_day:
        words = _("last 24 hours: %(low)s to %(high)s %(unit)s") % named
    else:
        words = _("last hour: %(low)s to %(high)s %(unit)s") % named
    trends = {1: _("rising"), 0: _("steady"), -1: _("falling")}
    return format_html(
        '<span class="spark" title="{0}"{6}><svg viewBox="0 0 {1} {2}" width="{1}" height="{2}" '
        'preserveAspectRatio="none" role="img" aria-label="{0}{5}"><path d="{3}"></path></svg>'
        '<span class="spark__trend" aria-hidden="true">{4}</span></span>',
        words,
        WIDTH,
        HEIGHT,
        mark_safe(path_of(spark.shown, high)),
        ARROWS.get(spark.trend or 0, ""),
        "" if spark.trend is None else f", {trends[spark.trend]}",
        since,
    )


def path_of(values: list[float | None], high: float) -> str:
    """Return the SVG path of the values over 0, restarting after each gap."""
    parts, is_open = [], False
    step = WIDTH / max(1, len(values) - 1)
    room = HEIGHT - 2 * MARGIN
    for index, value in enumerate(values):
        if value is None:
            is_open = False
            continue
        height = HEIGHT - MARGIN - (room * max(0.0, value) / high if high > 0 else 0)
        parts.append(f"{'L' if is_open else 'M'}{index * step:.1f} {height:.1f}")
        if not is_open and (index + 1 >= len(values) or values[index + 1] is None):
            # A single known minute is a dot.
            parts.append(f"L{index * step + 0.1:.1f} {height:.1f}")
        is_open = True
    return "".join(parts)


def short(value: float) -> str:
    return grouped(round(value)) if value >= 100 or value == round(value) else f"{value:.1f}"
