"""Result cells for display: unmodified, with visible NULLs and times in the person's zone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.utils.html import format_html

from console.ui.templatetags.ui import time_element

if TYPE_CHECKING:
    from django.utils.safestring import SafeString

CHARACTERS_SHOWN = 300


def shown(value: Any, kind: str) -> SafeString | str:
    """Return a cell; a shortened one is complete on hover and in every export."""
    if value is None:
        return format_html('<span class="sql-null">{}</span>', "NULL")
    if kind == "moment":
        return _moment(str(value))
    text = text_of(value, kind)
    if len(text) <= CHARACTERS_SHOWN:
        return text
    return format_html('<span title="{}">{}…</span>', text, text[:CHARACTERS_SHOWN])


def text_of(value: Any, kind: str) -> str:
    """Return a cell that isn't NULL as complete text."""
    if kind == "bytes":
        return _bytes(str(value))
    if kind == "boolean":
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _bytes(digits: str) -> str:
    """Return bytes as text if they are valid text, as most bodies are."""
    try:
        text = bytes.fromhex(digits).decode("utf-8")
    except ValueError:
        return f"0x{digits}"
    return text if all(each.isprintable() or each in "\n\t" for each in text) else f"0x{digits}"


def milliseconds(text: str) -> int | None:
    """Return a result's time as ms since the epoch, or None if Python's calendar can't represent
    it.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000)


def _moment(text: str) -> SafeString | str:
    ms = milliseconds(text)
    if ms is None:
        return text
    # Seconds use the format of all pages; the fraction follows them.
    fraction = text.partition(".")[2].rstrip("Z").rstrip("0")
    element = time_element(ms - ms % 1_000, "moment")
    if not fraction:
        return element
    return format_html('{}<span class="faint">.{}</span>', element, fraction)
