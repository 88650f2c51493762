"""Notifications about the results of scheduled reports."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils.html import strip_tags
from django.utils.translation import gettext

from console.data.reports.presenting import PERMILLE, ShownRun, report_of, shown_bars, shown_cell
from console.observe.alerts import pictures
from console.observe.alerts.results import ROWS_MAX, content_of

if TYPE_CHECKING:
    from console.data.reports.catalog import Report
    from console.data.reports.models import ReportRun
    from console.observe.alerts.pictures import Picture


def result_of(run: ReportRun) -> dict[str, Any] | None:
    """Return the message about a finished run, or None if its report is unknown."""
    report = report_of(run)
    if report is None or run.result is None:
        return None
    shown = ShownRun(run)
    # The newest rows are last, as on the page.
    rows = [
        [strip_tags(shown_cell(row.get(column.name), column)) for column in report.shown_columns]
        for row in run.rows[-ROWS_MAX:]
    ]
    return content_of(
        shown.title,
        strip_tags(shown.sentence),
        ([gettext(column.label) for column in report.shown_columns], rows),
        count=run.result_rows,
        path=reverse("reports:run", args=[run.pk]),
        picture=picture_of(run, report),
    )


def picture_of(run: ReportRun, report: Report) -> Picture | None:
    """Return a result's chart as a picture, or None."""
    if run.result is None:
        return None
    if report.chart is not None and run.result.get("chart", {}).get("times"):
        label = report.chart.label
        picture = pictures.of_points(run.result["chart"])
    elif report.bars is not None and (bars := shown_bars(report, run.result)):
        label = report.bars.label
        picture = pictures.of_bars(
            [(each.label, strip_tags(each.text), each.length / PERMILLE) for each in bars]
        )
    else:
        return None
    shown = ShownRun(run)
    when = f"{(run.finished_at or run.created_at).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    about = [gettext(label), shown.parameters, when]
    return picture.headed(shown.title, " · ".join(filter(None, about)))
