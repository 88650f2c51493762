"""Shared parts of pages with charts: time range, charts, collector status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.urls import reverse

from console.lib.moment import now_ms
from console.observe.history.additions import issues_about
from console.observe.history.charts import OF_KIND
from console.observe.history.metrics import GROUP, QUEUE, TOPIC, QueuePlace
from console.observe.history.range import requested_range
from console.observe.history.reading import collector_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest

    from console.observe.history.charts import Chart


def chart_row(chart: Chart, name: str, query: str) -> dict[str, Any]:
    """Return the template context of a chart."""
    arguments = [chart.kind, chart.slug, name]
    return {
        "chart": chart,
        "points_url": f"{reverse('history:points', args=arguments)}?{query}",
        "csv_url": f"{reverse('history:csv', args=arguments)}?{query}",
        "file_name": f"{chart.kind}-{chart.slug}",
        "messages_url": messages_url(chart.kind, name),
        "range_query": query,
    }


def messages_url(kind: str, name: str) -> str:
    """Return the URL of the messages of a chart's subject, without the time, or ""."""
    if kind == TOPIC:
        return f"{reverse('browse:search')}?{urlencode({'topic': name})}&"
    if kind == GROUP:
        return f"{reverse('browse:of-group', args=[name])}?"
    place = QueuePlace.parse(name) if kind == QUEUE else None
    if place is None:
        return ""
    queue = f"{place.broker}:{place.queue_id}"
    return f"{reverse('browse:search')}?{urlencode({'topic': place.topic, 'queue': queue})}&"


def history_context(
    request: HttpRequest, kind: str, name: str, more: Sequence[Chart] = ()
) -> dict[str, Any]:
    """Return the context of history/_charts.html for a page about one subject.

    `more` charts come last.
    """
    now = now_ms()
    asked = requested_range(request.GET, now)
    return {
        "time_range": asked,
        "history_charts": [
            chart_row(chart, name, asked.query) for chart in (*OF_KIND[kind], *more)
        ],
        "collector": collector_state(now),
        "verdicts": issues_about(kind, name) if kind != QUEUE else [],
    }
