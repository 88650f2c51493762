"""Pages of the message search: the search page and its further steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import action_for, page
from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.gateway.errors import GatewayError
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.lib.tables import COLUMNS as COLUMNS_FIELD, Table
from console.messages.browse.columns import NAMES_OFFERED_MAX, columns_with, rows_of
from console.messages.browse.distribution import distribution_of
from console.messages.browse.scanning import progress_of, step
from console.messages.browse.searching import (
    RANGE,
    SHORTEST_MS,
    MessageSearch,
    criteria_of,
    export_file,
)
from console.observe.history.range import requested_range

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase


@page
def search(request: HttpRequest) -> HttpResponse:
    """Show a topic's messages in a time range that match the conditions, newest first."""
    criteria = criteria_of(request)
    topics = gateway().topics.all()
    names = [name for name, each in topics.items() if each.kind is not TopicKind.SYSTEM]
    without_queue = MessageSearch(**criteria._asdict() | {"queue": None})
    context: dict[str, Any] = {
        "criteria": criteria,
        "time_range": criteria.span,
        "range_kept": f"{urlencode(criteria.subject)}&" if criteria.topic else "",
        "all_queues": f"{urlencode(without_queue.subject)}&{criteria.span.query}",
        "range_fields": criteria.subject if criteria.topic else (),
        "names": names[:NAMES_OFFERED_MAX],
        "is_unknown": bool(criteria.topic) and criteria.topic not in topics,
        "table": Table(request, columns_with(criteria.fields)),
        "search_query": urlencode(criteria.query),
        "kinds": [("csv", "CSV"), ("jsonl", "JSON lines")],
        "read_at_ms": now_ms(),
    }
    if criteria.topic in topics and not criteria.problem:
        context |= step_context(request, criteria)
    return render(request, "browse/search.html", context)


@page
def scan(request: HttpRequest) -> HttpResponse:
    """Show the results of the next step as rows below those already shown."""
    criteria = complete_search(request)
    table = Table(request, columns_with(criteria.fields))
    try:
        context = step_context(request, criteria)
    except GatewayError as error:
        again = urlencode([*criteria.query, *progress_of(request.GET).place_query.items()])
        context = {"scan_problem": error, "go_on": again}
    return render(request, "browse/_found.html", context | {"table": table, "criteria": criteria})


def step_context(request: HttpRequest, criteria: MessageSearch) -> dict[str, Any]:
    """Run one step, and return where the next one begins."""
    done = step(criteria.wanted, criteria.condition, progress_of(request.GET))
    columns = [(COLUMNS_FIELD, each) for each in request.GET.getlist(COLUMNS_FIELD)]
    kept = [*criteria.query, *columns]
    return {
        "rows": rows_of(done.messages, criteria.fields),
        "progress": done.progress,
        "unread_bodies": done.unread_bodies,
        "next_step": urlencode([*kept, *done.progress.step_query.items()]),
        "go_on": urlencode([*kept, *done.progress.place_query.items()]),
    }


@page
def distribution(request: HttpRequest) -> HttpResponse:
    """Show the distribution of a search's messages over queues, tags, hosts, sizes and hours."""
    criteria = complete_search(request)
    context = {
        "criteria": criteria,
        "time_range": criteria.span,
        "found": distribution_of(criteria.wanted, criteria.condition),
        "search_query": urlencode(criteria.query),
        "read_at_ms": now_ms(),
    }
    return render(request, "browse/distribution.html", context)


def complete_search(request: HttpRequest) -> MessageSearch:
    """Return a complete search.

    Raises:
        MissingError: the topic is missing, or the person isn't allowed this search.
    """
    criteria = criteria_of(request)
    if not criteria.topic or criteria.problem:
        raise MissingError(criteria.problem or _("Choose a topic to search."))
    return criteria


@action_for(Action.EXPORT)
def export(request: HttpRequest, kind: str) -> HttpResponseBase:
    """Return a search's messages as a file, and record the export."""
    return export_file(request, kind, complete_search(request))


@page
def of_group(request: HttpRequest, group: str) -> HttpResponse:
    """Redirect to the messages of a time in the topic where the group has the most lag."""
    lags: dict[str, int] = {}
    for row in gateway().groups.progress(group).queues:
        lags[row.topic] = lags.get(row.topic, 0) + (row.lag or 0)
    if not lags:
        raise MissingError(_("Group %(name)s hasn't read any topic yet.") % {"name": group})
    topic = max(lags, key=lambda name: (lags[name], name))
    span = requested_range(request.GET, now_ms(), RANGE, SHORTEST_MS)
    if span.problem:
        raise MissingError(span.problem)
    return redirect(f"{reverse('browse:search')}?{urlencode({'topic': topic})}&{span.query}")
