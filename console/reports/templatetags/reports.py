"""Numbers of a report's result, which cross JSON as strings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import template

from console.reports.presenting import whole
from console.ui.templatetags.ui import bytes_text

register = template.Library()


@register.filter
def report_bytes(value: Any) -> str:
    size = whole(value)
    return "\u2013" if size is None else bytes_text(size)


@register.filter
def report_minute(value: Any) -> str:
    """Show an ISO time to the minute, in UTC."""
    try:
        when = datetime.fromisoformat(str(value))
    except ValueError:
        return str(value)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M}"
