"""Messages with the result of a scheduled query or report: its table and picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _

from console.observe.alerts.links import absolute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.utils.safestring import SafeString

    from console.observe.alerts.pictures import Picture

RESULT = "result"
ROWS_MAX = 20
ROWS_IN_A_LINE_MAX = 10
CELL_CHARACTERS_MAX = 80
COLUMNS_MAX = 8
SHORT_CHARACTERS_MAX = 24


def content_of(
    title: str,
    summary: str,
    table: tuple[Sequence[str], Sequence[Sequence[str]]],
    *,
    count: int,
    path: str,
    picture: Picture | None = None,
) -> dict[str, Any]:
    """Return a message about a result.

    Args:
        table: the column names, and the first rows as text.
        count: how many rows the result has.
        picture: the chart of the result, if any.
    """
    columns, rows = table
    shown = [[cut(cell, CELL_CHARACTERS_MAX) for cell in row] for row in rows[:ROWS_MAX]]
    return {
        "status": RESULT,
        "name": title,
        "summary": summary,
        "columns": [cut(name, CELL_CHARACTERS_MAX) for name in columns],
        "rows": shown,
        "more": max(0, count - len(shown)),
        "path": path,
        "picture": None if picture is None else picture.as_json(),
    }


def short_table(content: dict[str, Any]) -> str:
    """Return the first rows as lines of text, for chat."""
    rows = [content["columns"], *content["rows"][:ROWS_IN_A_LINE_MAX]]
    return "\n".join(
        " · ".join(cut(cell, SHORT_CHARACTERS_MAX) for cell in row[:COLUMNS_MAX]) for row in rows
    )


def as_html(content: dict[str, Any], picture: str = "") -> SafeString:
    """Return the HTML of an email: the picture by its address, a table and a link."""
    cell = "padding:3px 12px 3px 0;text-align:left;border-bottom:1px solid #e5e7eb"
    head = format_html_join("", '<th style="{}">{}</th>', ((cell, e) for e in content["columns"]))
    rows = format_html_join(
        "",
        "<tr>{}</tr>",
        (
            (format_html_join("", '<td style="{}">{}</td>', ((cell, each) for each in row)),)
            for row in content["rows"]
        ),
    )
    more = _("and %(count)d more") % {"count": content["more"]} if content["more"] else ""
    shown = ""
    if picture:
        shown = format_html(
            '<p><img src="{}" alt="{}" width="720" style="max-width:100%;height:auto"></p>',
            picture,
            content["name"],
        )
    return format_html(
        '<h2 style="font:600 16px sans-serif">{}</h2><p style="font:14px sans-serif">{}</p>{}'
        '<table style="font:13px sans-serif;border-collapse:collapse"><tr>{}</tr>{}</table>'
        '<p style="font:13px sans-serif">{} <a href="{}">{}</a></p>',
        content["name"],
        content["summary"],
        shown,
        head,
        rows,
        more,
        absolute(content["path"]),
        _("Full result"),
    )


def cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
