"""Time zones by name, and their form field."""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, available_timezones

from django import forms
from django.forms.utils import flatatt
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.utils.safestring import SafeString

OLD_REGIONS = ("Etc/", "SystemV/", "US/", "posix/", "right/")
SELECTED = mark_safe(" selected")


def zone_named(name: str) -> tzinfo:
    """Return a time zone; UTC without a name, or if this machine doesn't know the zone."""
    try:
        return ZoneInfo(name) if name else UTC
    except (KeyError, ValueError, OSError):
        return UTC


@lru_cache
def zone_names() -> tuple[str, ...]:
    """Return the available names, UTC first."""
    regions = (name for name in available_timezones() if "/" in name)
    return ("UTC", *sorted(name for name in regions if not name.startswith(OLD_REGIONS)))


class ZoneSelect(forms.Select):
    """A select that doesn't render three templates for each of its hundreds of options."""

    def render(
        self, name: str, value: Any, attrs: Mapping[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        """See forms.Widget."""
        chosen = "" if value is None else str(value)
        options = format_html_join(
            "\n",
            '<option value="{}"{}>{}</option>',
            ((key, SELECTED if key == chosen else "", label) for key, label in self.choices),
        )
        own = self.build_attrs(self.attrs, {**(attrs or {}), "name": name})
        return format_html("<select{}>\n{}\n</select>", flatatt(own), options)
