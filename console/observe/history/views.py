"""Chart data, as JSON for scripts and as CSV."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from django.http import HttpResponse, JsonResponse
from django.utils import translation

from console.accounts.permissions import page
from console.lib.csv_file import csv_lines
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.observe.history.chart_points import NAME_CHARACTERS_MAX, chart_points, found
from console.observe.history.range import TimeRange, requested_range
from console.observe.history.reading import chart_data

if TYPE_CHECKING:
    from django.http import HttpRequest


def require_range(request: HttpRequest) -> TimeRange:
    """Return the time range in a URL.

    Raises:
        MissingError: no chart has such a range.
    """
    asked = requested_range(request.GET, now_ms())
    if asked.problem:
        raise MissingError(asked.problem)
    return asked


@page
def points(request: HttpRequest, kind: str, slug: str, name: str) -> HttpResponse:
    """Return a chart: times in ms, a list of values per line (null: unknown), marks."""
    require_range(request)
    return JsonResponse(chart_points(request, kind, slug, name))


@page
def table(request: HttpRequest, kind: str, slug: str, name: str) -> HttpResponse:
    """Return a chart as CSV, one row per slot; unknown values are empty."""
    chart = found(kind, slug)
    asked = require_range(request)
    data = chart_data(chart, name[:NAME_CHARACTERS_MAX], asked)
    # Programs read it.
    with translation.override("en"):
        unit = f" ({chart.unit})" if chart.unit else ""
    names = [f"{each.name}{unit}" for each in chart.lines]
    if asked.earlier:
        names += [f"{each.name}_{asked.earlier}_earlier{unit}" for each in chart.lines]
    rows = (
        (
            datetime.fromtimestamp(at / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            at,
            *(line[index] for line in (*data.lines, *data.earlier)),
        )
        for index, at in enumerate(data.times_ms)
    )
    text = "".join(csv_lines(("time_utc", "time_ms", *names), rows))
    file_name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{name}-{chart.slug}")[:100]
    return HttpResponse(
        text,
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{file_name}.csv"'},
    )
