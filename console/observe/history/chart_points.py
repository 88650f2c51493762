"""A chart's points and marks, for scripts and the API."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _, ngettext

from console.lib.moment import now_ms
from console.observe.history.additions import marks_of
from console.observe.history.charts import CHARTS, Chart
from console.observe.history.metrics import BROKER, CLUSTER, QUEUE, QueuePlace
from console.observe.history.range import EARLIER, TimeRange, requested_range
from console.observe.history.reading import Mark, chart_data, collector_state
from console.people.audit.models import Entry

if TYPE_CHECKING:
    from console.observe.history.series import Values

MARKS_MAX = 200
NAME_CHARACTERS_MAX = 512
RESET_ACTIONS = ("offset.",)
BROKER_ACTIONS = "broker."
PRECISION = ".6g"


def found(kind: str, slug: str) -> Chart:
    chart = CHARTS.get((kind, slug))
    if chart is None:
        raise Http404
    return chart


def chart_points(request: HttpRequest, kind: str, slug: str, name: str) -> dict[str, Any]:
    """Return a chart's data for the time range in a URL."""
    chart = found(kind, slug)
    asked = requested_range(request.GET, now_ms())
    data = chart_data(chart, name[:NAME_CHARACTERS_MAX], asked)
    state = collector_state(asked.now_ms)
    shown_marks = (Mark(*each) for each in marks_of(kind, name, asked.low_ms, asked.high_ms))
    changed = changes(kind, name, asked)
    marks = sorted([*data.marks, *changed, *shown_marks])[:MARKS_MAX]
    return {
        "unit": str(chart.unit),
        "stepMs": data.step_ms,
        "times": data.times_ms,
        "lines": [
            {"label": str(each.label), "values": short(values)}
            for each, values in zip(chart.lines, data.lines, strict=True)
        ],
        "earlier": [short(values) for values in data.earlier],
        "earlierBy": str(EARLIER[asked.earlier][1]) if asked.earlier else "",
        "marks": [
            {
                "atMs": mark.at_ms,
                "what": mark.what,
                "text": f"{mark.group}: {words(mark)}" if mark.group else words(mark),
            }
            for mark in marks
        ],
        "lastSampleMs": state.last_ms,
        "problem": data.problem,
    }


def short(values: Values) -> Values:
    return [None if value is None else float(format(value, PRECISION)) for value in values]


def changes(kind: str, name: str, asked: TimeRange) -> list[Mark]:
    """Return changes that people made in the console to a subject or its offsets.

    A chart of all brokers includes the changes to any broker.
    """
    low, high = (datetime.fromtimestamp(ms / 1000, tz=UTC) for ms in (asked.low_ms, asked.high_ms))
    entries = Entry.objects.filter(at__gte=low, at__lt=high, outcome=Entry.Outcome.DONE)
    if kind == CLUSTER:
        entries = entries.filter(action__startswith=BROKER_ACTIONS)
        return [mark_of(entry) for entry in entries[:MARKS_MAX]]
    place = QueuePlace.parse(name) if kind == QUEUE else None
    wanted = place.group if place is not None else name
    found = entries.filter(
        subject__contains=wanted.rpartition(":")[0] if kind == BROKER else wanted
    )
    return [
        mark_of(entry)
        for entry in found[:MARKS_MAX]
        if is_about(kind, wanted, re.split(r"[\s,]+", entry.subject))
    ]


def is_about(kind: str, name: str, words: list[str]) -> bool:
    """Whether an entry's subject matches a chart's; a broker's entry may omit its ID."""
    if kind == BROKER:
        return name in words or name.rpartition(":")[0] in words
    return name in words


def mark_of(entry: Entry) -> Mark:
    return Mark(
        int(entry.at.timestamp() * 1000),
        "reset" if entry.action.startswith(RESET_ACTIONS) else "change",
        entry.action,
    )


def words(mark: Mark) -> str:
    match mark.what:
        case "restart":
            return _("%(broker)s started") % {"broker": mark.detail}
        case "failover":
            return _("A slave of %(broker)s became master") % {"broker": mark.detail}
        case "back":
            return ngettext(
                "Offsets rewound by %(count)s message",
                "Offsets rewound by %(count)s messages",
                int(mark.detail),
            ) % {"count": mark.detail}
        case "deploy":
            return mark.detail
        case "rebalance":
            return _("Queues rebalanced: consumers %(members)s") % {"members": mark.detail}
        case "alert":
            return _("Alert: %(title)s") % {"title": mark.detail}
        case "alert-end":
            return _("Alert resolved: %(title)s") % {"title": mark.detail}
        case "reset":
            return _("Offsets set (%(action)s)") % {"action": mark.detail}
        case _other:
            return _("Changed: %(action)s") % {"action": mark.detail}
