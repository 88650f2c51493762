"""Notifications about the results of scheduled queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils.translation import ngettext

from console.data.sql import charts
from console.data.sql.runs import run_of
from console.data.sql.values import text_of
from console.observe.alerts import pictures
from console.observe.alerts.results import ROWS_MAX, content_of

if TYPE_CHECKING:
    from console.data.sql.models import QueryRun
    from console.data.sql.runs import Column
    from console.observe.alerts.pictures import Picture


def result_of(run: QueryRun) -> dict[str, Any] | None:
    """Return the message about a finished run, or None if its rows are gone or hidden."""
    kept = run_of(str(run.run_id))
    outcome = None if kept is None else kept.outcome()
    if kept is None or outcome is None or outcome.state != "done" or not kept.is_masked:
        return None
    rows = list(kept.rows())
    names = [column.name for column in outcome.columns]
    texts = [
        ["NULL" if cell is None else text_of(cell, column.kind) for cell, column in zipped]
        for zipped in (zip(row, outcome.columns, strict=True) for row in rows[:ROWS_MAX])
    ]
    summary = ngettext("%(count)d row", "%(count)d rows", outcome.rows) % {"count": outcome.rows}
    return content_of(
        run.query.name,
        summary,
        (names, texts),
        count=outcome.rows,
        path=reverse("sql:result", args=[kept.id]),
        picture=picture_of(outcome.columns, rows),
    )


def picture_of(columns: tuple[Column, ...], rows: charts.Rows) -> Picture | None:
    """Return the chart of the result page as a picture, or None."""
    points = charts.over_time(columns, rows)
    if points is not None:
        return pictures.of_points(points)
    bars = [
        (each["label"], each["text"], each["length"] / charts.LENGTH_MAX)
        for each in charts.bars(columns, rows)
    ]
    return pictures.of_bars(bars) if bars else None
